//! What a thread that repairs its own process needs to know about itself.
//!
//! While pages are being moved, the repairing thread must not touch any of them, or it waits for
//! itself forever. This includes its heap, its stack and its thread-local memory. These functions
//! find such places, so that the repair leaves them out, and block signal handlers, which could
//! touch anything.

use std::fs::File;
use std::io;
use std::os::fd::{IntoRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{PAGE, calls};

/// Addresses that the calling thread always uses: its stack and its thread-local memory.
pub fn places() -> [u64; 2] {
    let local = 0u8;
    // SAFETY: the function returns the address of this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    [ptr::from_ref(&local) as u64, errno as u64]
}

/// All signals blocked for the calling thread, until dropped.
#[derive(Debug)]
pub struct NoSignals {
    before: libc::sigset_t,
}

impl NoSignals {
    /// Blocks them.
    pub fn begin() -> NoSignals {
        // SAFETY: a set of signals is plain data, and both live across the calls.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            NoSignals { before }
        }
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        // SAFETY: the set came from `pthread_sigmask`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

/// Gives the calling thread priority over all ordinary threads, until dropped.
///
/// Other threads are stopped and wait for it. Without permission the priority stays unchanged.
#[derive(Debug)]
pub struct Prompt {
    before: Option<(i32, libc::sched_param)>,
}

impl Prompt {
    /// Raises the priority.
    pub fn begin() -> Prompt {
        // SAFETY: the parameters are plain data and live across the calls.
        unsafe {
            let mut param: libc::sched_param = std::mem::zeroed();
            let policy = libc::sched_getscheduler(0);
            if policy < 0 || libc::sched_getparam(0, &mut param) != 0 {
                return Prompt { before: None };
            }
            let mut first: libc::sched_param = std::mem::zeroed();
            first.sched_priority = 1;
            let real_time = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
            let done = libc::sched_setscheduler(0, real_time, &first) == 0;
            Prompt {
                before: done.then_some((policy, param)),
            }
        }
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        if let Some((policy, param)) = &self.before {
            // SAFETY: what it was given by the kernel.
            unsafe { libc::sched_setscheduler(0, *policy, param) };
        }
    }
}

/// Reserves `len` bytes of unused address space.
///
/// # Errors
/// `ENOMEM`.
pub fn reserve(len: u64) -> io::Result<u64> {
    // SAFETY: a new mapping at a place of the kernel's choice disturbs no other memory.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            len as usize,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(base as u64)
}

/// Where the kernel places a page requested at address `hint`; nothing stays mapped.
///
/// # Errors
/// `ENOMEM`.
pub fn placed_at(hint: u64) -> io::Result<u64> {
    let len = rustix::param::page_size();
    // SAFETY: a new mapping at a place of the kernel's choice disturbs no other memory, and nobody else
    // knows of it when it goes.
    unsafe {
        let base = libc::mmap(
            hint as *mut _,
            len,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        libc::munmap(base, len);
        Ok(base as u64)
    }
}

/// Releases a reservation of [`reserve`].
pub fn release(start: u64, len: u64) {
    // SAFETY: only ranges from `reserve` are passed, in which nothing is kept any more.
    unsafe { libc::munmap(start as *mut _, len as usize) };
}

/// Reads from a file at an offset, using no memory but `words`. Returns the words read.
///
/// # Errors
/// Those of `pread`, as a number; `EIO` if there was nothing to read.
pub fn read_words(file: RawFd, words: &mut [u64], offset: u64) -> Result<usize, i32> {
    match calls::read_into(libc::SYS_pread64, file, words, offset) {
        got @ 8.. => Ok(got as usize / 8),
        0..8 => Err(libc::EIO),
        error => Err(-error as i32),
    }
}

/// True if every page of `len` bytes from `start` on is mapped.
pub fn is_mapped(start: u64, len: u64) -> bool {
    let mut residence = [0u8; 1024];
    let most = residence.len() as u64 * PAGE;
    let mut at = start;
    while at < start + len {
        let step = most.min(start + len - at);
        // SAFETY: writes one byte for each page, for which there is room.
        let done = unsafe { libc::mincore(at as *mut _, step as usize, residence.as_mut_ptr()) };
        if done != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM) {
            return false;
        }
        at += step;
    }
    true
}

/// Closes a descriptor given by number.
pub fn close(fd: RawFd) {
    // SAFETY: the descriptor came from an event or from `duplicate` and belongs to nobody else.
    unsafe { libc::close(fd) };
}

/// Duplicates a descriptor, if the process may have one more.
pub fn duplicate(fd: RawFd) -> Option<RawFd> {
    // SAFETY: takes numbers.
    let other = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    (other >= 0).then_some(other)
}

/// Makes the number `to`, which is in use, refer to the file of `fd`. Returns whether that
/// succeeded.
pub fn duplicate_to(fd: RawFd, to: RawFd) -> bool {
    // SAFETY: takes numbers; what `to` named is the caller's to close.
    unsafe { libc::dup3(fd, to, libc::O_CLOEXEC) == to }
}

/// Gives the calling thread a descriptor table of its own, which threads that it starts share.
///
/// What the program closes or replaces does not affect this table, and the table keeps none of the
/// program's files open.
///
/// # Errors
/// `EPERM` or `ENOSYS` if a sandbox forbids it, `ENOMEM`. The thread then keeps the program's table.
pub fn separate_descriptors() -> io::Result<()> {
    // SAFETY: the table is this thread's alone from this call on, and nothing of it is in use by the
    // thread, which has just begun.
    let done = unsafe {
        let flags = libc::CLOSE_RANGE_UNSHARE;
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, flags)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // What is written to standard output or error must not end in a file that a repair opens.
    use rustix::event::{EventfdFlags, eventfd};
    for _ in libc::STDIN_FILENO..=libc::STDERR_FILENO {
        let taken = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let _ = taken.into_raw_fd();
    }
    Ok(())
}

/// A file of the program by its number, for a thread with descriptors of its own.
///
/// # Errors
/// `EBADF` if the program has closed it, those of `pidfd_getfd`.
pub fn file_of_program(fd: RawFd) -> io::Result<File> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let process = pidfd_open(getpid(), PidfdFlags::empty())?;
    let file = pidfd_getfd(process, fd, PidfdGetfdFlags::empty())?;
    Ok(File::from(file))
}

/// Lets other threads run for about a microsecond.
pub fn breathe() {
    // SAFETY: takes nothing.
    unsafe { libc::sched_yield() };
}

/// Lets other threads run: for a moment in the first `rounds`, for longer after many.
pub fn rest(rounds: u32) {
    const QUICK: u32 = 2_000;
    if rounds < QUICK {
        breathe();
    } else {
        // SAFETY: takes a number.
        unsafe { libc::usleep(100) };
    }
}

/// The kernel's id of the calling thread.
pub fn thread_id() -> i32 {
    // SAFETY: takes nothing.
    unsafe { libc::gettid() }
}

/// Registers handlers that run around each fork through the C library.
///
/// # Errors
/// `ENOMEM`.
pub fn around_fork(before: extern "C" fn(), after: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the functions are there as long as the process is; they touch one static only.
    match unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// A thread whose stack and thread-local memory have no neighbours, so they are never moved.
///
/// The stack is private memory. In a forked child the C library clears the records of threads that
/// the child does not have. These records are on the stack: in shared memory this would clear the
/// parent's.
#[derive(Debug)]
pub struct Aside {
    thread: libc::pthread_t,
    stack: u64,
}

// SAFETY: the handle of a thread is a number that any thread may join.
unsafe impl Send for Aside {}
// SAFETY: as above; nothing is reached through a shared one.
unsafe impl Sync for Aside {}

/// With an inaccessible page on either side.
const STACK_BYTES: u64 = 256 << 10;
const GUARD_BYTES: u64 = 64 << 10;
/// Number of attempts to start a thread: for a tenth of a second.
const PATIENCE: u32 = 3_000;

impl Aside {
    /// Starts `entry` on `shared`, which must be there until [`Aside::join`] has returned.
    ///
    /// All signals are blocked in it.
    ///
    /// # Errors
    /// `EAGAIN`, `ENOMEM`.
    pub fn start<T: Sync>(entry: fn(&T), shared: &T) -> io::Result<Aside> {
        // While another thread begins an `execve` there are no new threads; it may fail yet.
        for round in 0..PATIENCE {
            match Self::try_start(entry, shared) {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => rest(round),
                started => return started,
            }
        }
        Self::try_start(entry, shared)
    }

    fn try_start<T: Sync>(entry: fn(&T), shared: &T) -> io::Result<Aside> {
        struct Start<'a, T> {
            entry: fn(&T),
            shared: &'a T,
            taken: AtomicBool,
        }
        extern "C" fn begin<T: Sync>(start: *mut libc::c_void) -> *mut libc::c_void {
            // SAFETY: the starter waits with it until it is taken.
            let start = unsafe { &*start.cast::<Start<'_, T>>() };
            let (entry, shared) = (start.entry, ptr::from_ref(start.shared));
            // ORDERING: Release, pairs with the Acquire of the starter: we have read it.
            start.taken.store(true, Ordering::Release);
            // SAFETY: the caller of `start` keeps it until the thread is joined.
            entry(unsafe { &*shared });
            ptr::null_mut()
        }
        let stack = reserve(STACK_BYTES + 2 * GUARD_BYTES)?;
        let start = Start {
            entry,
            shared,
            taken: AtomicBool::new(false),
        };
        let bottom = (stack + GUARD_BYTES) as *mut libc::c_void;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the middle of the reservation that was just made.
        let permitted = unsafe { libc::mprotect(bottom, STACK_BYTES as usize, access) };
        // At the limit of mappings there is no stack, and a thread starting there would end the
        // process.
        let started = if permitted == 0 {
            let argument = ptr::from_ref(&start).cast_mut().cast();
            Self::begin_on(bottom, begin::<T>, argument)
        } else {
            Err(io::Error::last_os_error())
        };
        let thread = match started {
            Ok(thread) => thread,
            Err(error) => {
                release(stack, STACK_BYTES + 2 * GUARD_BYTES);
                return Err(error);
            }
        };
        // ORDERING: Acquire, pairs with the Release of the thread.
        while !start.taken.load(Ordering::Acquire) {
            breathe();
        }
        Ok(Aside { thread, stack })
    }

    /// Starts a thread on the stack of [`STACK_BYTES`] at `bottom`, all signals blocked.
    fn begin_on(
        bottom: *mut libc::c_void,
        begin: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
        argument: *mut libc::c_void,
    ) -> io::Result<libc::pthread_t> {
        let _quiet = NoSignals::begin();
        let mut thread: libc::pthread_t = 0;
        // SAFETY: attributes are initialised before use; the stack is as long as said and is kept
        // until the thread is joined.
        let failed = unsafe {
            let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
            libc::pthread_attr_init(&mut attributes);
            libc::pthread_attr_setstack(&mut attributes, bottom, STACK_BYTES as usize);
            let failed = libc::pthread_create(&mut thread, &attributes, begin, argument);
            libc::pthread_attr_destroy(&mut attributes);
            failed
        };
        match failed {
            0 => Ok(thread),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Waits until the thread has exited.
    pub fn join(&mut self) {
        // SAFETY: it was started by us and is joined once, because the owner drops it then.
        unsafe { libc::pthread_join(self.thread, ptr::null_mut()) };
        release(self.stack, STACK_BYTES + 2 * GUARD_BYTES);
    }
}

#[cfg(test)]
mod tests;
