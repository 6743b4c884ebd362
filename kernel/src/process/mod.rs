//! Processes: threads, their scheduler, signals, and the calls that start and end processes.
//!
//! After its last thread has ended, a process stays in the table as a zombie until its parent has
//! waited for it. The memory and the files of a process are freed with its last thread.

pub mod alarm;
pub mod clone;
pub mod elf;
pub mod exec;
pub mod exit;
pub mod futex;
pub mod scheduler;
pub mod signal;
pub mod thread;
pub mod wait;

pub use thread::Thread;

use crate::cpu;
use crate::files::FileTable;
use crate::memory::Mm;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use linux_raw_sys::general::{RLIM_NLIMITS, RLIMIT_STACK, SIGKILL};
use signal::{Actions, SigInfo};
use spin::Mutex;
use vmarea::types::MmId;

/// Number of the first process.
pub const INIT: u32 = 1;
/// Maximum number of processes and threads together.
const MAX_TASKS: usize = 2000;

/// Soft and hard limits (`RLIMIT_`).
pub type ResourceLimits = [[u64; 2]; RLIM_NLIMITS as usize];

/// Data that a child inherits from its parent, and that `execve` keeps.
#[derive(Clone, Debug)]
pub struct Inherited {
    /// The working directory, as a path without `.`, `..` and symbolic links.
    pub directory: String,
    /// Permission bits that new files do not get (`umask`).
    pub umask: u32,
    /// Name of the program (`comm`).
    pub name: String,
    /// Path of the program.
    pub program: String,
    /// Process group.
    pub group: u32,
    /// Session.
    pub session: u32,
    /// User id and group id; user 0 is allowed everything.
    pub user: [u32; 2],
    /// True if the process may lock memory without limit (`CAP_IPC_LOCK`).
    pub may_lock: bool,
    /// How much the process prefers to be ended when memory is full (`oom_score_adj`), from -1000 to
    /// 1000. Programs can set and read it; this kernel's choice does not depend on it.
    pub oom_score_adj: i32,
    /// Resource limits.
    pub limits: ResourceLimits,
}

impl Inherited {
    /// Returns the data of the first process.
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

/// A process: threads that share an address space and a table of files.
pub struct Process {
    /// Process number.
    pub pid: u32,
    /// Number of the parent.
    pub parent: AtomicU32,
    /// Signal that the parent gets when the process ends; 0 for none.
    pub exit_signal: u32,
    /// Open files.
    pub files: Arc<FileTable>,
    /// Data that a child inherits.
    pub inherited: Mutex<Inherited>,
    /// What each signal does.
    pub actions: Mutex<Arc<Actions>>,
    /// Pending signals for any thread of the process.
    pub pending: Mutex<Vec<SigInfo>>,
    mm: Mutex<Option<Arc<Mm>>>,
    threads: Mutex<Vec<Arc<Thread>>>,
    /// Exit status for `wait`, with [`DYING`] and [`ZOMBIE`].
    exit: AtomicU64,
    /// 1 while the process uses the memory of its parent, which waits in `vfork`.
    borrows_memory: AtomicU32,
    /// Number of the thread that executes a program while it waits for the other threads to end.
    only_thread: AtomicU32,
}

/// Flag: the process ends; each of its threads ends before it returns to user mode.
const DYING: u64 = 1 << 32;
/// Flag: all threads have ended.
const ZOMBIE: u64 = 1 << 33;
/// Flag: the kernel ended the process because memory was full.
const FOR_MEMORY: u64 = 1 << 34;

static PROCESSES: Mutex<BTreeMap<u32, Arc<Process>>> = Mutex::new(BTreeMap::new());
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(INIT);
static TASKS: AtomicU32 = AtomicU32::new(0);

/// Returns a new number for a process or a thread.
pub fn new_number() -> u32 {
    // ORDERING: Relaxed; the number only has to be unique.
    NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// Returns the current thread.
pub fn current_thread() -> Arc<Thread> {
    cpu::this().current().expect("a thread runs")
}

/// Returns the process of the current thread.
pub fn current() -> Arc<Process> {
    Arc::clone(&current_thread().process)
}

/// Returns the process with this number, even if it is a zombie.
pub fn find(pid: u32) -> Option<Arc<Process>> {
    PROCESSES.lock().get(&pid).cloned()
}

/// Returns all processes, including zombies.
pub fn all() -> Vec<Arc<Process>> {
    PROCESSES.lock().values().cloned().collect()
}

/// True if all threads but the current one sleep, and no process is being taken apart.
pub fn others_sleep() -> bool {
    let current = current_thread();
    let sleeps = |thread: &Arc<Thread>| {
        Arc::ptr_eq(thread, &current) || thread.state() == thread::RunState::Asleep
    };
    all().iter().all(|process| {
        let threads = process.threads();
        process.zombie_status().is_some() || !threads.is_empty() && threads.iter().all(sleeps)
    })
}

/// Returns the thread with this number.
pub fn find_thread(tid: u32) -> Option<Arc<Thread>> {
    all().iter().find_map(|process| process.thread(tid))
}

/// True if no more threads can be created.
pub fn is_full() -> bool {
    // ORDERING: Relaxed; the number may be outdated.
    TASKS.load(Ordering::Relaxed) as usize >= MAX_TASKS
}

impl Process {
    /// Creates a process without threads and adds it to the table.
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
            parent: AtomicU32::new(parent),
            exit_signal,
            mm: Mutex::new(Some(mm)),
            ..Process::without_memory(pid, files, actions, inherited)
        });
        PROCESSES.lock().insert(pid, Arc::clone(&process));
        process
    }

    /// Returns the process to which the threads of the kernel belong. It is not in the table.
    fn of_kernel() -> Arc<Process> {
        let files = Arc::new(FileTable::default());
        Arc::new(Process::without_memory(
            0,
            files,
            Arc::default(),
            Inherited::first(),
        ))
    }

    fn without_memory(
        pid: u32,
        files: Arc<FileTable>,
        actions: Arc<Actions>,
        inherited: Inherited,
    ) -> Process {
        Process {
            pid,
            parent: AtomicU32::new(0),
            exit_signal: 0,
            files,
            inherited: Mutex::new(inherited),
            actions: Mutex::new(actions),
            pending: Mutex::new(Vec::new()),
            mm: Mutex::new(None),
            threads: Mutex::new(Vec::new()),
            exit: AtomicU64::new(0),
            borrows_memory: AtomicU32::new(0),
            only_thread: AtomicU32::new(0),
        }
    }

    /// Adds a thread and lets it run, unless the process is ending.
    pub fn start_thread(&self, thread: Arc<Thread>) {
        // ORDERING: Relaxed; only a count.
        TASKS.fetch_add(1, Ordering::Relaxed);
        self.threads.lock().push(Arc::clone(&thread));
        scheduler::add(thread);
    }

    /// Removes a thread that ends; returns true if it was the last thread of the process.
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

    /// Returns the thread of the process with this number.
    pub fn thread(&self, tid: u32) -> Option<Arc<Thread>> {
        self.threads.lock().iter().find(|t| t.tid == tid).cloned()
    }

    /// Returns the address space; `None` after the last thread has ended.
    pub fn mm(&self) -> Option<Arc<Mm>> {
        self.mm.lock().clone()
    }

    /// Returns the core's id of the address space.
    pub fn mm_id(&self) -> Option<MmId> {
        self.mm.lock().as_ref().map(|mm| mm.id())
    }

    /// Replaces the address space; returns the old one.
    fn replace_mm(&self, mm: Option<Arc<Mm>>) -> Option<Arc<Mm>> {
        core::mem::replace(&mut *self.mm.lock(), mm)
    }

    /// Returns the name of the program.
    pub fn name(&self) -> String {
        self.inherited.lock().name.clone()
    }

    /// True if the process is ending: its threads end before they return to user mode.
    pub fn is_dying(&self) -> bool {
        // ORDERING: Acquire, pairs with the AcqRel in `begin_exit`.
        self.exit.load(Ordering::Acquire) & DYING != 0
    }

    /// Returns the status for `wait` once all threads have ended.
    pub fn zombie_status(&self) -> Option<u32> {
        // ORDERING: Acquire, pairs with the AcqRel in `become_zombie`.
        let exit = self.exit.load(Ordering::Acquire);
        (exit & ZOMBIE != 0).then_some(exit as u32)
    }

    /// Makes every thread end, and sets the status. Returns false if the process is ending already.
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
            self.threads().iter().for_each(|t| scheduler::interrupt(t));
        }
        begun
    }

    /// Ends the process because memory is full. Returns false if it was ending already.
    pub fn kill_for_memory(&self) -> bool {
        self.begin_exit_with(DYING | FOR_MEMORY | u64::from(SIGKILL))
    }

    fn become_zombie(&self) {
        // ORDERING: AcqRel, pairs with the Acquire in `zombie_status`.
        self.exit.fetch_or(ZOMBIE, Ordering::AcqRel);
    }

    /// True while the process uses the memory of its parent, which waits in `vfork`.
    pub fn borrows_memory(&self) -> bool {
        // ORDERING: Acquire, pairs with the Release in `return_memory`.
        self.borrows_memory.load(Ordering::Acquire) != 0
    }

    fn borrow_memory(&self) {
        // ORDERING: Relaxed; the process does not run yet.
        self.borrows_memory.store(1, Ordering::Relaxed);
    }

    /// Lets the parent, which waits in `vfork`, continue.
    fn return_memory(&self) {
        // ORDERING: Release, pairs with the Acquire in `borrows_memory`.
        self.borrows_memory.store(0, Ordering::Release);
        scheduler::wake(scheduler::Event::OwnProgram(self.pid), usize::MAX);
    }

    /// True if a thread other than `tid` executes a program, so that thread `tid` has to end.
    pub fn keeps_other_than(&self, tid: u32) -> bool {
        // ORDERING: Acquire, pairs with the Release in `end_other_threads`.
        let only = self.only_thread.load(Ordering::Acquire);
        only != 0 && only != tid
    }

    /// Ends the threads other than `tid`, and waits until they have ended.
    ///
    /// Returns false if another thread of the process is already doing this.
    fn end_other_threads(&self, tid: u32) -> bool {
        // ORDERING: Release, pairs with the Acquire in `keeps_other_than`.
        let won = self
            .only_thread
            .compare_exchange(0, tid, Ordering::Release, Ordering::Relaxed)
            .is_ok();
        if won {
            let others = self.threads().into_iter().filter(|t| t.tid != tid);
            others.for_each(|thread| scheduler::interrupt(&thread));
            while self.threads.lock().len() > 1 {
                scheduler::pause();
            }
            // ORDERING: Release, as above.
            self.only_thread.store(0, Ordering::Release);
        }
        won
    }

    /// Returns the number of the parent.
    pub fn parent_number(&self) -> u32 {
        // ORDERING: Relaxed; the table's lock orders changes.
        self.parent.load(Ordering::Relaxed)
    }
}

/// Removes a zombie from the table.
fn forget(pid: u32) {
    let gone = PROCESSES.lock().remove(&pid);
    drop(gone);
}
