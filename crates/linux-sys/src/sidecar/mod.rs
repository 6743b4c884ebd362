//! A short-lived process that shares this process's memory and stops all but a few of its threads.
//!
//! A process cannot trace itself, but a child that shares its memory can. The child needs no copy
//! of the memory, and all threads resume when the child exits for any reason. The thread that
//! starts the child is suspended until the child exits, as after `vfork`, and the child uses the
//! suspended thread's thread-local memory.
//!
//! # Linux
//! `clone(2)` with `CLONE_VM | CLONE_VFORK`; the exit signal is 0, so that the program's own `wait`
//! and `SIGCHLD` never see the child.

use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use super::calls::{Arena, Plain};
use resume::resume_call;

mod resume;

/// Maximum number of threads that can be stopped at once.
const MOST_THREADS: usize = 4_096;

/// Maximum time to wait for a thread in uninterruptible sleep.
///
/// A thread in `vfork`, or in a call that waits for memory being moved, sleeps uninterruptibly for
/// the whole wait. If the thread waits for a disk instead, the next attempt to stop it may succeed.
const DEEP_SLEEP: Duration = Duration::from_millis(500);

/// Memory for the child's stack and its list of threads.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct Memory {
    stack: [u8; 64 << 10],
    names: [u8; 32 << 10],
    stopped: [i32; MOST_THREADS],
}

impl Plain for Memory {}

/// Parameters and result of the child.
struct Job<'a> {
    parent: i32,
    /// Pointer to a word that is zero once the starting thread has exited; null if unavailable.
    starter: *const AtomicI32,
    tasks: RawFd,
    keep: [i32; 2],
    stop_timeout: Duration,
    work: &'a mut dyn FnMut() -> i32,
    memory: *mut Memory,
    /// Result of the function `work`.
    ///
    /// The child's exit status is not used for the result, because a thread that waits for any
    /// child may consume that status.
    answer: i32,
}

const CANNOT_STOP: i32 = 120;
const FORBIDDEN: i32 = 121;
/// Value of `answer` if the child was killed before it finished.
const INTERRUPTED: i32 = 122;

/// Runs `work` in a child while other threads are stopped. Returns the result of `work` (0 to 100).
///
/// Stops all threads listed in `tasks` (an open `/proc/self/task`) except those in `keep` and the
/// calling thread. `work` may only make system calls and access memory that is not being moved. If
/// a thread does not stop within `stop_timeout`, all threads resume. A thread in `vfork` does not
/// stop; this case is detected before the timeout.
///
/// # Errors
/// `EPERM` if a thread may not be traced or is already traced, `EBUSY` if a thread does not stop in
/// time or there are too many threads, `EINTR` if the child was killed; the errors of `clone`.
pub fn with_others_stopped(
    memory: &mut Arena<Memory>,
    tasks: RawFd,
    keep: [i32; 2],
    stop_timeout: Duration,
    work: &mut dyn FnMut() -> i32,
) -> io::Result<i32> {
    let memory = memory.all().as_mut_ptr();
    let mut job = Job {
        // SAFETY: the call takes no arguments.
        parent: unsafe { libc::getpid() },
        starter: end_word(),
        tasks,
        keep,
        stop_timeout,
        work,
        memory,
        answer: INTERRUPTED,
    };
    // SAFETY: the stack is 64 KiB of memory that nothing else uses; the job outlives the child,
    // because this thread is suspended until the child has exited.
    unsafe {
        // If Yama restricts tracing to parents, the child needs this process's permission.
        libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::MAX, 0, 0, 0);
        let top = (&raw mut (*memory).stack).cast::<u8>().add(64 << 10);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::CLONE_FS;
        let pid = libc::clone(child, top.cast(), flags, ptr::from_mut(&mut job).cast());
        let failed = io::Error::last_os_error();
        libc::prctl(libc::PR_SET_PTRACER, 0, 0, 0, 0);
        if pid < 0 {
            return Err(failed);
        }
        // The child has exited, because this thread runs again. If the child no longer exists,
        // another thread has waited for it.
        while libc::waitpid(pid, ptr::null_mut(), libc::__WALL) != pid {
            if *libc::__errno_location() != libc::EINTR {
                break;
            }
        }
    }
    let failed = |errno| Err(io::Error::from_raw_os_error(errno));
    match job.answer {
        CANNOT_STOP => failed(libc::EBUSY),
        FORBIDDEN => failed(libc::EPERM),
        INTERRUPTED => failed(libc::EINTR),
        answer => Ok(answer),
    }
}

extern "C" fn child(job: *mut libc::c_void) -> i32 {
    // SAFETY: the job is on the stack of the thread that waits for this child.
    let job = unsafe { &mut *job.cast::<Job<'_>>() };
    #[cfg(test)]
    tests::hesitate();
    // An `execve` or exit of the process kills the threads that handle the kernel's requests. The
    // child must then die as well, because its open files would keep the kernel waiting.
    // SAFETY: the call takes numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
    job.answer = if is_orphaned(job) {
        CANNOT_STOP
    } else {
        match stop_all(job) {
            Ok(()) => (job.work)(),
            Err(code) => code,
        }
    };
    0
    // When this process exits, all stopped threads continue.
}

/// True if the starting thread exited before `PR_SET_PDEATHSIG` took effect.
///
/// If another thread calls `execve`, that thread takes over the process id and becomes the child's
/// parent. The child would then stop the new program. The word `starter` shows whether the starting
/// thread has exited: the kernel clears the word before it sends the parent-death signals. If the
/// child still reads a nonzero value after `PR_SET_PDEATHSIG`, the child will receive the signal.
fn is_orphaned(job: &Job<'_>) -> bool {
    // SAFETY: the word is in the memory of the thread that waits for this child, which is kept
    // while that thread lives; memory of an exited thread is kept for the next thread.
    let word = unsafe { job.starter.as_ref() };
    // SAFETY: the call takes no arguments.
    let parent = unsafe { libc::getppid() };
    parent != job.parent || word.is_some_and(|word| word.load(Ordering::SeqCst) == 0)
}

/// Returns a pointer to the word that the kernel clears when this thread exits.
///
/// Returns null if the thread has no such word or the kernel does not report the address (without
/// `CONFIG_CHECKPOINT_RESTORE`).
fn end_word() -> *const AtomicI32 {
    let mut word = ptr::null();
    // SAFETY: the kernel writes one pointer, or nothing.
    unsafe { libc::prctl(libc::PR_GET_TID_ADDRESS, &raw mut word, 0, 0, 0) };
    word
}

/// Stops threads until a scan of the thread list finds no further thread to stop.
fn stop_all(job: &Job<'_>) -> Result<(), i32> {
    // SAFETY: only this child uses the memory, and each part is borrowed once.
    let (names, stopped) = unsafe {
        (
            &mut *(&raw mut (*job.memory).names),
            &mut *(&raw mut (*job.memory).stopped),
        )
    };
    let until = Instant::now() + job.stop_timeout;
    let mut count = 0;
    loop {
        let before = count;
        // SAFETY: the call takes numbers.
        unsafe { libc::lseek(job.tasks, 0, libc::SEEK_SET) };
        loop {
            // SAFETY: the buffer has the given length.
            let got = unsafe {
                libc::syscall(
                    libc::SYS_getdents64,
                    job.tasks,
                    names.as_mut_ptr(),
                    names.len(),
                )
            };
            let Ok(len @ 1..) = usize::try_from(got) else {
                break;
            };
            for tid in Tids(&names[..len]) {
                if job.keep.contains(&tid) || stopped[..count].contains(&tid) {
                    continue;
                }
                if count == MOST_THREADS {
                    return Err(CANNOT_STOP);
                }
                if stop(tid, job.tasks, until)? {
                    stopped[count] = tid;
                    count += 1;
                }
            }
        }
        if count == before {
            return Ok(());
        }
    }
}

/// Iterator over the thread ids in the result of `getdents64`.
struct Tids<'a>(&'a [u8]);

impl Iterator for Tids<'_> {
    type Item = i32;

    fn next(&mut self) -> Option<i32> {
        // Directory entry: inode 8 bytes, offset 8, length 2, type 1, name.
        loop {
            let len = usize::from(u16::from_ne_bytes([*self.0.get(16)?, *self.0.get(17)?]));
            let entry = self.0.get(..len)?;
            self.0 = &self.0[len.max(1)..];
            let name = entry.get(19..)?;
            let digits = name.iter().take_while(|byte| byte.is_ascii_digit());
            let number = digits.fold(0i32, |sum, &digit| {
                sum.wrapping_mul(10).wrapping_add(i32::from(digit - b'0'))
            });
            if number > 0 {
                return Some(number);
            }
        }
    }
}

/// Stops one thread before the deadline `until`. Returns false if the thread has exited.
fn stop(tid: i32, tasks: RawFd, until: Instant) -> Result<bool, i32> {
    const EVENT_STOP: i32 = 128;
    // SAFETY: these requests do not access this process's memory.
    unsafe {
        if libc::ptrace(libc::PTRACE_SEIZE, tid, 0usize, 0usize) != 0 {
            return match *libc::__errno_location() {
                libc::ESRCH => Ok(false),
                _ if has_ended(tid) => Ok(false),
                _ => Err(FORBIDDEN),
            };
        }
        libc::ptrace(libc::PTRACE_INTERRUPT, tid, 0usize, 0usize);
        let mut status = 0;
        // Most threads stop immediately and their state is not checked.
        let mut awake = Instant::now();
        let mut next_look = awake + DEEP_SLEEP / 10;
        loop {
            let got = libc::waitpid(tid, &mut status, libc::__WALL | libc::WNOHANG);
            if got == tid {
                if !libc::WIFSTOPPED(status) {
                    return Ok(false);
                }
                if status >> 16 == EVENT_STOP {
                    resume_call(tid);
                    return Ok(true);
                }
                // A signal arrived first: deliver it; the stop follows.
                let signal = if status >> 16 == 0 {
                    libc::WSTOPSIG(status)
                } else {
                    0
                };
                libc::ptrace(libc::PTRACE_CONT, tid, 0usize, signal as usize);
            } else if got < 0 {
                return Ok(false);
            }
            let now = Instant::now();
            if now > next_look {
                if !sleeps_deeply(tasks, tid) {
                    awake = now;
                }
                next_look = now + DEEP_SLEEP / 10;
            }
            if now > until || now - awake > DEEP_SLEEP {
                return Err(CANNOT_STOP);
            }
            libc::usleep(5);
        }
    }
}

/// True if the thread is in uninterruptible sleep; `tasks` is an open `/proc/self/task`.
fn sleeps_deeply(tasks: RawFd, tid: i32) -> bool {
    let mut text = [0u8; 128];
    let got = read_of_thread(tid, tasks, b"/stat", &mut text);
    // The name before the state may contain any characters, but its length is bounded.
    let name_ends = text[..got].iter().rposition(|&byte| byte == b')');
    name_ends.is_some_and(|at| text.get(at + 2) == Some(&b'D'))
}

/// Reads a thread's `/proc` file `name` (with a leading slash). Returns the number of bytes read.
fn read_of_thread(tid: i32, tasks: RawFd, name: &[u8], text: &mut [u8]) -> usize {
    let mut path = [0u8; 24];
    let mut digits = [0u8; 10];
    let (mut number, mut from) = (tid.unsigned_abs(), digits.len());
    while number > 0 {
        from -= 1;
        digits[from] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    let len = digits.len() - from;
    path[..len].copy_from_slice(&digits[from..]);
    path[len..len + name.len()].copy_from_slice(name);
    // SAFETY: the path is terminated by a zero, and the buffer has the given length.
    unsafe {
        let fd = libc::openat(
            tasks,
            path.as_ptr().cast(),
            libc::O_RDONLY | libc::O_CLOEXEC,
        );
        let got = libc::read(fd, text.as_mut_ptr().cast(), text.len());
        libc::close(fd);
        usize::try_from(got).unwrap_or(0)
    }
}

/// True if the thread has exited. A zombie cannot be traced and does not have to be stopped.
fn has_ended(tid: i32) -> bool {
    // SAFETY: signal 0 only checks whether the thread exists.
    unsafe { libc::syscall(libc::SYS_tkill, tid, 0) != 0 }
}

#[cfg(test)]
mod tests;
