//! Decodes the raw bytes of one block into events; [`crate::record`] defines the layout.
//!
//! The bytes may be malicious even if their checksum matches. Every step consumes at least one
//! byte, every length is compared with the remaining bytes before memory is allocated, and every
//! table index is checked. Decoding a block therefore takes time and memory in proportion to its
//! length.

use crate::event::{Call, Event, Fault, FileId, FileRef, InodeId, MmId, Tid, Touch};
use crate::rare_events::Rare;
use crate::record::{
    CALL, DATA, FAULT, FILE, KERNEL, KIND, LastCall, OTHER_MM, OTHER_TID, RARE, RESULT, SNAPSHOT,
    TOUCH, Thread, access_of, order_of,
};
use crate::snapshot;
use crate::varint::{Cursor, Malformed};

/// Decoding state of a block.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Offset of the next event in the block.
    at: usize,
    time: u64,
    threads: Vec<Thread>,
    /// Index of the current thread in `threads`; before the first event it is out of bounds.
    current: usize,
    calls: Vec<LastCall>,
}

impl Decoder {
    /// Resets the whole state for the next block.
    pub(crate) fn clear(&mut self) {
        self.at = 0;
        self.time = 0;
        self.threads.clear();
        self.current = 0;
        self.calls.clear();
    }

    /// True if all bytes of `raw` have been read.
    pub(crate) fn is_at_end(&self, raw: &[u8]) -> bool {
        self.at == raw.len()
    }

    /// Decodes the next event of `raw`, which must not change until [`Self::clear`].
    #[inline]
    pub(crate) fn next(&mut self, raw: &[u8]) -> Result<Event, Malformed> {
        let mut cursor = Cursor::new(raw.get(self.at..).unwrap_or_default());
        let tag = cursor.byte()?;
        let event = match tag & KIND {
            FAULT => Event::Fault(self.fault(tag, &mut cursor)?),
            CALL => Event::Call(self.call(tag, &mut cursor)?),
            TOUCH => Event::Touch(self.touch(tag, &mut cursor)?),
            _ => rare(tag, &mut cursor)?,
        };
        self.at = raw.len() - cursor.left();
        Ok(event)
    }

    #[inline]
    fn fault(&mut self, tag: u8, cursor: &mut Cursor<'_>) -> Result<Fault, Malformed> {
        let thread = self.who(tag, cursor)?;
        thread.addr = cursor.diff(thread.addr)?;
        let Thread { tid, mm, addr } = *thread;
        Ok(Fault {
            tid,
            mm,
            addr,
            access: access_of(tag),
            kernel: tag & KERNEL != 0,
            t: self.moment(cursor)?,
            order: order_of(tag),
        })
    }

    fn touch(&mut self, tag: u8, cursor: &mut Cursor<'_>) -> Result<Touch, Malformed> {
        let thread = self.who(tag, cursor)?;
        thread.addr = cursor.diff(thread.addr)?;
        let Thread { tid, mm, addr } = *thread;
        Ok(Touch {
            tid,
            mm,
            addr,
            len: cursor.varint()?,
            access: access_of(tag),
            t: self.moment(cursor)?,
            order: order_of(tag),
        })
    }

    fn call(&mut self, tag: u8, cursor: &mut Cursor<'_>) -> Result<Call, Malformed> {
        let Thread { tid, mm, .. } = *self.who(tag, cursor)?;
        let LastCall { nr, args, ret } = *self.arguments(cursor)?;
        let t = self.moment(cursor)?;
        let file = match tag & FILE {
            0 => None,
            _ => Some(file(cursor)?),
        };
        let data = match tag & DATA {
            0 => Vec::new(),
            _ => {
                let len = cursor.varint()?;
                cursor.take(len)?.to_vec()
            }
        };
        Ok(Call {
            tid,
            mm,
            nr,
            args,
            ret: ret as i64,
            t,
            order: order_of(tag),
            file,
            data,
        })
    }

    /// Decodes an event's thread, and updates the thread's mm.
    #[inline]
    fn who(&mut self, tag: u8, cursor: &mut Cursor<'_>) -> Result<&mut Thread, Malformed> {
        if tag & OTHER_TID != 0 {
            self.current = match cursor.varint()?.checked_sub(1) {
                Some(place) => usize::try_from(place).unwrap_or(usize::MAX),
                None => {
                    let tid = i32::try_from(cursor.diff(0)? as i64)
                        .map_err(|_| Malformed("a thread id is too large"))?;
                    self.threads.push(Thread::new(Tid(tid)));
                    self.threads.len() - 1
                }
            };
        }
        let thread = self
            .threads
            .get_mut(self.current)
            .ok_or(Malformed("a thread was not announced"))?;
        if tag & OTHER_MM != 0 {
            thread.mm = MmId(cursor.varint32()?);
        }
        Ok(thread)
    }

    #[inline]
    fn moment(&mut self, cursor: &mut Cursor<'_>) -> Result<u64, Malformed> {
        self.time = cursor.diff(self.time)?;
        Ok(self.time)
    }

    /// Decodes the system call number, the arguments and the result of a call.
    fn arguments(&mut self, cursor: &mut Cursor<'_>) -> Result<&LastCall, Malformed> {
        let place = match cursor.varint()?.checked_sub(1) {
            Some(place) => usize::try_from(place).unwrap_or(usize::MAX),
            None => {
                self.calls.push(LastCall {
                    nr: cursor.varint32()?,
                    ..LastCall::default()
                });
                self.calls.len() - 1
            }
        };
        let last = self
            .calls
            .get_mut(place)
            .ok_or(Malformed("a system call was not announced"))?;
        let mask = cursor.byte()?;
        for (i, arg) in last.args.iter_mut().enumerate() {
            if mask & 1 << i != 0 {
                *arg = cursor.diff(*arg)?;
            }
        }
        if mask & RESULT != 0 {
            last.ret = cursor.diff(last.ret)?;
        }
        Ok(last)
    }
}

/// Decodes a rare event or a snapshot.
#[cold]
fn rare(tag: u8, cursor: &mut Cursor<'_>) -> Result<Event, Malformed> {
    match tag {
        SNAPSHOT => Ok(Event::Snapshot(snapshot::decode(cursor)?)),
        RARE => Ok(cursor.postcard::<Rare<'_>>()?.into()),
        _ => Err(Malformed("an event of an unknown kind")),
    }
}

fn file(cursor: &mut Cursor<'_>) -> Result<FileRef, Malformed> {
    Ok(FileRef {
        inode: InodeId(cursor.varint32()?),
        file: FileId(cursor.varint32()?),
        open_flags: cursor.varint32()?,
        seals: cursor.varint32()?,
        size: cursor.varint()?,
    })
}
