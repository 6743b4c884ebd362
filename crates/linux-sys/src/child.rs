//! Child processes for tests: forks of the test program that perform one action and wait.
//!
//! A child shares only two pipes with its parent. Because it is a fork of a multithreaded process,
//! it must not allocate memory or take locks: it only makes plain system calls and accesses memory.

use std::ffi::CStr;
use std::fs::File;
use std::io::{Read, Write, stderr};
use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::catch_unwind;
use std::ptr;
use std::time::{Duration, Instant};

/// A child process that waits for commands from its parent. Dropping the value kills the process.
pub struct Child {
    pid: i32,
    go_on: File,
    from: File,
    running: bool,
}

/// Operations that code in the child can perform.
pub struct Inside {
    to: File,
    go_on: File,
}

impl Inside {
    /// Sends a number to the parent.
    pub fn say(&mut self, number: u64) {
        let _ = self.to.write_all(&number.to_ne_bytes());
    }

    /// Waits until the parent calls [`Child::go_on`].
    pub fn wait(&mut self) {
        let _ = self.go_on.read_exact(&mut [0]);
    }

    /// Maps `pages` pages of private anonymous memory. Returns the address, or 0 on failure.
    pub fn map(&self, pages: usize) -> u64 {
        let len = pages * rustix::param::page_size();
        // SAFETY: a new mapping at an address chosen by the kernel disturbs no other memory.
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

    /// Makes part of a mapping read-only, which splits off a separate VMA.
    pub fn protect(&self, page: u64, pages: usize) {
        let len = pages * rustix::param::page_size();
        // SAFETY: callers pass only ranges from `map`, and only this module touches them.
        unsafe { libc::mprotect(page as *mut _, len, libc::PROT_READ) };
    }

    /// Reads one byte of a mapping.
    pub fn read(&self, addr: u64) {
        // SAFETY: callers pass only addresses in ranges from `map`.
        unsafe { ptr::read_volatile(addr as *const u8) };
    }

    /// Writes one byte of a mapping.
    pub fn write(&self, addr: u64) {
        // SAFETY: callers pass only addresses in writable ranges from `map`.
        unsafe { ptr::write_volatile(addr as *mut u8, 1) };
    }

    /// Executes another program in this process.
    pub fn exec(&self, program: &CStr) {
        let args = [program.as_ptr(), ptr::null()];
        let environment = [ptr::null()];
        // SAFETY: the path and both lists are terminated by null.
        unsafe { libc::execve(program.as_ptr(), args.as_ptr(), environment.as_ptr()) };
    }

    /// Forks a grandchild that runs `body`, and waits until it exits.
    pub fn fork(&mut self, body: impl FnOnce(&mut Inside)) {
        // SAFETY: the grandchild only makes system calls and touches its own memory.
        match unsafe { libc::fork() } {
            0 => {
                die_with_parent();
                body(self);
                // SAFETY: the call ends this process at once.
                unsafe { libc::_exit(0) }
            }
            pid => {
                // SAFETY: the call takes numbers and a null pointer, which is allowed.
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
        // SAFETY: the child only runs `body`, which must follow the rules of this module.
        match unsafe { libc::fork() } {
            0 => {
                // Close the parent's pipe ends, because the child would otherwise wait for itself.
                drop((from, go_on));
                die_with_parent();
                // SAFETY: the call takes numbers. Huge pages are disabled because they would
                // combine many faults into one.
                unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
                body(&mut inside);
                // SAFETY: the call ends this process at once.
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

    /// Process id of the child.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Receives the next number that the child sends.
    pub fn hear(&mut self) -> u64 {
        let mut number = [0; 8];
        self.from
            .read_exact(&mut number)
            .expect("the child has gone");
        u64::from_ne_bytes(number)
    }

    /// Lets the child return from one [`Inside::wait`].
    pub fn go_on(&mut self) {
        self.go_on.write_all(&[1]).expect("the child has gone");
    }

    /// Waits until the child exits by itself.
    pub fn wait(&mut self) {
        // SAFETY: the call takes numbers and a null pointer, which is allowed; `pid` is this
        // process's child.
        unsafe { libc::waitpid(self.pid, ptr::null_mut(), 0) };
        self.running = false;
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Closing the pipes would not be enough: children forked later have copies of them.
        if self.running {
            // SAFETY: the call takes numbers; `pid` is this process's child and has not been waited
            // for.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            self.wait();
        }
    }
}

/// Runs `body` in a child process and returns its exit code.
///
/// `body` may allocate and start threads. Returns `None` if the process does not exit within `time`
/// or is killed by a signal, and 101 if `body` panics.
pub fn apart(time: Duration, body: fn() -> i32) -> Option<i32> {
    // SAFETY: the child uses its own copy of the memory, and its C library lets it start threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        die_with_parent();
        // The test harness would catch the panic, and this process would exit with 0.
        let code = catch_unwind(body).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            // The harness would keep what is written by a macro.
            let _ = writeln!(stderr(), "panic: {}", text.unwrap_or_default());
            101
        });
        // SAFETY: the call ends this process at once.
        unsafe { libc::_exit(code) }
    }
    assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
    let status = status_within(child, time)?;
    libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
}

/// Waits for a child to exit. At the timeout, kills the child and returns `None`.
fn status_within(child: i32, time: Duration) -> Option<i32> {
    let until = Instant::now() + time;
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes one number.
        if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            return Some(status);
        }
        if Instant::now() > until {
            // SAFETY: the call takes numbers; `child` is this process's child.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &raw mut status, 0);
            }
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends this process and all its threads with an exit code.
pub fn end(code: i32) -> ! {
    // SAFETY: the call takes a number.
    unsafe { libc::_exit(code) }
}

fn die_with_parent() {
    // SAFETY: the call takes numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

fn pipe() -> (File, File) {
    let mut fds = [0; 2];
    // SAFETY: `fds` has space for two descriptors.
    let made = unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0, "pipe: {}", std::io::Error::last_os_error());
    // SAFETY: both descriptors were just created and have no other owner.
    let [read, write] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    (read.into(), write.into())
}
