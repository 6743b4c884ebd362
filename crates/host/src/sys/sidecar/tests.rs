//! What becomes of the short-lived process when those around it end.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Memory, with_others_stopped};
use crate::sys::calls::Arena;
use crate::sys::child::apart;

/// Milliseconds that the child waits before it ties its end to ours.
static HESITATION: AtomicU32 = AtomicU32::new(0);

pub(super) fn hesitate() {
    // SAFETY: sleeps.
    unsafe { libc::usleep(HESITATION.load(Ordering::SeqCst) * 1_000) };
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
    let code = apart(Duration::from_secs(20), || execute_while_stopping());
    assert_eq!(code, Some(7));
}
