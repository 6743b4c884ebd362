//! Signal handlers that return to code of a repair.
//!
//! A stub restores the thread's signal mask before it goes back to the program. A signal that is
//! pending arrives there, and its handler runs while the stub still has to restore the registers. The
//! thread's own registers lead to the handler then; where the handler returns to stands in the frame
//! that the kernel has put on the stack. As long as there is such a frame, the code of the repair
//! must stay.
//!
//! # Picture
//! ```text
//! SP ─▶ frames of the handler │ return address │ ucontext: … rsp │ rip │ eflags │ cs … │ the program's frames
//!                                                                 └──▶ stub
//! ```
//!
//! # Linux
//! `arch/x86/include/uapi/asm/sigcontext.h` `struct sigcontext`, x86-64.

use std::fs::File;
use std::os::unix::fs::FileExt;

use vmarea_linux_sys::inject::Registers;

use crate::plan::PAGE;

/// Number of pages of a stack in which a frame is looked for, from the stack pointer upwards.
const PAGES: u64 = 16;
/// The code segment of 64-bit programs.
const USER_CS: u16 = 0x33;
/// A bit of the flags that is always set, and the bits that exist.
const FLAGS: (u64, u64) = (1 << 1, (1 << 22) - 1);

/// True if a signal handler on the stack of a stopped thread returns to an address that is `ours`.
pub(super) fn return_to(memory: &File, registers: &Registers, ours: impl Fn(u64) -> bool) -> bool {
    let [_, sp, _] = registers.of_stack();
    let mut bytes = Vec::new();
    let mut page = vec![0; PAGE as usize];
    let first = sp & !(PAGE - 1);
    for start in (first..).step_by(PAGE as usize).take(PAGES as usize) {
        // The stack ends here.
        if memory.read_exact_at(&mut page, start).is_err() {
            break;
        }
        bytes.extend_from_slice(&page);
    }
    let skipped = (sp & (PAGE - 1) & !7) as usize;
    contains_frame(bytes.get(skipped..).unwrap_or_default(), ours)
}

/// True if a stack has the instruction pointer of a frame, which is `ours`, followed by the flags and
/// the code segment.
fn contains_frame(stack: &[u8], ours: impl Fn(u64) -> bool) -> bool {
    let (words, _) = stack.as_chunks();
    let is_frame = |words: &[[u8; 8]]| {
        let [ip, flags, segments] = [words[0], words[1], words[2]].map(u64::from_ne_bytes);
        ours(ip) && flags & FLAGS.0 != 0 && flags <= FLAGS.1 && segments as u16 == USER_CS
    };
    words.windows(3).any(is_frame)
}

#[cfg(test)]
mod tests {
    use super::contains_frame;

    #[test]
    fn a_frame_is_more_than_an_address() {
        let ours = |address: u64| (0x1000..0x2000).contains(&address);
        let has_frame = |words: &[u64]| {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
            contains_frame(&bytes, ours)
        };
        let segments = 0x002b_0000_0000_0033;
        assert!(has_frame(&[7, 0x1a64, 0x246, segments, 7]));
        assert!(
            !has_frame(&[7, 0x2a64, 0x246, segments, 7]),
            "the program's own"
        );
        assert!(
            !has_frame(&[0x1a64, 0x1a64, 0x1a64, 0x1a64]),
            "addresses only"
        );
        assert!(
            !has_frame(&[0x1a64, 0x246]) && !has_frame(&[]),
            "the stack ends"
        );
    }
}
