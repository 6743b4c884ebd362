//! Encodes events as the raw bytes of one block; [`crate::record`] defines the layout.
//!
//! The writer fills an [`Encoder`] until [`Encoder::bytes`] is long enough, then writes these bytes
//! and clears the encoder. The encoder does not compress data and does no I/O.

use crate::Error;
use crate::block::{FULL_BLOCK, MAX_RAW};
use crate::event::{Call, Event, Fault, FileRef, MmId, Tid, Touch};
use crate::rare_events::{Rare, postcard_into};
use crate::record::{
    CALL, DATA, FAULT, FILE, KERNEL, LastCall, OTHER_MM, OTHER_TID, RARE, RESULT, SNAPSHOT, TOUCH,
    Thread, access_bits, order_bit,
};
use crate::snapshot;
use crate::varint::{put, put_diff};
use std::borrow::Cow;
use std::collections::HashMap;

/// Maximum size of an event in bytes; such an event fits even into a nearly full block.
const MAX_EVENT: usize = MAX_RAW - FULL_BLOCK;

/// Raw bytes of the current block.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    bytes: Vec<u8>,
    events: u32,
    time: u64,
    threads: Vec<Thread>,
    thread_places: HashMap<Tid, usize>,
    current: Option<usize>,
    calls: Vec<LastCall>,
    call_places: HashMap<u32, usize>,
}

impl Encoder {
    /// Returns the bytes of the events encoded so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of events encoded so far.
    pub(crate) fn events(&self) -> u32 {
        self.events
    }

    /// Resets the whole state for the next block.
    pub(crate) fn clear(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        *self = Self {
            bytes,
            ..Self::default()
        };
    }

    /// Appends an event. An error leaves the block unchanged.
    pub(crate) fn push(&mut self, event: &Event) -> Result<(), Error> {
        match event {
            Event::Fault(fault) => self.fault(fault),
            Event::Touch(touch) => self.touch(touch),
            Event::Call(call) => {
                // Check the size first: changes to the state from which differences are computed
                // cannot be rolled back.
                fits(call.data.len())?;
                self.call(call);
            }
            Event::Snapshot(snapshot) => {
                snapshot::check(snapshot)?;
                self.stateless(|bytes| {
                    bytes.push(SNAPSHOT);
                    snapshot::encode(bytes, snapshot);
                })?;
            }
            Event::Inode(inode) => self.rare(&Rare::Inode(Cow::Borrowed(inode)))?,
            Event::MmStart(start) => self.rare(&Rare::MmStart(start.clone()))?,
            &Event::MmEnd { mm, t } => self.rare(&Rare::MmEnd { mm, t })?,
            &Event::TaskStart { tid, pid, mm, t } => {
                self.rare(&Rare::TaskStart { tid, pid, mm, t })?;
            }
            &Event::TaskEnd { tid, status, t } => self.rare(&Rare::TaskEnd { tid, status, t })?,
            &Event::Lost { count, t } => self.rare(&Rare::Lost { count, t })?,
            Event::Note(text) => self.rare(&Rare::Note(Cow::Borrowed(text)))?,
            &Event::End { status, t } => self.rare(&Rare::End { status, t })?,
        }
        self.events += 1;
        Ok(())
    }

    fn rare(&mut self, event: &Rare<'_>) -> Result<(), Error> {
        self.stateless(|bytes| {
            bytes.push(RARE);
            postcard_into(bytes, event);
        })
    }

    /// Appends the output of `write`, unless it is too large.
    fn stateless(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        let before = self.bytes.len();
        write(&mut self.bytes);
        fits(self.bytes.len() - before).inspect_err(|_| self.bytes.truncate(before))
    }

    fn fault(&mut self, fault: &Fault) {
        let mut tag = FAULT | access_bits(fault.access) | order_bit(fault.order);
        if fault.kernel {
            tag |= KERNEL;
        }
        let place = self.who(tag, fault.tid, fault.mm);
        self.address(place, fault.addr);
        self.moment(fault.t);
    }

    fn touch(&mut self, touch: &Touch) {
        let tag = TOUCH | access_bits(touch.access) | order_bit(touch.order);
        let place = self.who(tag, touch.tid, touch.mm);
        self.address(place, touch.addr);
        put(&mut self.bytes, touch.len);
        self.moment(touch.t);
    }

    fn call(&mut self, call: &Call) {
        let mut tag = CALL | order_bit(call.order);
        if call.file.is_some() {
            tag |= FILE;
        }
        if !call.data.is_empty() {
            tag |= DATA;
        }
        self.who(tag, call.tid, call.mm);
        let place = self.number(call.nr);
        self.arguments(place, call);
        self.moment(call.t);
        if let Some(file) = &call.file {
            put_file(&mut self.bytes, file);
        }
        if !call.data.is_empty() {
            put(&mut self.bytes, call.data.len() as u64);
            self.bytes.extend_from_slice(&call.data);
        }
    }

    /// Appends tag, thread and mm. Returns the thread's index.
    #[inline]
    fn who(&mut self, mut tag: u8, tid: Tid, mm: MmId) -> usize {
        if let Some(place) = self.current {
            let current = self.threads[place];
            if current.tid == tid && current.mm == mm {
                self.bytes.push(tag);
                return place;
            }
        }
        let next = self.threads.len();
        let place = *self.thread_places.entry(tid).or_insert(next);
        if place == next {
            self.threads.push(Thread::new(tid));
        }
        if self.current != Some(place) {
            tag |= OTHER_TID;
        }
        let thread = &mut self.threads[place];
        if thread.mm != mm {
            tag |= OTHER_MM;
        }
        self.bytes.push(tag);
        if tag & OTHER_TID != 0 {
            if place == next {
                put(&mut self.bytes, 0);
                put_diff(&mut self.bytes, 0, tid.0 as u64);
            } else {
                put(&mut self.bytes, place as u64 + 1);
            }
            self.current = Some(place);
        }
        if tag & OTHER_MM != 0 {
            put(&mut self.bytes, u64::from(mm.0));
            thread.mm = mm;
        }
        place
    }

    #[inline]
    fn address(&mut self, place: usize, addr: u64) {
        let last = &mut self.threads[place].addr;
        put_diff(&mut self.bytes, *last, addr);
        *last = addr;
    }

    #[inline]
    fn moment(&mut self, time: u64) {
        put_diff(&mut self.bytes, self.time, time);
        self.time = time;
    }

    /// Appends the number of a system call, or a reference to its entry if `calls` already has one.
    /// Returns the index of the entry in `calls`.
    fn number(&mut self, nr: u32) -> usize {
        let next = self.calls.len();
        let place = *self.call_places.entry(nr).or_insert(next);
        if place == next {
            self.calls.push(LastCall {
                nr,
                ..LastCall::default()
            });
            put(&mut self.bytes, 0);
            put(&mut self.bytes, u64::from(nr));
        } else {
            put(&mut self.bytes, place as u64 + 1);
        }
        place
    }

    /// Appends the arguments that differ from those in `calls[place]`, the last call with the same
    /// system call number. Also appends the result if it differs.
    fn arguments(&mut self, place: usize, call: &Call) {
        let last = &mut self.calls[place];
        let ret = call.ret as u64;
        let mut mask = 0;
        for (i, arg) in call.args.iter().enumerate() {
            if *arg != last.args[i] {
                mask |= 1 << i;
            }
        }
        if ret != last.ret {
            mask |= RESULT;
        }
        self.bytes.push(mask);
        for (i, arg) in call.args.iter().enumerate() {
            if mask & 1 << i != 0 {
                put_diff(&mut self.bytes, last.args[i], *arg);
            }
        }
        if mask & RESULT != 0 {
            put_diff(&mut self.bytes, last.ret, ret);
        }
        last.args = call.args;
        last.ret = ret;
    }
}

/// Fails if an event of `bytes` bytes is too large.
fn fits(bytes: usize) -> Result<(), Error> {
    // All fields of a call except its data take less than 1 KiB together.
    let limit = MAX_EVENT - 1024;
    if bytes <= limit {
        return Ok(());
    }
    Err(Error::TooLarge {
        what: "an event",
        bytes,
        limit,
    })
}

fn put_file(out: &mut Vec<u8>, file: &FileRef) {
    let FileRef {
        inode,
        file,
        open_flags,
        seals,
        size,
    } = file;
    put(out, u64::from(inode.0));
    put(out, u64::from(file.0));
    put(out, u64::from(*open_flags));
    put(out, u64::from(*seals));
    put(out, *size);
}
