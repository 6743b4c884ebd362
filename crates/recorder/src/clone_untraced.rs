//! Traces tasks that are created with `CLONE_UNTRACED`.
//!
//! A task created with `CLONE_UNTRACED` gets the recorder's filter but no tracer, so every call
//! that the filter stops would fail. The recorder therefore clears `CLONE_UNTRACED` while the
//! kernel reads the arguments, and restores it before the parent or the child executes another
//! instruction. For `clone` the flag is in a register, for `clone3` in a structure in memory.
//!
//! If another thread writes to the `clone3` structure while the flag is cleared, it can undo the
//! recorder's change. In the same way, a thread can change any call's arguments that are in memory.

use super::memory;
use vmarea_linux_sys::ptrace;

pub(super) const CLONE_UNTRACED: u64 = libc::CLONE_UNTRACED as u64;

/// A clone-flags word that was changed, with its original value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Untraced {
    /// The first argument register contains the flags.
    Register(u64),
    /// A word in memory contains the flags.
    Memory { addr: u64, word: u64 },
}

impl Untraced {
    /// Clears `CLONE_UNTRACED` in the arguments of call `nr`, which the stopped thread is about to
    /// enter.
    pub(super) fn clear(tid: i32, nr: u32) -> Option<Untraced> {
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

    /// Restores the original value in the parent or in the child.
    ///
    /// Restoring fails if the task has been killed in the meantime, which does no harm.
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
