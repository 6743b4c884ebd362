//! How one event lies in a block: tag bits, and the state that differences are taken against.
//!
//! Faults are nearly all of a trace, so a fault is a tag and two differences, five bytes as a
//! rule: its address against the last address of the same thread, its time against the last
//! time of the block. Calls are differences against the last call with the same number. Each
//! block begins with fresh state and so decodes alone. Rare events are left to postcard.
//!
//! # Picture
//! ```text
//! fault     tag │ thread? │ mm? │ Δaddress │ Δtime
//! touch     tag │ thread? │ mm? │ Δaddress │ length │ Δtime
//! call      tag │ thread? │ mm? │ number │ mask │ Δargument... │ Δresult? │ Δtime │ file? │ data?
//! snapshot  tag │ see `snapshot`
//! rare      tag │ postcard of `rare::Rare`
//!
//! thread    0 and the tid, for the first time in this block; else its place (from 1) by first use
//! number    likewise for system call numbers
//! mask      bit i: argument i differs from the last call with this number; bit 6: so does the result
//! ```
//! Differences are zigzag varints modulo 2^64, all other integers varints.

use crate::event::{Access, MmId, Order, Tid};

/// What the two low bits of a tag say.
pub(crate) const KIND: u8 = 0b11;
/// Neither of the others: the rest of the tag is [`RARE`] or [`SNAPSHOT`].
pub(crate) const OTHER: u8 = 0;
/// `Event::Fault`.
pub(crate) const FAULT: u8 = 1;
/// `Event::Call`.
pub(crate) const CALL: u8 = 2;
/// `Event::Touch`.
pub(crate) const TOUCH: u8 = 3;

/// A whole tag: an event in postcard.
pub(crate) const RARE: u8 = OTHER;
/// A whole tag: `Event::Snapshot`.
pub(crate) const SNAPSHOT: u8 = OTHER | 1 << 2;

/// The thread is not that of the event before (of those that have one), and follows.
pub(crate) const OTHER_TID: u8 = 1 << 7;
/// The mm is not the one that this thread was last seen in, and follows.
pub(crate) const OTHER_MM: u8 = 1 << 6;
/// `Order::Overlapping`.
pub(crate) const OVERLAPPING: u8 = 1 << 5;
/// Fault: taken in kernel mode.
pub(crate) const KERNEL: u8 = 1 << 4;
/// Fault and touch: two bits of [`Access`] begin here.
pub(crate) const ACCESS_SHIFT: u32 = 2;
/// Call: a `FileRef` follows.
pub(crate) const FILE: u8 = 1 << 4;
/// Call: `data` is not empty and follows.
pub(crate) const DATA: u8 = 1 << 3;
/// Call: in the mask, the result differs.
pub(crate) const RESULT: u8 = 1 << 6;

/// What is known of a thread within a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread {
    pub(crate) tid: Tid,
    pub(crate) mm: MmId,
    /// The last address that it touched.
    pub(crate) addr: u64,
}

impl Thread {
    /// A thread that was not seen before in this block.
    pub(crate) fn new(tid: Tid) -> Self {
        Self {
            tid,
            mm: MmId(0),
            addr: 0,
        }
    }
}

/// The last call with one number within a block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastCall {
    pub(crate) nr: u32,
    pub(crate) args: [u64; 6],
    pub(crate) ret: u64,
}

/// The two bits of an access.
#[inline]
pub(crate) fn access_bits(access: Access) -> u8 {
    let bits = match access {
        Access::Read => 0,
        Access::Write => 1,
        Access::Exec => 2,
        Access::Unknown => 3,
    };
    bits << ACCESS_SHIFT
}

/// The access that a tag tells.
#[inline]
pub(crate) fn access_of(tag: u8) -> Access {
    match tag >> ACCESS_SHIFT & 3 {
        0 => Access::Read,
        1 => Access::Write,
        2 => Access::Exec,
        _ => Access::Unknown,
    }
}

/// The bit of an order.
#[inline]
pub(crate) fn order_bit(order: Order) -> u8 {
    match order {
        Order::Exact => 0,
        Order::Overlapping => OVERLAPPING,
    }
}

/// The order that a tag tells.
#[inline]
pub(crate) fn order_of(tag: u8) -> Order {
    if tag & OVERLAPPING == 0 {
        Order::Exact
    } else {
        Order::Overlapping
    }
}
