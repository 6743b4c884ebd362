//! The terminal: lines that are typed on the serial line.
//!
//! Input is edited and echoed in this module, line by line. Raw mode, job control and terminal
//! settings are not implemented.

use crate::console::{self, CONSOLE};
use crate::failure::Failure;
use crate::scheduler::{self, Event};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use spin::Mutex;

const INTERRUPT: u8 = 3;
const END: u8 = 4;
const BACKSPACE: u8 = 8;
const DELETE: u8 = 127;
/// Maximum length of a line.
const LINE_MAX: usize = 4096;

struct Input {
    /// The line that is being typed.
    line: Vec<u8>,
    /// Bytes of complete lines that have not been read yet.
    lines: VecDeque<u8>,
    /// Number of end-of-input characters that have not been read yet.
    ends: usize,
}

static INPUT: Mutex<Input> = Mutex::new(Input {
    line: Vec::new(),
    lines: VecDeque::new(),
    ends: 0,
});

/// Returns the event that a reader waits for.
pub fn event() -> Event {
    Event::File(&raw const INPUT as usize)
}

/// True if a read would not block.
pub fn has_input() -> bool {
    let input = INPUT.lock();
    !input.lines.is_empty() || input.ends > 0
}

/// Reads at most one line; returns the number of bytes read, which is 0 at the end of input.
///
/// Returns `None` if no complete line is available.
pub fn read(to: &mut [u8]) -> Option<Result<usize, Failure>> {
    let mut input = INPUT.lock();
    if input.lines.is_empty() {
        input.ends = input.ends.checked_sub(1)?;
        return Some(Ok(0));
    }
    let line = input
        .lines
        .iter()
        .position(|&b| b == b'\n')
        .map_or(input.lines.len(), |at| at + 1);
    let len = line.min(to.len());
    for (to, from) in to.iter_mut().zip(input.lines.drain(..len)) {
        *to = from;
    }
    Some(Ok(len))
}

/// Receives typed bytes from the serial line; returns true if the user typed the interrupt key.
pub fn receive() -> bool {
    let mut complete = false;
    let mut interrupted = false;
    while let Some(byte) = console::poll() {
        if byte == INTERRUPT {
            interrupted = true;
        } else {
            complete |= type_byte(&mut INPUT.lock(), byte);
        }
    }
    if complete {
        scheduler::wake(event(), usize::MAX);
        scheduler::wake(Event::AnyFile, usize::MAX);
    }
    interrupted
}

/// Handles one typed byte; returns true if it completes a line or ends the input.
fn type_byte(input: &mut Input, byte: u8) -> bool {
    let mut console = CONSOLE.lock();
    match byte {
        b'\r' | b'\n' => {
            console.send_text(b"\n");
            input.line.push(b'\n');
            let line = core::mem::take(&mut input.line);
            input.lines.extend(line);
            true
        }
        END if input.line.is_empty() => {
            input.ends += 1;
            true
        }
        BACKSPACE | DELETE => {
            if input.line.pop().is_some() {
                console.send_text(b"\x08 \x08");
            }
            false
        }
        _ if input.line.len() < LINE_MAX => {
            console.send_text(&[byte]);
            input.line.push(byte);
            false
        }
        _ => false,
    }
}
