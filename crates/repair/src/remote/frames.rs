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
//!                                                             │     └──▶ stub
//!                                                             └──▶ another stack, if the handler has its own
//! ```
//!
//! A handler may interrupt another one, whose frame is on another stack (`sigaltstack`). So each frame
//! leads to the stack of what it interrupted.
//!
//! # Linux
//! `arch/x86/include/uapi/asm/sigcontext.h` `struct sigcontext`, x86-64.

use std::fs::File;
use std::os::unix::fs::FileExt;

use vmarea_linux_sys::inject::Registers;

use crate::plan::PAGE;

/// Number of pages of a stack in which a frame is looked for, from the stack pointer upwards.
const PAGES: u64 = 16;
/// Number of stacks that frames lead to, at most.
const STACKS: usize = 8;
/// The code segment of 64-bit programs.
const USER_CS: u16 = 0x33;
/// A bit of the flags that is always set, and the bits that exist.
const FLAGS: (u64, u64) = (1 << 1, (1 << 22) - 1);

/// What a frame returns to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Interrupted {
    sp: u64,
    ip: u64,
}

/// True if a signal handler on the stacks of a stopped thread returns to an address that is `ours`.
pub(super) fn return_to(memory: &File, registers: &Registers, ours: impl Fn(u64) -> bool) -> bool {
    let [_, sp, _] = registers.of_stack();
    leads_to(sp, |sp| read_stack(memory, sp), ours)
}

/// True if a frame on the stack at `sp`, or on one to which frames lead, returns to an address that is
/// `ours`.
fn leads_to(sp: u64, read: impl Fn(u64) -> Vec<u8>, ours: impl Fn(u64) -> bool) -> bool {
    let mut stacks = vec![(sp, read(sp))];
    for at in 0..STACKS {
        let Some((_, stack)) = stacks.get(at) else {
            return false;
        };
        let frames: Vec<_> = frames(stack).collect();
        if frames.iter().any(|frame| ours(frame.ip)) {
            return true;
        }
        for Interrupted { sp, .. } in frames {
            let holds = |(first, bytes): &(u64, Vec<u8>)| {
                (*first..first + bytes.len() as u64).contains(&sp)
            };
            if !stacks.iter().any(holds) {
                stacks.push((sp, read(sp)));
            }
        }
    }
    false
}

/// Returns the words of a stack from `sp` upwards.
fn read_stack(memory: &File, sp: u64) -> Vec<u8> {
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
    bytes.get(skipped..).unwrap_or_default().to_vec()
}

/// Returns what the frames on a stack return to: the stack pointer and the instruction pointer, which
/// the flags and the code segment follow.
fn frames(stack: &[u8]) -> impl Iterator<Item = Interrupted> {
    let (words, _) = stack.as_chunks();
    words.windows(4).filter_map(|words: &[[u8; 8]]| {
        let word = |at: usize| u64::from_ne_bytes(words[at]);
        let [sp, ip, flags, segments] = std::array::from_fn(word);
        let is_frame = flags & FLAGS.0 != 0 && flags <= FLAGS.1 && segments as u16 == USER_CS;
        is_frame.then_some(Interrupted { sp, ip })
    })
}

#[cfg(test)]
mod tests {
    use super::leads_to;

    const SEGMENTS: u64 = 0x002b_0000_0000_0033;
    const FLAGS: u64 = 0x246;
    const OURS: u64 = 0x1a64;
    const FOREIGN: u64 = 0x2a64;
    /// Where two stacks begin.
    const FIRST: u64 = 0x10_0000;
    const SECOND: u64 = 0x20_0000;

    /// True if a frame of ours is found from the first stack on.
    fn is_found(first: &[u64], second: &[u64]) -> bool {
        let read = |sp: u64| {
            let words = match sp {
                FIRST => first,
                SECOND => second,
                _ => &[],
            };
            words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        };
        leads_to(FIRST, read, |address| (0x1000..0x2000).contains(&address))
    }

    #[test]
    fn a_frame_is_more_than_an_address() {
        assert!(is_found(&[7, 7, OURS, FLAGS, SEGMENTS, 7], &[]));
        let of_the_program = [7, 7, FOREIGN, FLAGS, SEGMENTS, 7];
        assert!(!is_found(&of_the_program, &[]));
        assert!(!is_found(&[OURS; 5], &[]), "addresses only");
        assert!(!is_found(&[7, OURS, FLAGS], &[]), "the stack ends");
        assert!(!is_found(&[], &[]));
    }

    #[test]
    fn a_frame_leads_to_the_stack_of_the_handler_that_was_interrupted() {
        let interrupted = [7, FIRST, OURS, FLAGS, SEGMENTS];
        assert!(is_found(
            &[7, SECOND, FOREIGN, FLAGS, SEGMENTS],
            &interrupted
        ));
        assert!(!is_found(&[7, SECOND, FOREIGN, FLAGS, 7], &interrupted));
        let back = [FIRST, FOREIGN, FLAGS, SEGMENTS];
        assert!(
            !is_found(&[SECOND, FOREIGN, FLAGS, SEGMENTS], &back),
            "a circle"
        );
    }
}
