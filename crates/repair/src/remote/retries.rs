//! Decides whether to repeat a refused call.

use std::time::Duration;

use crate::piece::What;
use vmarea_linux_sys::calls::Call;
use vmarea_linux_sys::uffd;

/// Pause between two attempts.
const REST: Duration = Duration::from_micros(100);

/// The next action after a refused call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Repeat the call.
    Again,
    /// The call is complete: continue with the next call.
    Following,
    /// The call keeps failing with this errno.
    Refused(i32),
}

/// Counts consecutive attempts at a call without progress.
#[derive(Debug, Default)]
pub(super) struct Retries {
    rounds: u32,
}

impl Retries {
    const ROUNDS: u32 = 20;

    /// Returns the next action after a refusal of `call`, and advances `call` past its completed
    /// part.
    pub(super) fn after(&mut self, call: &mut Call) -> Next {
        let errno = call.errno();
        if ![libc::EAGAIN, libc::EINTR].contains(&errno) {
            return Next::Refused(errno);
        }
        let moves = [What::Out as u64, What::Back as u64].contains(&call.what);
        if moves && uffd::advance(call) {
            self.rounds = 0;
            return if call.payload[2] == 0 {
                Next::Following
            } else {
                Next::Again
            };
        }
        self.rounds += 1;
        if self.rounds == Self::ROUNDS {
            self.rounds = 0;
            return Next::Refused(errno);
        }
        std::thread::sleep(REST);
        Next::Again
    }
}
