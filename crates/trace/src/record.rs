//! Layout of one event in a block: tag bits, and the state from which differences are computed.
//!
//! Nearly all events of a trace are faults. A fault usually takes five bytes: a tag, the difference
//! between its address and the thread's last address, and the difference between its time and the
//! block's last time. A call is encoded as its differences from the last call with the same system
//! call number. Each block starts with the initial state, so it can be decoded without the other
//! blocks. Rare events use postcard.
//!
//! # Picture
//! ```text
//! fault     tag │ thread? │ mm? │ Δaddress │ Δtime
//! touch     tag │ thread? │ mm? │ Δaddress │ length │ Δtime
//! call      tag │ thread? │ mm? │ number │ mask │ Δargument... │ Δresult? │ Δtime │ file? │ data?
//! snapshot  tag │ see `snapshot`
//! rare      tag │ postcard of `rare_events::Rare`
//!
//! thread    0 and the tid at its first use in this block; else its index (from 1) by first use
//! number    likewise for system call numbers
//! mask      bit i: argument i differs from the last call's with this number; bit 6: the result differs
//! ```
//! Differences are taken modulo 2^64 and stored as zigzag varints; all other integers are varints.

use crate::event::{Access, MmId, Order, Tid};

/// Mask of a tag's two low bits, which give the event's kind.
pub(crate) const KIND: u8 = 0b11;
/// Kind of the events whose tag is [`RARE`] or [`SNAPSHOT`].
pub(crate) const OTHER: u8 = 0;
/// `Event::Fault`.
pub(crate) const FAULT: u8 = 1;
/// `Event::Call`.
pub(crate) const CALL: u8 = 2;
/// `Event::Touch`.
pub(crate) const TOUCH: u8 = 3;

/// Complete tag of an event in postcard.
pub(crate) const RARE: u8 = OTHER;
/// Complete tag of `Event::Snapshot`.
pub(crate) const SNAPSHOT: u8 = OTHER | 1 << 2;

/// Tag bit: the thread differs from the previous event's thread; its index follows.
pub(crate) const OTHER_TID: u8 = 1 << 7;
/// Tag bit: the mm differs from the thread's last mm; the mm follows.
pub(crate) const OTHER_MM: u8 = 1 << 6;
/// Tag bit: `Order::Overlapping`.
pub(crate) const OVERLAPPING: u8 = 1 << 5;
/// Tag bit of a fault: taken in kernel mode.
pub(crate) const KERNEL: u8 = 1 << 4;
/// Shift of the two tag bits of a fault or touch that encode its [`Access`].
pub(crate) const ACCESS_SHIFT: u32 = 2;
/// Tag bit of a call: a `FileRef` follows.
pub(crate) const FILE: u8 = 1 << 4;
/// Tag bit of a call: `data` is not empty and follows.
pub(crate) const DATA: u8 = 1 << 3;
/// Bit of a call's mask: the result differs from that of the last call with the same system call
/// number.
pub(crate) const RESULT: u8 = 1 << 6;

/// State of a thread within a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread {
    pub(crate) tid: Tid,
    pub(crate) mm: MmId,
    /// Address of the thread's last access.
    pub(crate) addr: u64,
}

impl Thread {
    /// Creates the initial state of a thread, when the thread first appears in this block.
    pub(crate) fn new(tid: Tid) -> Self {
        Self {
            tid,
            mm: MmId(0),
            addr: 0,
        }
    }
}

/// The last call with a given system call number within a block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastCall {
    pub(crate) nr: u32,
    pub(crate) args: [u64; 6],
    pub(crate) ret: u64,
}

/// Returns the two tag bits that encode the type of an access.
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

/// Decodes the type of an access from the event's tag.
#[inline]
pub(crate) fn access_of(tag: u8) -> Access {
    match tag >> ACCESS_SHIFT & 3 {
        0 => Access::Read,
        1 => Access::Write,
        2 => Access::Exec,
        _ => Access::Unknown,
    }
}

/// Returns the tag bit that encodes the certainty of an event's position.
#[inline]
pub(crate) fn order_bit(order: Order) -> u8 {
    match order {
        Order::Exact => 0,
        Order::Overlapping => OVERLAPPING,
    }
}

/// Decodes the certainty of an event's position from the event's tag.
#[inline]
pub(crate) fn order_of(tag: u8) -> Order {
    if tag & OVERLAPPING == 0 {
        Order::Exact
    } else {
        Order::Overlapping
    }
}
