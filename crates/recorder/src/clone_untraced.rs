//! Tasks that are made with `CLONE_UNTRACED`.
//!
//! The kernel leaves such a task without a tracer, but with the recorder's filter, and under a
//! filter that answers `TRACE` every call of the table fails where no tracer is. So the flag is
//! taken out of the call while the kernel looks at it, and put back before any instruction of the
//! parent or the child runs: in the register of `clone`, in the structure of `clone3`.
//!
//! Another thread that writes the structure of `clone3` at just that time can undo this; so it can
//! undo the call itself.

use super::memory;
use super::tracer::Tracer;
use vmarea_linux_sys::ptrace;

pub(super) const CLONE_UNTRACED: u64 = libc::CLONE_UNTRACED as u64;

/// A flag word that was changed, and what it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Untraced {
    /// In the first argument.
    Register(u64),
    /// In memory.
    Memory { addr: u64, word: u64 },
}

impl Untraced {
    /// Puts back what was there, in the parent or in the child. A task that was killed meanwhile
    /// needs it no more.
    pub(crate) fn restore(self, tid: i32) {
        let _ = self.write(tid, |word| word);
    }

    fn write(self, tid: i32, change: impl Fn(u64) -> u64) -> std::io::Result<()> {
        match self {
            Untraced::Register(word) => ptrace::set_first_argument(tid, change(word)),
            Untraced::Memory { addr, word } => ptrace::poke(tid, addr, change(word)),
        }
    }
}

impl Tracer<'_> {
    /// Takes the flag out of a call of number `nr` before which a thread stands.
    pub(super) fn hide_untraced(&self, tid: i32, nr: u32) -> Option<Untraced> {
        let first = ptrace::first_argument(tid).ok()?;
        let place = match i64::from(nr) {
            libc::SYS_clone => Untraced::Register(first),
            libc::SYS_clone3 => Untraced::Memory {
                addr: first,
                word: *memory::words(tid, first, 1).first()?,
            },
            _ => return None,
        };
        place.write(tid, |word| word & !CLONE_UNTRACED).ok()?;
        Some(place)
    }
}
