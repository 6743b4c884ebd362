//! Child processes for tests: forked copies of the test that do one thing and wait.
//!
//! A child shares nothing with its parent but two pipes. It runs in a fork of a process with many
//! threads, so it may not allocate or take locks: it makes plain system calls and touches memory.

use std::ffi::CStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

/// A child that has said where its memory is, and waits until it is dropped.
pub struct Child {
    pid: i32,
    go_on: File,
    from: File,
    running: bool,
}

/// What the child can do.
pub struct Inside {
    to: File,
    go_on: File,
}

impl Inside {
    /// Tells the parent a number.
    pub fn say(&mut self, number: u64) {
        let _ = self.to.write_all(&number.to_ne_bytes());
    }

    /// Waits for one [`Child::go_on`].
    pub fn wait(&mut self) {
        let _ = self.go_on.read_exact(&mut [0]);
    }

    /// A fresh private anonymous mapping of `pages`, 0 if there is none.
    pub fn map(&self, pages: usize) -> u64 {
        let len = pages * rustix::param::page_size();
        // SAFETY: a new mapping at a place of the kernel's choice disturbs no other memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            0
        } else {
            base as u64
        }
    }

    /// Makes part of a mapping read-only, so that it becomes a VMA of its own.
    pub fn protect(&self, page: u64, pages: usize) {
        let len = pages * rustix::param::page_size();
        // SAFETY: only ranges from `map` are passed, and nothing but this module touches them.
        unsafe { libc::mprotect(page as *mut _, len, libc::PROT_READ) };
    }

    /// Reads a byte of a mapping.
    pub fn read(&self, addr: u64) {
        // SAFETY: only addresses in ranges from `map` are passed.
        unsafe { ptr::read_volatile(addr as *const u8) };
    }

    /// Writes a byte of a mapping.
    pub fn write(&self, addr: u64) {
        // SAFETY: only addresses in writable ranges from `map` are passed.
        unsafe { ptr::write_volatile(addr as *mut u8, 1) };
    }

    /// Becomes another program.
    pub fn exec(&self, program: &CStr) {
        let args = [program.as_ptr(), ptr::null()];
        let environment = [ptr::null()];
        // SAFETY: a path and two lists that end with null.
        unsafe { libc::execve(program.as_ptr(), args.as_ptr(), environment.as_ptr()) };
    }

    /// Forks a grandchild that does `body`, and waits for its end.
    pub fn fork(&mut self, body: impl FnOnce(&mut Inside)) {
        // SAFETY: the copy only makes system calls and touches its own memory.
        match unsafe { libc::fork() } {
            0 => {
                die_with_parent();
                body(self);
                // SAFETY: ends this process at once.
                unsafe { libc::_exit(0) }
            }
            pid => {
                // SAFETY: plain numbers and a null pointer, which is allowed.
                unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
            }
        }
    }
}

impl Child {
    /// Forks a child that runs `body`.
    pub fn start(body: impl FnOnce(&mut Inside)) -> Child {
        let (from, to) = pipe();
        let (wait_on, go_on) = pipe();
        let mut inside = Inside { to, go_on: wait_on };
        // SAFETY: the child only runs `body`, which is held to the rule of this module.
        match unsafe { libc::fork() } {
            0 => {
                // The other ends: without this the child would wait for itself.
                drop((from, go_on));
                die_with_parent();
                // SAFETY: plain numbers; huge pages would make one fault out of many.
                unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
                body(&mut inside);
                // SAFETY: ends this process at once.
                unsafe { libc::_exit(0) }
            }
            pid => {
                assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
                drop(inside);
                Child {
                    pid,
                    go_on,
                    from,
                    running: true,
                }
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Receives the next number that it sends.
    pub fn hear(&mut self) -> u64 {
        let mut number = [0; 8];
        self.from
            .read_exact(&mut number)
            .expect("the child has gone");
        u64::from_ne_bytes(number)
    }

    /// Lets it continue after one [`Inside::wait`].
    pub fn go_on(&mut self) {
        self.go_on.write_all(&[1]).expect("the child has gone");
    }

    /// Waits until it exits by itself.
    pub fn wait(&mut self) {
        // SAFETY: plain numbers and a null pointer, which is allowed; it is our child.
        unsafe { libc::waitpid(self.pid, ptr::null_mut(), 0) };
        self.running = false;
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Closing the pipes would not suffice: children forked later have copies of them.
        if self.running {
            // SAFETY: plain numbers; it is our child and was not waited for yet.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            self.wait();
        }
    }
}

/// Runs `body` in a process of its own and returns its exit code.
///
/// The process may allocate and start threads. `None` if it does not exit in time, or a signal ends it.
pub fn apart(time: Duration, body: fn() -> i32) -> Option<i32> {
    // SAFETY: the child uses its own copy of the memory, and its C library lets it start threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        die_with_parent();
        let code = body();
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(code) }
    }
    assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
    let status = status_within(child, time)?;
    libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
}

/// Waits for a child to exit; `None` after the timeout, which kills the child.
fn status_within(child: i32, time: Duration) -> Option<i32> {
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

/// Ends this process, including its other threads, with an exit code.
pub fn end(code: i32) -> ! {
    // SAFETY: takes a number.
    unsafe { libc::_exit(code) }
}

fn die_with_parent() {
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

fn pipe() -> (File, File) {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two descriptors.
    let made = unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0, "pipe: {}", std::io::Error::last_os_error());
    // SAFETY: both were just made and belong to nobody else.
    let [read, write] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    (read.into(), write.into())
}
