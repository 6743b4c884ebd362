//! Stops all threads of another process by trap stops, and lets them go.
//!
//! Threads are stopped by `PTRACE_SEIZE` and `PTRACE_INTERRUPT` only. No signal is sent, and none is
//! believed to come from here: a signal that arrives meanwhile is delivered. A process that was in
//! group-stop, or that enters it meanwhile, is in group-stop afterwards.
//!
//! # Picture
//! ```text
//! seize, interrupt all ─▶ again, until there is no new thread ─▶ … ─▶ own registers, mask ─▶ detach
//! ```

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use vmarea_linux_sys::agent::Restored;
use vmarea_linux_sys::inject::{self, Dispatch, Registers, Seccomp, Wait};
use vmarea_linux_sys::own_process::Prompt;
use vmarea_linux_sys::ptrace::{self, Resume};
use vmarea_linux_sys::reaper::Reaper;
use vmarea_linux_sys::syscall_restart::Waited;
use vmarea_linux_sys::task_status;

use super::rseq;
use super::target::Target;
use crate::RepairError;
use crate::proc_status::{self, tasks, tracer_of};

/// Maximum time for which the process runs between two pieces. Below this limit, the process runs
/// for as long as it was stopped.
pub(super) const LONGEST_REST: Duration = Duration::from_millis(500);
/// Maximum time that one call, or a piece, spends in the kernel.
pub(super) const WORK_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum number of attempts to seize a thread.
const SEIZE_TRIES: u32 = 10;
/// Maximum number of attempts to stop a process, with a pause after each.
const TRIES: u32 = 60;
const REST: Duration = Duration::from_millis(25);
const ALL_SIGNALS: u64 = u64::MAX;

/// A thread at a trap stop or in group-stop, and what the program must find unchanged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    pub(super) tid: i32,
    pub(super) registers: Registers,
    mask: u64,
    pub(super) dispatch: Dispatch,
    /// True while the thread's registers lead to a stub.
    away: bool,
}

/// A process all of whose threads are stopped. Dropping the value lets it go.
#[derive(Debug)]
pub(super) struct Stopped<'a> {
    pub(super) target: &'a Target,
    pub(super) threads: Vec<Thread>,
    /// Agents that have finished, and whose end nobody needs to wait for.
    pub(super) ending: Vec<i32>,
    /// Keeps the priority of the repairing thread raised, because the whole stopped process waits
    /// for that thread.
    _prompt: Prompt,
}

/// Stops a process, and retries if a thread does not stop. Such a thread most likely waits in
/// `vfork` for its child, which will soon execute a program.
///
/// # Errors
/// The errors of [`Target::stop`].
pub(super) fn stop_patiently(target: &Target) -> Result<Stopped<'_>, RepairError> {
    let mut tries = 1;
    loop {
        match target.stop() {
            Err(RepairError::CannotStop { .. } | RepairError::SharedMemory { .. })
                if tries < TRIES =>
            {
                tries += 1;
                target.rest(REST);
            }
            held => return held,
        }
    }
}

impl Target {
    /// Stops every thread, and checks that this is still the process that was opened.
    ///
    /// # Errors
    /// [`RepairError::Forbidden`], [`RepairError::Ended`], [`RepairError::Replaced`],
    /// [`RepairError::CannotStop`], [`RepairError::SharedMemory`]; nothing is stopped then.
    pub(super) fn stop(&self) -> Result<Stopped<'_>, RepairError> {
        let prompt = Prompt::begin();
        let tids = self.stop_all()?;
        let threads = tids.iter().filter_map(|&tid| self.thread(tid)).collect();
        let stopped = Stopped {
            target: self,
            threads,
            ending: Vec::new(),
            _prompt: prompt,
        };
        self.is_same(tids[0])?;
        Ok(stopped)
    }

    /// Returns the state of a stopped thread. `None` if it was killed, or is a worker that has started
    /// since the list of threads was read, which is let go.
    fn thread(&self, tid: i32) -> Option<Thread> {
        let thread = Thread::of(tid)?;
        // A worker has no code to return to.
        if thread.registers.pc() == 0 && proc_status::is_worker(self.pid, tid) {
            self.let_go(&[tid]);
            return None;
        }
        Some(thread)
    }

    /// Seizes and stops threads until the list of threads contains no new thread.
    fn stop_all(&self) -> Result<Vec<i32>, RepairError> {
        let mut threads: Vec<i32> = Vec::new();
        let reaper = Reaper::of(&self.late.borrow());
        loop {
            let mut asked = Vec::new();
            if let Err(error) = self.stop_others(&mut threads, &mut asked, &reaper) {
                let others = asked.iter().filter(|tid| !threads.contains(tid));
                let all: Vec<i32> = threads.iter().chain(others).copied().collect();
                self.let_go(&all);
                return Err(error);
            }
            if threads.is_empty() {
                return Err(RepairError::Ended(self.pid));
            }
            if asked.is_empty() {
                return Ok(threads);
            }
        }
    }

    /// Stops the threads that are not in `threads`, and adds them to `threads`. Every thread that
    /// was seized is also added to `asked`.
    ///
    /// All threads are asked to stop before this function waits for any of them, so they stop in
    /// parallel.
    fn stop_others(
        &self,
        threads: &mut Vec<i32>,
        asked: &mut Vec<i32>,
        reaper: &Reaper,
    ) -> Result<(), RepairError> {
        let mut others = tasks(self.pid)?;
        // A worker of an io_uring runs no code of the program, and waits for a page that is out. A stop
        // would interrupt what it does for the program, and it has no signal mask to set.
        others.retain(|tid| !threads.contains(tid) && !proc_status::is_worker(self.pid, *tid));
        for tid in others {
            if self.ask(tid, reaper)? {
                asked.push(tid);
            }
        }
        for &tid in asked.iter() {
            if self.wait_for(tid, self.stop_timeout.get())? {
                threads.push(tid);
            }
        }
        Ok(())
    }

    /// Detaches threads that were asked to stop. Threads that have not stopped yet, or are running
    /// again, are recorded as late and detached later.
    fn let_go(&self, threads: &[i32]) {
        for &tid in threads {
            let gone = match inject::look(tid) {
                // A thread that was killed is gone only once its tracer has seen its end.
                Some(Wait::Ended) => true,
                // A signal that is about to be delivered must not be lost.
                Some(Wait::Signal(signal)) => ptrace::detach(tid, signal).is_ok(),
                Some(_) => inject::detach(tid).is_ok(),
                // It may be stopping for a signal just now.
                None => false,
            };
            if !gone {
                let _ = inject::interrupt(tid);
                self.late.borrow_mut().push(tid);
            }
        }
    }

    /// Sleeps for `time`, and detaches late threads as soon as they stop.
    pub(super) fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        let late = self.late.take();
        for &tid in &late {
            let left = until.saturating_duration_since(Instant::now());
            // `let_go` below finds out whether the thread has stopped.
            let _ = self.wait_for(tid, left);
        }
        self.let_go(&late);
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }

    /// Seizes one thread and asks it to stop; false if the thread has ended, or works for the kernel
    /// alone.
    fn ask(&self, tid: i32, reaper: &Reaper) -> Result<bool, RepairError> {
        let is_late = self.late.borrow().contains(&tid);
        if is_late {
            self.late.borrow_mut().retain(|&late| late != tid);
            return Ok(true);
        }
        // Another tracer may be gone by the time that the last attempt has failed because of it.
        let mut tracer = 0;
        for _ in 0..SEIZE_TRIES {
            let seized = reaper.seize(tid, || inject::seize(tid, self.seccomp));
            let Err(error) = seized else {
                return Ok(inject::interrupt(tid).is_ok());
            };
            tracer = tracer_of(tid).unwrap_or(tracer);
            let is_gone =
                error.raw_os_error() == Some(libc::ESRCH) || task_status::has_ended(self.pid, tid);
            // A worker may have been started since.
            if is_gone || proc_status::is_worker(self.pid, tid) {
                return Ok(false);
            }
            // The thread or its tracer is about to exit.
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.seccomp == Seccomp::Suspend && inject::seize(tid, Seccomp::None).is_ok() {
            // The thread is seized now, but continues when this process ends, which is soon.
            return Err(RepairError::Seccomp(self.pid));
        }
        Err(proc_status::ended_or(self.pid, self.not_traceable(tracer)))
    }

    /// Waits until a thread that was asked to stop has stopped; false if it has ended.
    ///
    /// # Errors
    /// [`RepairError::CannotStop`] if it has not stopped within `stop_timeout`.
    pub(super) fn wait_for(&self, tid: i32, stop_timeout: Duration) -> Result<bool, RepairError> {
        let until = Instant::now() + stop_timeout;
        loop {
            let signal = match inject::wait(tid, until.saturating_duration_since(Instant::now())) {
                // Its handler must find the registers with which the fault happened. Without a new
                // request, the next stop is that of the signal's delivery.
                Some(Wait::Trap) if inject::has_fault_pending(tid) => {
                    let _ = ptrace::resume(tid, Resume::Continue, 0);
                    continue;
                }
                Some(Wait::Trap | Wait::GroupStop) => return Ok(true),
                Some(Wait::Ended) => return Ok(false),
                // A signal arrived first, which is delivered.
                Some(Wait::Signal(signal)) => signal,
                Some(Wait::Syscall | Wait::Clone | Wait::Ending) => 0,
                None => return Err(RepairError::CannotStop { pid: self.pid, tid }),
            };
            // Every stop takes a request with it that was pending. A request to a thread at a stop
            // remains until the thread goes on. Both fail only if the thread was killed.
            let _ = inject::interrupt(tid);
            let _ = ptrace::resume(tid, Resume::Continue, signal);
        }
    }

    /// Runs a stopped thread until a stop that is wanted. A signal that arrives first is delivered.
    /// If it stops the process, this thread is taken out of the group-stop again.
    ///
    /// # Errors
    /// [`RepairError::Ended`]; [`RepairError::CannotStop`] if the thread stays in the kernel.
    pub(super) fn follow(
        &self,
        tid: i32,
        how: Resume,
        wanted: impl Fn(Wait) -> bool,
    ) -> Result<Wait, RepairError> {
        let ended = |_| self.gone();
        let mut signal = 0;
        loop {
            ptrace::resume(tid, how, signal).map_err(ended)?;
            signal = match inject::wait(tid, WORK_TIMEOUT) {
                Some(stop) if wanted(stop) => return Ok(stop),
                Some(Wait::Ended) => return Err(self.gone()),
                Some(Wait::Signal(signal)) => signal,
                Some(_) => 0,
                None => return Err(RepairError::CannotStop { pid: self.pid, tid }),
            };
        }
    }
}

impl Thread {
    /// Returns the state of a stopped thread; `None` if it has been killed.
    pub(super) fn of(tid: i32) -> Option<Thread> {
        Some(Thread {
            tid,
            registers: inject::registers(tid).ok()?,
            mask: inject::mask(tid).ok()?,
            dispatch: inject::dispatch(tid),
            away: false,
        })
    }

    /// Returns what a stub must restore. A restartable sequence is aborted, as by a preemption.
    pub(super) fn restored(&self, target: &Target) -> Restored {
        let registers = rseq::aborted(self.tid, &target.memory, &self.registers);
        let mut value = [0];
        let at = Some(self.dispatch.selector).filter(|_| self.dispatch.mode != 0);
        let read = |at: &u64| target.memory.read_exact_at(&mut value, *at).is_ok();
        let at = at.filter(read);
        Restored {
            registers: registers.unwrap_or(self.registers),
            mask: self.mask,
            selector: at.map(|at| (at, value[0])),
        }
    }

    /// True if the thread can run a stub: it is in 64-bit code, and the kernel accepts its calls, or
    /// accepts them if a byte says so (Syscall User Dispatch).
    pub(super) fn can_run_stub(&self) -> bool {
        let calls_kernel = self.dispatch.mode == 0 || self.dispatch.selector != 0;
        self.registers.is_64_bit() && calls_kernel
    }

    /// Directs the thread to the stub at `place`, which restores it by itself. Setting the registers
    /// is the step that counts: if this process is killed before, nothing has happened, and after
    /// it the stub does the rest.
    ///
    /// # Errors
    /// `ESRCH` if the thread was killed.
    pub(super) fn send_to(&mut self, place: u64) -> std::io::Result<()> {
        self.away = true;
        inject::set_registers(self.tid, &self.registers.at(place))?;
        inject::set_mask(self.tid, ALL_SIGNALS)
    }

    /// Gives the thread, at a trap stop, its own state again, of which `registers` may have changed.
    ///
    /// # Errors
    /// `ESRCH` if the thread was killed.
    pub(super) fn bring_back(&mut self) -> std::io::Result<()> {
        inject::set_mask(self.tid, self.mask)?;
        inject::set_registers(self.tid, &self.registers)?;
        self.away = false;
        Ok(())
    }

    /// True while the thread's registers lead to a stub.
    pub(super) fn is_away(&self) -> bool {
        self.away
    }

    /// Lets the thread go. A call that only the stop has interrupted is repeated.
    fn let_go(&mut self) {
        let repeats = self.registers.make_again(Waited::Perhaps);
        if self.away || repeats {
            // This fails only if the thread was killed.
            let _ = self.bring_back();
        }
        if ptrace::detach(self.tid, 0).is_err() {
            // A thread that was killed is gone only once its tracer has seen its end.
            let _ = inject::look(self.tid);
        }
    }
}

impl Stopped<'_> {
    /// Lets the process go.
    pub(super) fn let_go(&mut self) {
        for mut thread in self.threads.drain(..) {
            thread.let_go();
        }
    }

    /// Lets the process go, and leaves the threads in their stubs.
    pub(super) fn leave_parked(&mut self) {
        self.target.has_parked.set(true);
        for thread in self.threads.drain(..) {
            let _ = ptrace::detach(thread.tid, 0);
        }
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.let_go();
        for &tid in &self.ending {
            while inject::wait(tid, WORK_TIMEOUT).is_some_and(|stop| stop != Wait::Ended) {
                let _ = ptrace::resume(tid, Resume::Continue, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use vmarea_linux_sys::inject::{self, Seccomp, Wait};
    use vmarea_linux_sys::ptrace::{self, Resume};

    use super::super::target::Target;
    use super::super::test_process::{Heap, may_repair};
    use super::{proc_status, tracer_of};

    const LONG: Duration = Duration::from_secs(10);

    /// A handler that changes the registers of a fault, as Wine's of SIGSYS does, must not find those
    /// of a stub.
    #[test]
    fn a_pending_fault_is_delivered_before_the_stop() {
        if !may_repair() {
            return;
        }
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "trap '' SYS; echo ready; read line"]);
        shell
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped());
        let mut child = shell.spawn().expect("sh");
        let mut ready = [0];
        let out = child.stdout.as_mut().expect("a pipe");
        out.read_exact(&mut ready).expect("a line");
        let tid = child.id() as i32;
        let target = Target::open(tid).expect("a process");
        inject::seize(tid, Seccomp::None).expect("it can be traced");
        inject::interrupt(tid).expect("it lives");
        assert_eq!(inject::wait(tid, LONG), Some(Wait::Trap));
        assert!(!inject::has_fault_pending(tid));
        // A traced thread gets also signals that it ignores.
        inject::signal_thread(tid, tid, libc::SIGSYS).expect("it lives");
        assert!(inject::has_fault_pending(tid));

        let stops = target.wait_for(tid, LONG);

        assert!(matches!(stops, Ok(true)), "{stops:?}");
        assert!(!inject::has_fault_pending(tid));
        child.kill().and_then(|()| child.wait()).expect("it lives");
    }

    /// The exit from a call takes the request with it, as a signal does that is just being taken.
    #[test]
    fn another_stop_does_not_take_the_request_with_it() {
        if !may_repair() {
            return;
        }
        let heap = Heap::start();
        let target = Target::open(heap.pid()).expect("a process");
        let tid = heap.pid();
        inject::seize(tid, Seccomp::None).expect("it can be traced");
        inject::interrupt(tid).expect("it lives");
        assert_eq!(inject::wait(tid, LONG), Some(Wait::Trap));
        inject::report_calls(tid, Seccomp::None, false).expect("it is stopped");
        // Into the call in which it waits for a line.
        ptrace::resume(tid, Resume::UntilSyscall, 0).expect("it is stopped");
        assert_eq!(inject::wait(tid, LONG), Some(Wait::Syscall));
        ptrace::resume(tid, Resume::UntilSyscall, 0).expect("it is stopped");

        inject::interrupt(tid).expect("it lives");
        let stops = target.wait_for(tid, LONG);

        assert!(matches!(stops, Ok(true)), "{stops:?}");
        assert_eq!(inject::look(tid), Some(Wait::Trap));
    }

    /// The thread of this ring works for the kernel only. Its I/O must not be interrupted, and the kernel
    /// may refuse to set its signal mask.
    #[test]
    fn a_worker_of_an_io_uring_runs_on() {
        const RING: &str = "
import ctypes, struct, sys
SETUP, POLLING_THREAD = 425, 2
parameters = ctypes.create_string_buffer(struct.pack('<120x'), 120)
struct.pack_into('<I', parameters, 8, POLLING_THREAD)
ring = ctypes.CDLL(None).syscall(SETUP, 1, parameters)
print(ring >= 0, flush=True)
sys.stdin.read()
";
        if !may_repair() {
            return;
        }
        let mut python = std::process::Command::new("python3");
        python.args(["-c", RING]);
        python
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped());
        let mut child = python.spawn().expect("python3");
        let mut said = [0; 4];
        let out = child.stdout.as_mut().expect("a pipe");
        out.read_exact(&mut said).expect("a line");
        let pid = child.id().cast_signed();
        if said == *b"True" {
            let threads = proc_status::tasks(pid).expect("it lives");
            let worker = threads.iter().find(|&&tid| tid != pid);
            let worker = *worker.expect("a worker");
            let target = Target::open(pid).expect("a process");

            let stopped = target.stop_all().expect("it can be stopped");

            assert_eq!(stopped, [pid]);
            assert_eq!(tracer_of(worker), None);
        } else {
            eprintln!("skipped: no io_uring here");
        }
        child.kill().and_then(|()| child.wait()).expect("it lives");
    }
}
