//! What becomes of the short-lived process when those around it end.

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{Memory, with_others_stopped};
use crate::sys::calls::Arena;

/// Milliseconds that the child waits before it ties its end to ours.
static HESITATION: AtomicU32 = AtomicU32::new(0);

pub(super) fn hesitate() {
    // SAFETY: sleeps.
    unsafe { libc::usleep(HESITATION.load(Ordering::SeqCst) * 1_000) };
}

/// Waits for a child's end; none where it does not come in time (then it is ended).
fn status_within(child: i32, time: Duration) -> Option<c_int> {
    let until = Instant::now() + time;
    let mut status = 0;
    loop {
        // SAFETY: writes one number.
        if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            return Some(status);
        }
        if Instant::now() > until {
            // SAFETY: takes numbers; the child is ours.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &raw mut status, 0);
            }
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// In a process of its own: one thread has all others stopped for good, another executes a program
/// before the short-lived process has got anywhere.
fn execute_while_stopping() -> ! {
    HESITATION.store(200, Ordering::SeqCst);
    std::thread::spawn(|| {
        let mut memory = Arena::<Memory>::new(1).expect("a stack");
        let tasks = File::open("/proc/self/task").expect("a list of threads");
        let mut forever = || {
            // SAFETY: sleeps.
            unsafe { libc::sleep(3_600) };
            0
        };
        let patience = Duration::from_secs(5);
        let tasks = tasks.as_raw_fd();
        let _ = with_others_stopped(&mut memory, tasks, [0, 0], patience, &mut forever);
    });
    std::thread::sleep(Duration::from_millis(50));
    let shell = c"/bin/sh";
    let arguments = [
        shell.as_ptr(),
        c"-c".as_ptr(),
        c"sleep 0.6; exit 7".as_ptr(),
        std::ptr::null(),
    ];
    // SAFETY: the strings and the list end as they must.
    unsafe {
        libc::execv(shell.as_ptr(), arguments.as_ptr());
        libc::_exit(1)
    }
}

#[test]
fn a_program_executed_meanwhile_is_not_stopped() {
    // SAFETY: the child uses its own copy of the memory, and its C library lets it start threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        execute_while_stopping();
    }
    let status = status_within(child, Duration::from_secs(20));
    let code = status
        .filter(|&status| libc::WIFEXITED(status))
        .map(|status| libc::WEXITSTATUS(status));
    assert_eq!(code, Some(7), "{status:?}");
}
