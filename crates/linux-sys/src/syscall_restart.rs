//! Restart of calls that fail with `EINTR` because of a ptrace stop.
//!
//! The kernel itself restarts most blocking calls after a stop. A few calls fail with `EINTR`
//! instead, as after a signal (`signal(7)` lists these), and not every program expects this error.
//! If such a call waits without a time limit, this module replaces its result with
//! `ERESTARTNOHAND`. When the thread resumes, the kernel then repeats the call, or returns `EINTR`
//! if a signal handler runs first. A repeated call with a time limit would wait for the full time
//! again, so a call with a time limit still fails with `EINTR`, unless it has not waited yet.
//!
//! # Linux
//! `arch_do_signal_or_restart` in `arch/x86/kernel/signal.c`. x86-64 only: other architectures do
//! not preserve the first argument.

/// The error code `ERESTARTNOHAND` as a register value.
#[cfg(target_arch = "x86_64")]
const ERESTARTNOHAND: u64 = (-514i64) as u64;
#[cfg(target_arch = "x86_64")]
const EINTR: u64 = (-(libc::EINTR as i64)) as u64;
/// Flag `IORING_ENTER_EXT_ARG` of `io_uring_enter`: the call may have a time limit.
#[cfg(target_arch = "x86_64")]
const ENTER_EXT_ARG: u64 = 8;
/// Number of `io_pgetevents`, which `libc` does not define for this target.
#[cfg(target_arch = "x86_64")]
const SYS_IO_PGETEVENTS: i64 = 333;

/// Whether an interrupted call may have waited before the interruption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The call may have waited.
    Perhaps,
    /// The interruption was pending when the call began, so the call has not waited at all.
    Not,
}

/// Time limit of a call that fails with `EINTR` after a stop.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TimeLimit {
    None,
    Perhaps,
}

/// Returns the new result of a stopped thread's call `nr`, or `None` to leave the result unchanged.
#[cfg(target_arch = "x86_64")]
pub fn restarted(nr: i64, args: [u64; 6], result: u64, waited: Waited) -> Option<u64> {
    let limit = time_limit(nr, args).filter(|_| result == EINTR)?;
    (limit == TimeLimit::None || waited == Waited::Not).then_some(ERESTARTNOHAND)
}

/// Returns the time limit of a call; `None` for a call that the kernel restarts by itself.
#[cfg(target_arch = "x86_64")]
fn time_limit(nr: i64, args: [u64; 6]) -> Option<TimeLimit> {
    let unlimited = match nr {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => (args[3] as i32) < 0,
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => args[3] == 0,
        libc::SYS_semop => true,
        libc::SYS_rt_sigtimedwait => args[2] == 0,
        libc::SYS_io_getevents | SYS_IO_PGETEVENTS => args[4] == 0,
        libc::SYS_io_uring_enter => args[3] & ENTER_EXT_ARG == 0,
        _ => return None,
    };
    Some(match unlimited {
        true => TimeLimit::None,
        false => TimeLimit::Perhaps,
    })
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn only_waits_without_a_limit_that_failed_are_restarted() {
        let args = |third, fourth: i64| [0, 0, third, fourth.cast_unsigned(), 0, 0];
        let again = Some(ERESTARTNOHAND);
        let restarted = |nr, args, result| restarted(nr, args, result, Waited::Perhaps);
        assert_eq!(restarted(libc::SYS_epoll_wait, args(0, -1), EINTR), again);
        assert_eq!(restarted(libc::SYS_epoll_wait, args(0, 10), EINTR), None);
        assert_eq!(restarted(libc::SYS_epoll_wait, args(0, -1), 1), None);
        assert_eq!(
            restarted(libc::SYS_io_uring_enter, args(0, 1), EINTR),
            again
        );
        assert_eq!(restarted(libc::SYS_io_uring_enter, args(0, 9), EINTR), None);
        assert_eq!(restarted(libc::SYS_nanosleep, args(0, 0), EINTR), None);
    }

    #[test]
    fn a_call_that_has_not_waited_is_restarted_with_its_limit() {
        let args = [0, 0, 0, 10, 0, 0];
        let new = |nr, result| restarted(nr, args, result, Waited::Not);
        assert_eq!(new(libc::SYS_epoll_wait, EINTR), Some(ERESTARTNOHAND));
        assert_eq!(new(libc::SYS_epoll_wait, 0), None);
        assert_eq!(new(libc::SYS_nanosleep, EINTR), None);
    }
}
