//! Restartable sequences: where a thread continues if the kernel had preempted it.
//!
//! A thread that is directed to a stub leaves its restartable sequence without the kernel's
//! noticing: at the next return to user space, the kernel sees an address outside of the sequence
//! and forgets the sequence. The thread must then continue at the sequence's abort handler.
//!
//! # Linux
//! `rseq(2)`, `kernel/rseq.c`; `PTRACE_GET_RSEQ_CONFIGURATION` since 5.13.

use std::fs::File;
use std::os::unix::fs::FileExt;

use vmarea_linux_sys::inject::{self, Registers};

/// Offset of the pointer to the current sequence in `struct rseq`.
const CURRENT: u64 = 8;

/// Returns the registers with which a stopped thread continues after an abort; `None` if it is in no
/// sequence.
pub(super) fn aborted(tid: i32, memory: &File, registers: &Registers) -> Option<Registers> {
    let area = inject::rseq_area(tid).ok()??;
    let mut word = [0; 8];
    memory.read_exact_at(&mut word, area + CURRENT).ok()?;
    let sequence = u64::from_ne_bytes(word);
    if sequence == 0 {
        return None;
    }
    // `struct rseq_cs`: version and flags, start, length, abort handler.
    let mut words = [0; 32];
    memory.read_exact_at(&mut words, sequence).ok()?;
    let (words, _) = words.as_chunks::<8>();
    let [_, start, len, handler] = [0, 1, 2, 3].map(|n| u64::from_ne_bytes(words[n]));
    let is_inside = registers.pc().wrapping_sub(start) < len;
    is_inside.then(|| registers.at(handler))
}
