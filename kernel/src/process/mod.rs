//! Processes: threads, signals, and the calls that create and end processes.
//!
//! When its last thread ends, a process's memory and open files are freed. The process remains in
//! the process table as a zombie until its parent has waited for it.
//!
//! ```text
//! clone, exec, wait   the calls that create processes, and wait for them     elf   executable files
//! delivery            handlers and default actions of signals
//! exit                the end of threads and processes
//! alarm, futex, oom   reasons to send a signal, to sleep, to kill a process
//! send                signals to processes and threads
//! thread              a thread of a process
//! signal              actions and pending signals
//! ```

pub mod alarm;
pub mod clone;
pub mod delivery;
pub mod elf;
pub mod exec;
pub mod exit;
pub mod futex;
pub mod oom;
pub mod send;
pub mod signal;
pub mod thread;
pub mod wait;

pub use thread::Thread;

use crate::files::FileTable;
use crate::scheduler;
use crate::scheduler::task::RunState;
use crate::space::Mm;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use linux_raw_sys::general::{RLIM_NLIMITS, RLIMIT_STACK, SIGKILL};
use signal::{Actions, SigInfo};
use spin::Mutex;
use vmarea::types::MmId;

/// Process number of the first process.
pub const INIT: u32 = 1;
/// Maximum total number of processes and threads.
const MAX_TASKS: usize = 2000;

/// Soft and hard limits (`RLIMIT_`).
pub type ResourceLimits = [[u64; 2]; RLIM_NLIMITS as usize];

/// Attributes that a child inherits from its parent and that `execve` preserves.
#[derive(Clone, Debug)]
pub struct Inherited {
    /// The working directory, as a path without `.`, `..` or symbolic links.
    pub directory: String,
    /// Permission bits that are cleared in new files (`umask`).
    pub umask: u32,
    /// The program's name (`comm`).
    pub name: String,
    /// Path of the program.
    pub program: String,
    /// Process group.
    pub group: u32,
    /// Session.
    pub session: u32,
    /// User id and group id. User 0 may do everything.
    pub user: [u32; 2],
    /// True if the process may lock an unlimited amount of memory (`CAP_IPC_LOCK`).
    pub may_lock: bool,
    /// Preference for killing this process when memory is full, from -1000 to 1000.
    ///
    /// Programs can set and read the value (`oom_score_adj`), but this kernel ignores it.
    pub oom_score_adj: i32,
    /// Resource limits.
    pub limits: ResourceLimits,
}

impl Inherited {
    /// Returns the attributes of the first process.
    pub fn first() -> Self {
        let mut limits = [[u64::MAX; 2]; RLIM_NLIMITS as usize];
        limits[RLIMIT_STACK as usize][0] = 8 << 20;
        limits[linux_raw_sys::general::RLIMIT_MEMLOCK as usize] = [8 << 20; 2];
        limits[linux_raw_sys::general::RLIMIT_NOFILE as usize] = [1024, 4096];
        limits[linux_raw_sys::general::RLIMIT_CORE as usize] = [0, u64::MAX];
        Inherited {
            directory: "/".into(),
            umask: 0o022,
            name: "init".into(),
            program: "/init".into(),
            group: INIT,
            session: INIT,
            user: [0, 0],
            may_lock: true,
            oom_score_adj: 0,
            limits,
        }
    }
}

/// A process: threads that share an address space and a file table.
pub struct Process {
    /// Process number.
    pub pid: u32,
    /// Number of the parent.
    pub parent: AtomicU32,
    /// Signal that the parent receives when the process ends; 0 for none.
    pub exit_signal: u32,
    /// Open files.
    pub files: Arc<FileTable>,
    /// Attributes that a child inherits.
    pub inherited: Mutex<Inherited>,
    /// Action for each signal.
    pub actions: Mutex<Arc<Actions>>,
    /// Pending signals that any thread of the process may handle.
    pub pending: Mutex<Vec<SigInfo>>,
    mm: Mutex<Option<Arc<Mm>>>,
    threads: Mutex<Vec<Arc<Thread>>>,
    /// Exit status that `wait` reports, combined with the flags [`DYING`], [`ZOMBIE`] and others.
    exit: AtomicU64,
    /// 1 while the process uses the memory of its parent, which is waiting in `vfork`; otherwise 0.
    borrows_memory: AtomicU32,
    /// Number of the thread that is executing a new program and waits for the other threads to end.
    only_thread: AtomicU32,
}

/// Flag: the process is ending; each of its threads ends before returning to user mode.
const DYING: u64 = 1 << 32;
/// Flag: all threads have ended.
const ZOMBIE: u64 = 1 << 33;
/// Flag: the kernel killed the process because memory was full.
const FOR_MEMORY: u64 = 1 << 34;

static PROCESSES: Mutex<BTreeMap<u32, Arc<Process>>> = Mutex::new(BTreeMap::new());
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(INIT);
static TASKS: AtomicU32 = AtomicU32::new(0);

/// Returns an unused number for a new process or thread.
pub fn new_number() -> u32 {
    // ORDERING: Relaxed; the number only has to be unique.
    NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// Returns the current thread, which belongs to a process.
pub fn current_thread() -> Arc<Thread> {
    let current: Arc<dyn Any + Send + Sync> = scheduler::current();
    current
        .downcast()
        .unwrap_or_else(|_| panic!("a kernel thread runs"))
}

/// Calls `f` with the current thread, which belongs to a process; see [`current_thread`].
pub fn with_current_thread<R>(f: impl FnOnce(&Thread) -> R) -> R {
    scheduler::with_current(|current| {
        let current: &dyn Any = current;
        f(current.downcast_ref().expect("a kernel thread runs"))
    })
}

/// Returns the current thread's process.
pub fn current() -> Arc<Process> {
    Arc::clone(&current_thread().process)
}

/// Returns the process with this number, even if it is a zombie.
pub fn find(pid: u32) -> Option<Arc<Process>> {
    PROCESSES.lock().get(&pid).cloned()
}

/// Returns all processes, including zombies, in the order of their numbers.
///
/// Allocates nothing, because processes end when memory is full. The table is not locked between
/// two processes, so that a process created meanwhile is returned as well: its number is higher.
pub fn all() -> impl Iterator<Item = Arc<Process>> {
    let mut from = 0;
    core::iter::from_fn(move || {
        let table = PROCESSES.lock();
        let (pid, process) = table.range(from..).next()?;
        from = pid + 1;
        Some(Arc::clone(process))
    })
}

/// True if all other threads are asleep and no process is in the middle of exiting.
pub fn others_sleep() -> bool {
    let current = current_thread();
    let sleeps = |thread: &Arc<Thread>| {
        Arc::ptr_eq(thread, &current) || thread.task.state() == RunState::Asleep
    };
    all().all(|process| {
        let threads = process.threads();
        process.zombie_status().is_some() || !threads.is_empty() && threads.iter().all(sleeps)
    })
}

/// Returns the thread with this number.
pub fn find_thread(tid: u32) -> Option<Arc<Thread>> {
    all().find_map(|process| process.thread(tid))
}

/// True if no more threads can be created.
pub fn is_full() -> bool {
    // ORDERING: Relaxed; the number may be outdated.
    TASKS.load(Ordering::Relaxed) as usize >= MAX_TASKS
}

impl Process {
    /// Creates a process without threads and adds it to the process table.
    pub fn new(
        pid: u32,
        parent: u32,
        exit_signal: u32,
        mm: Arc<Mm>,
        files: Arc<FileTable>,
        actions: Arc<Actions>,
        inherited: Inherited,
    ) -> Arc<Process> {
        let process = Arc::new(Process {
            pid,
            parent: AtomicU32::new(parent),
            exit_signal,
            files,
            inherited: Mutex::new(inherited),
            actions: Mutex::new(actions),
            pending: Mutex::new(Vec::new()),
            mm: Mutex::new(Some(mm)),
            threads: Mutex::new(Vec::new()),
            exit: AtomicU64::new(0),
            borrows_memory: AtomicU32::new(0),
            only_thread: AtomicU32::new(0),
        });
        PROCESSES.lock().insert(pid, Arc::clone(&process));
        process
    }

    /// Adds a thread and makes it runnable, unless the process is ending.
    pub fn start_thread(&self, thread: Arc<Thread>) {
        // ORDERING: Relaxed; only a count.
        TASKS.fetch_add(1, Ordering::Relaxed);
        self.threads.lock().push(Arc::clone(&thread));
        scheduler::add(thread);
    }

    /// Removes a thread that is ending; returns true if it was the last thread of the process.
    fn remove_thread(&self, tid: u32) -> bool {
        // ORDERING: Relaxed; only a count.
        TASKS.fetch_sub(1, Ordering::Relaxed);
        let mut threads = self.threads.lock();
        threads.retain(|thread| thread.tid != tid);
        threads.is_empty()
    }

    /// Returns the threads of the process.
    pub fn threads(&self) -> Vec<Arc<Thread>> {
        self.threads.lock().clone()
    }

    /// Returns this process's thread with the given number.
    pub fn thread(&self, tid: u32) -> Option<Arc<Thread>> {
        self.threads.lock().iter().find(|t| t.tid == tid).cloned()
    }

    /// Returns the address space, or `None` once the last thread has ended.
    pub fn mm(&self) -> Option<Arc<Mm>> {
        self.mm.lock().clone()
    }

    /// Returns the core's id for the address space.
    pub fn mm_id(&self) -> Option<MmId> {
        self.mm.lock().as_ref().map(|mm| mm.id())
    }

    /// Replaces the address space; returns the old one.
    fn replace_mm(&self, mm: Option<Arc<Mm>>) -> Option<Arc<Mm>> {
        core::mem::replace(&mut *self.mm.lock(), mm)
    }

    /// Returns the program's name.
    pub fn name(&self) -> String {
        self.inherited.lock().name.clone()
    }

    /// True if the process is ending. Its threads then end before they return to user mode.
    pub fn is_dying(&self) -> bool {
        // ORDERING: Acquire, pairs with the AcqRel in `begin_exit`.
        self.exit.load(Ordering::Acquire) & DYING != 0
    }

    /// True if the process was killed by `SIGKILL` and some of its threads have not ended yet.
    pub fn is_killed(&self) -> bool {
        // ORDERING: Acquire, as in `is_dying`.
        let exit = self.exit.load(Ordering::Acquire);
        exit & (DYING | ZOMBIE) == DYING && exit as u32 == SIGKILL
    }

    /// Returns the exit status for `wait`, or `None` if some threads have not ended yet.
    pub fn zombie_status(&self) -> Option<u32> {
        // ORDERING: Acquire, pairs with the AcqRel in `become_zombie`.
        let exit = self.exit.load(Ordering::Acquire);
        (exit & ZOMBIE != 0).then_some(exit as u32)
    }

    /// Makes all threads end, and sets the exit status; false if the process was already ending.
    pub fn begin_exit(&self, status: u32) -> bool {
        self.begin_exit_with(DYING | u64::from(status))
    }

    fn begin_exit_with(&self, exit: u64) -> bool {
        // ORDERING: AcqRel, pairs with the Acquire in `is_dying`.
        let begun = self
            .exit
            .compare_exchange(0, exit, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if begun {
            self.threads().iter().for_each(|thread| {
                thread.alert();
                scheduler::interrupt(&thread.task);
            });
        }
        begun
    }

    /// Kills the process because memory is full. Returns false if it was already ending.
    pub fn kill_for_memory(&self) -> bool {
        self.begin_exit_with(DYING | FOR_MEMORY | u64::from(SIGKILL))
    }

    fn become_zombie(&self) {
        // ORDERING: AcqRel, pairs with the Acquire in `zombie_status`.
        self.exit.fetch_or(ZOMBIE, Ordering::AcqRel);
    }

    /// True while the process uses the memory of its parent, which is waiting in `vfork`.
    pub fn borrows_memory(&self) -> bool {
        // ORDERING: Acquire, pairs with the Release in `return_memory`.
        self.borrows_memory.load(Ordering::Acquire) != 0
    }

    fn borrow_memory(&self) {
        // ORDERING: Relaxed; the process does not run yet.
        self.borrows_memory.store(1, Ordering::Relaxed);
    }

    /// Wakes the parent that is waiting in `vfork`.
    fn return_memory(&self) {
        // ORDERING: Release, pairs with the Acquire in `borrows_memory`.
        self.borrows_memory.store(0, Ordering::Release);
        scheduler::wake(scheduler::Event::OwnProgram(self.pid), usize::MAX);
    }

    /// True if another thread is executing a new program, so that the thread `tid` must end.
    pub fn keeps_other_than(&self, tid: u32) -> bool {
        // ORDERING: Acquire, pairs with the Release in `end_other_threads`.
        let only = self.only_thread.load(Ordering::Acquire);
        only != 0 && only != tid
    }

    /// Makes all threads except `tid` end, and waits until they have ended.
    ///
    /// Returns false if another thread is already ending all threads except itself.
    fn end_other_threads(&self, tid: u32) -> bool {
        // ORDERING: Release, pairs with the Acquire in `keeps_other_than`.
        let won = self
            .only_thread
            .compare_exchange(0, tid, Ordering::Release, Ordering::Relaxed)
            .is_ok();
        if won {
            let others = self.threads().into_iter().filter(|t| t.tid != tid);
            others.for_each(|thread| {
                thread.alert();
                scheduler::interrupt(&thread.task);
            });
            while self.threads.lock().len() > 1 {
                scheduler::pause();
            }
            // ORDERING: Release, as above.
            self.only_thread.store(0, Ordering::Release);
        }
        won
    }

    /// Returns the parent's process number.
    pub fn parent_number(&self) -> u32 {
        // ORDERING: Relaxed; the table's lock orders changes.
        self.parent.load(Ordering::Relaxed)
    }
}

/// Removes a zombie from the process table.
fn forget(pid: u32) {
    let gone = PROCESSES.lock().remove(&pid);
    drop(gone);
}
