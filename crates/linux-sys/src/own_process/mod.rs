//! Helpers for a thread that repairs its own process.
//!
//! While pages are being moved, the repairing thread must not touch any of them; otherwise it
//! deadlocks. It therefore must not move its own heap, stack or thread-local memory. Some functions
//! in this module find the addresses of these areas, so that the repair can exclude the areas.
//! Others block signals, because signal handlers could touch any memory.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{IntoRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{PAGE, calls};

/// Returns one address in the calling thread's stack and one in its thread-local memory.
pub fn places() -> [u64; 2] {
    let local = 0u8;
    // SAFETY: the function returns the address of this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    [ptr::from_ref(&local) as u64, errno as u64]
}

/// Guard that blocks all signals for the calling thread until it is dropped.
#[derive(Debug)]
pub struct NoSignals {
    before: libc::sigset_t,
}

impl NoSignals {
    /// Blocks all signals for the calling thread.
    pub fn begin() -> NoSignals {
        // SAFETY: a signal set is plain data, and both sets live across the calls.
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
        // SAFETY: the set was filled by `pthread_sigmask`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

/// Guard that keeps the calling thread's priority above all ordinary threads until it is dropped.
///
/// The guard is used while stopped threads wait for the calling thread. If the process lacks
/// permission to raise the priority, the priority does not change.
#[derive(Debug)]
pub struct Prompt {
    before: Option<(i32, libc::sched_param)>,
}

impl Prompt {
    /// Raises the calling thread's priority.
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

/// Raises the priority of a short-lived thread of another process, and of the threads that it starts,
/// if that is permitted.
pub fn raise_priority(tid: i32) {
    // SAFETY: the parameters are plain data and live across the call.
    unsafe {
        let mut first: libc::sched_param = std::mem::zeroed();
        first.sched_priority = 1;
        libc::sched_setscheduler(tid, libc::SCHED_RR, &first);
    }
}

/// Gives a thread the priority of an ordinary one again.
pub fn lower_priority(tid: i32) {
    // SAFETY: the parameters are plain data and live across the call.
    unsafe {
        let ordinary: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(tid, libc::SCHED_OTHER, &ordinary);
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        if let Some((policy, param)) = &self.before {
            // SAFETY: policy and parameters are the ones that the kernel returned.
            unsafe { libc::sched_setscheduler(0, *policy, param) };
        }
    }
}

/// Reserves `len` bytes of unused address space.
///
/// # Errors
/// `ENOMEM`.
pub fn reserve(len: u64) -> io::Result<u64> {
    // SAFETY: a new mapping at an address chosen by the kernel disturbs no other memory.
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

/// Maps and unmaps a page with address hint `hint`; returns the address that the kernel chose.
///
/// # Errors
/// `ENOMEM`.
pub fn placed_at(hint: u64) -> io::Result<u64> {
    let len = rustix::param::page_size();
    // SAFETY: a new mapping at an address chosen by the kernel disturbs no other memory, and
    // nothing else knows its address when it is unmapped.
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

/// Unmaps a range that [`reserve`] returned.
pub fn release(start: u64, len: u64) {
    // SAFETY: callers pass only ranges from `reserve` that are no longer in use.
    unsafe { libc::munmap(start as *mut _, len as usize) };
}

/// Reads from a file at an offset, writing only to `words`. Returns the number of words read.
///
/// # Errors
/// The errno of `pread`; `EIO` if it read less than one word.
pub fn read_words(file: RawFd, words: &mut [u64], offset: u64) -> Result<usize, i32> {
    match calls::read_into(libc::SYS_pread64, file, words, offset) {
        got @ 8.. => Ok(got as usize / 8),
        0..8 => Err(libc::EIO),
        error => Err(-error as i32),
    }
}

/// True if every page in the `len` bytes from `start` is mapped.
pub fn is_mapped(start: u64, len: u64) -> bool {
    let mut residence = [0u8; 1024];
    let most = residence.len() as u64 * PAGE;
    let mut at = start;
    while at < start + len {
        let step = most.min(start + len - at);
        // SAFETY: the kernel writes one byte per page, and `residence` is large enough.
        let done = unsafe { libc::mincore(at as *mut _, step as usize, residence.as_mut_ptr()) };
        if done != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM) {
            return false;
        }
        at += step;
    }
    true
}

/// Copies the page at `from` to the page at `to`.
///
/// # Errors
/// `EFAULT` if one of the pages is not mapped, or does not permit the access.
pub fn copy_page(to: u64, from: u64) -> Result<(), i32> {
    calls::write_own(to, from, PAGE)
}

/// Closes a descriptor given as a number.
pub fn close(fd: RawFd) {
    // SAFETY: the descriptor came from an event or from `duplicate` and has no other owner.
    unsafe { libc::close(fd) };
}

/// Duplicates a descriptor. Returns `None` if the process has no free descriptor number.
pub fn duplicate(fd: RawFd) -> Option<RawFd> {
    // SAFETY: the call takes numbers.
    let other = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    (other >= 0).then_some(other)
}

/// Makes the open descriptor number `to` refer to the same file as `fd`. Returns true on success.
pub fn duplicate_to(fd: RawFd, to: RawFd) -> bool {
    // SAFETY: the call takes numbers; the caller is responsible for the file that `to` referred to.
    unsafe { libc::dup3(fd, to, libc::O_CLOEXEC) == to }
}

/// Gives the calling thread a private descriptor table instead of the program's shared one.
///
/// The new table holds none of the program's files open and does not change when the program closes
/// or replaces a descriptor. Threads that the calling thread starts later share the new table.
///
/// # Errors
/// `EPERM` or `ENOSYS` if a sandbox forbids the call, `ENOMEM`. The thread then keeps the program's
/// table.
pub fn separate_descriptors() -> io::Result<()> {
    // SAFETY: from this call on, the table belongs to this thread alone, which has just started and
    // uses no descriptor.
    let done = unsafe {
        let flags = libc::CLOSE_RANGE_UNSHARE;
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, flags)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // Descriptors 0 to 2 are filled, so that output to standard output or standard error never
    // reaches a file that a repair opens.
    use rustix::event::{EventfdFlags, eventfd};
    for _ in libc::STDIN_FILENO..=libc::STDERR_FILENO {
        let taken = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let _ = taken.into_raw_fd();
    }
    Ok(())
}

/// Yields the processor to other threads.
pub fn breathe() {
    // SAFETY: the call takes no arguments.
    unsafe { libc::sched_yield() };
}

/// Yields to other threads if `rounds` is less than 2,000; otherwise sleeps for 100 microseconds.
pub fn rest(rounds: u32) {
    const QUICK: u32 = 2_000;
    if rounds < QUICK {
        breathe();
    } else {
        // SAFETY: the call takes a number.
        unsafe { libc::usleep(100) };
    }
}

/// Returns the kernel's id of the calling thread.
pub fn thread_id() -> i32 {
    // SAFETY: the call takes no arguments.
    unsafe { libc::gettid() }
}

/// Registers handlers that the C library runs before and after each fork.
///
/// # Errors
/// `ENOMEM`.
pub fn around_fork(before: extern "C" fn(), after: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the functions exist as long as the process; they access only one static.
    match unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// A thread whose stack and thread-local memory are never moved, because no VMA is adjacent to
/// them.
///
/// The stack must be private memory. In a forked child, the C library clears its records of those
/// threads that do not exist in the child. Each record is on its thread's stack; if that stack were
/// shared memory, the child would clear the parent's record.
#[derive(Debug)]
pub struct Aside {
    thread: libc::pthread_t,
    stack: u64,
}

// SAFETY: a thread handle is a number that any thread may join.
unsafe impl Send for Aside {}
// SAFETY: as for `Send`; a shared reference gives access to nothing.
unsafe impl Sync for Aside {}

/// Size of the stack in bytes, without the inaccessible guard areas on both sides.
const STACK_BYTES: u64 = 256 << 10;
const GUARD_BYTES: u64 = 64 << 10;
/// Maximum number of attempts to start a thread, which take about a tenth of a second in total.
const START_ATTEMPTS: u32 = 3_000;

impl Aside {
    /// Starts a thread that runs `entry(shared)`; `shared` must live until [`Aside::join`] returns.
    ///
    /// All signals are blocked in the new thread.
    ///
    /// # Errors
    /// `EAGAIN`, `ENOMEM`.
    pub fn start<T: Sync>(entry: fn(&T), shared: &T) -> io::Result<Aside> {
        // During another thread's `execve`, which may still fail, no thread can be started.
        for round in 0..START_ATTEMPTS {
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
            // SAFETY: the starting thread keeps `start` alive until `taken` is set.
            let start = unsafe { &*start.cast::<Start<'_, T>>() };
            let (entry, shared) = (start.entry, ptr::from_ref(start.shared));
            // ORDERING: Release, pairs with the Acquire in the starting thread: `start` was read.
            start.taken.store(true, Ordering::Release);
            // SAFETY: the caller of `start` keeps `shared` until the thread is joined.
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
        // SAFETY: the range is the middle of the reservation that was just made.
        let permitted = unsafe { libc::mprotect(bottom, STACK_BYTES as usize, access) };
        // At the limit of mappings `mprotect` fails, and a thread on an inaccessible stack would
        // crash the process.
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
        // ORDERING: Acquire, pairs with the Release in the new thread.
        while !start.taken.load(Ordering::Acquire) {
            breathe();
        }
        Ok(Aside { thread, stack })
    }

    /// Starts a thread, with all signals blocked, on a stack of [`STACK_BYTES`] bytes at `bottom`.
    fn begin_on(
        bottom: *mut libc::c_void,
        begin: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
        argument: *mut libc::c_void,
    ) -> io::Result<libc::pthread_t> {
        let _quiet = NoSignals::begin();
        let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
        // SAFETY: the attributes are initialised before use; the stack has the given length and
        // lives until the thread is joined.
        let failed = unsafe {
            let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
            libc::pthread_attr_init(&mut attributes);
            libc::pthread_attr_setstack(&mut attributes, bottom, STACK_BYTES as usize);
            let failed = libc::pthread_create(thread.as_mut_ptr(), &attributes, begin, argument);
            libc::pthread_attr_destroy(&mut attributes);
            failed
        };
        match failed {
            // SAFETY: `pthread_create` succeeded, so it wrote the handle.
            0 => Ok(unsafe { thread.assume_init() }),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Waits until the thread has exited.
    pub fn join(&mut self) {
        // SAFETY: `start` created the thread, which is joined only once: the owner then drops
        // `self`.
        unsafe { libc::pthread_join(self.thread, ptr::null_mut()) };
        release(self.stack, STACK_BYTES + 2 * GUARD_BYTES);
    }
}

#[cfg(test)]
mod tests;
