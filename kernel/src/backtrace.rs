//! The return addresses on the stack, for a panic's message.
//!
//! The kernel is compiled with frame pointers: `rbp` points to the saved `rbp` of the caller, and the
//! return address is next to it. `run.sh` translates the addresses to functions and lines.

use crate::cpu::direct_map::is_direct;
use crate::say;

/// Maximum number of return addresses that are printed.
const DEPTH: usize = 32;
/// Maximum distance in bytes between two adjacent frames on one stack.
const FRAME_MAX: u64 = 64 << 10;
/// First address of the kernel's code.
const CODE: u64 = 0xffff_ffff_8000_0000;

/// Prints the return addresses of the callers, innermost first.
pub fn print() {
    let mut frame: u64;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack)) };
    for _ in 0..DEPTH {
        // All kernel stacks are in the direct map; a program's `rbp` is not.
        if !is_direct(frame) || !frame.is_multiple_of(8) {
            return;
        }
        // SAFETY: two words of memory that the direct map shows.
        let [next, back] = unsafe { *(frame as *const [u64; 2]) };
        if back < CODE {
            return;
        }
        say!("panic: called from {back:#x}");
        if next <= frame || next - frame > FRAME_MAX {
            return;
        }
        frame = next;
    }
}
