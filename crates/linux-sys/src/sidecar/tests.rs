//! Tests of the short-lived process while other processes and threads exit.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Memory, with_others_stopped};
use crate::calls::Arena;
use crate::child::apart;
use crate::own_process;

/// Milliseconds that the child waits before it calls `PR_SET_PDEATHSIG`.
static HESITATION: AtomicU32 = AtomicU32::new(0);

pub fn hesitate() {
    // SAFETY: the call takes a number.
    unsafe { libc::usleep(HESITATION.load(Ordering::SeqCst) * 1_000) };
}

/// Calls `execve` while another thread's short-lived process is about to stop all threads.
///
/// Runs in a separate process. If the threads were stopped, they would not resume for an hour.
fn execute_while_stopping() -> ! {
    HESITATION.store(200, Ordering::SeqCst);
    std::thread::spawn(|| {
        let mut memory = Arena::<Memory>::new(1).expect("a stack");
        let tasks = File::open("/proc/self/task").expect("a list of threads");
        let mut forever = || {
            // SAFETY: the call takes a number.
            unsafe { libc::sleep(3_600) };
            0
        };
        let stop_timeout = Duration::from_secs(5);
        let tasks = tasks.as_raw_fd();
        let _ = with_others_stopped(&mut memory, tasks, [0, 0], stop_timeout, &mut forever);
    });
    std::thread::sleep(Duration::from_millis(50));
    let shell = c"/bin/sh";
    let arguments = [
        shell.as_ptr(),
        c"-c".as_ptr(),
        c"sleep 0.6; exit 7".as_ptr(),
        std::ptr::null(),
    ];
    // SAFETY: the strings and the list are terminated as required.
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

/// Stops all other threads 300 times while one of them waits for children of any kind.
///
/// Returns the number of times that the result of the short-lived process was wrong.
fn stop_beside_one_that_waits() -> i32 {
    std::thread::spawn(|| {
        loop {
            // SAFETY: a null pointer is allowed.
            unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL) };
        }
    });
    let mut memory = Arena::<Memory>::new(1).expect("a stack");
    let tasks = File::open("/proc/self/task").expect("a list of threads");
    let stop_timeout = Duration::from_secs(5);
    let mut answer = || {
        let (tasks, keep) = (tasks.as_raw_fd(), [own_process::thread_id(), 0]);
        with_others_stopped(&mut memory, tasks, keep, stop_timeout, &mut || 7).ok()
    };
    (0..300).filter(|_| answer() != Some(7)).count() as i32
}

#[test]
fn an_answer_is_not_lost_to_one_that_waits_for_every_child() {
    let wrong = apart(Duration::from_secs(60), stop_beside_one_that_waits);
    assert_eq!(wrong, Some(0));
}

/// Repeatedly stops a thread that waits for a signal without a time limit.
///
/// Returns 0 if the wait did not return before the signal arrived.
fn stop_one_that_waits_for_a_signal() -> i32 {
    static ANSWER: AtomicU32 = AtomicU32::new(0);
    // SAFETY: signal sets are plain data, and this one lives across the calls.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above; the signal is blocked here, and therefore in the thread started below.
    unsafe {
        libc::sigaddset(&mut set, libc::SIGUSR1);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
    let waits = std::thread::spawn(move || {
        // SAFETY: as above; null pointers are allowed.
        let signal = unsafe { libc::sigtimedwait(&set, std::ptr::null_mut(), std::ptr::null()) };
        ANSWER.store(signal as u32, Ordering::SeqCst);
    });
    let mut memory = Arena::<Memory>::new(1).expect("a stack");
    let tasks = File::open("/proc/self/task").expect("a list of threads");
    let stop_timeout = Duration::from_secs(5);
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(2));
        let fd = tasks.as_raw_fd();
        let _ = with_others_stopped(
            &mut memory,
            fd,
            [own_process::thread_id(), 0],
            stop_timeout,
            &mut || 0,
        );
    }
    std::thread::sleep(Duration::from_millis(20));
    let early = ANSWER.load(Ordering::SeqCst);
    // SAFETY: the call takes numbers; the signal is blocked, so the waiting thread receives it.
    unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
    let _ = waits.join();
    let came = ANSWER.load(Ordering::SeqCst) == libc::SIGUSR1 as u32;
    i32::from(early != 0 || !came)
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_thread_that_waits_is_not_told_of_the_stop() {
    let code = apart(Duration::from_secs(60), stop_one_that_waits_for_a_signal);
    assert_eq!(code, Some(0));
}
