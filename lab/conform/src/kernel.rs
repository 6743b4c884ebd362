//! The kernel side of the comparison: oracle processes execute the steps.

use super::arena::{self, Files};
use super::fill;
use super::model::places;
use super::op::{Call, Op, Places, Step, Work, file_argument, pointer_argument, segment_argument};
use super::outcome::Outcome;
use super::state::{SpaceState, VmaState};
use std::time::Duration;
use vmarea::types::{PAGE_MASK, PAGE_SIZE, VmFlags};
use vmarea_oracle::{Access, Oracle, OracleError, Series};
use vmarea_process::view::{KernelView, View, ViewError};
use vmarea_trace::sysno;

const MADV_PAGEOUT: u64 = 21;
const MADV_COLLAPSE: u64 = 25;

/// Why the kernel side failed.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The oracle failed.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// The address space of an oracle process could not be viewed.
    #[error(transparent)]
    View(#[from] ViewError),
}

/// Number of the system call `close`, which no sequence contains.
const CLOSE: i64 = 3;
const PIDFD_OPEN: i64 = 434;
/// Pseudo file descriptor that refers to the calling process.
const PIDFD_SELF: u64 = -10001_i64 as u64;

/// Returns true if the running kernel supports [`PIDFD_SELF`] (6.14).
fn knows_self() -> bool {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy();
    vmarea::policy::release::version(&release).is_some_and(|version| version >= (6, 14))
}

/// Group of related processes on the running kernel.
#[derive(Debug)]
pub struct Kernel<'a> {
    oracle: Oracle,
    eye: &'a KernelView,
    files: &'a Files,
    view: View,
    places: Places,
    own: Own,
    max_map_count: u64,
    /// True if the kernel supports [`PIDFD_SELF`].
    names_itself: bool,
}

/// Userfaultfd and segments that process 0 creates before the first step; children inherit them.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    userfaultfd: Option<u64>,
    segments: [Option<u64>; arena::SEGMENTS.len()],
}

impl<'a> Kernel<'a> {
    /// Starts process 0.
    ///
    /// # Errors
    /// If no process can be created.
    pub fn start(eye: &'a KernelView, files: &'a Files) -> Result<Kernel<'a>, KernelError> {
        let mut kernel = Kernel {
            oracle: Oracle::start()?,
            eye,
            files,
            view: View::default(),
            places: Places::default(),
            own: Own::default(),
            names_itself: knows_self(),
            max_map_count: max_map_count(),
        };
        kernel.own = Own {
            userfaultfd: kernel.open_userfaultfd()?,
            segments: kernel.make_segments()?,
        };
        kernel.places = places(kernel.view(0)?);
        Ok(kernel)
    }

    /// Executes a step.
    ///
    /// # Errors
    /// If an oracle process ends or hangs.
    pub fn apply(&mut self, step: &Step) -> Result<Outcome, KernelError> {
        let process = usize::from(step.process);
        if self.oracle.pid(process).is_none() {
            return Ok(Outcome::Impossible);
        }
        Ok(match &step.op {
            Op::Call(call) => self.call(process, call)?,
            Op::Read { addr } => access(self.oracle.read(process, self.places.placed(*addr))?),
            Op::Write { addr, value } => access(self.oracle.write(
                process,
                self.places.placed(*addr),
                *value,
            )?),
            Op::Fork { child } => {
                let child = usize::from(*child);
                if self.oracle.pid(child).is_some() || child >= vmarea_oracle::PROCESSES {
                    return Ok(Outcome::Impossible);
                }
                self.oracle.fork(process, child)?.map(|()| 0).into()
            }
            Op::Exit => {
                self.oracle.exit(process)?;
                Outcome::Value(0)
            }
            Op::Fill { leave } => self.fill(process, *leave)?,
            Op::Background(Work::SwapOut(addr)) => {
                let page = self.places.placed(*addr) & PAGE_MASK;
                let args = [page, PAGE_SIZE, MADV_PAGEOUT, 0, 0, 0];
                // Linux may decline, and the page then remains in memory.
                let _ = self.oracle.call(process, sysno::MADVISE.into(), args)?;
                Outcome::Value(0)
            }
            Op::Background(Work::Migrate(_) | Work::MergeEqual) => Outcome::Value(0),
        })
    }

    /// Returns true if the process exists.
    pub fn is_there(&self, process: usize) -> bool {
        self.oracle.pid(process).is_some()
    }

    fn call(&mut self, process: usize, call: &Call) -> Result<Outcome, KernelError> {
        let mut args = call.placed(self.places);
        if let Some(at) = file_argument(call.nr) {
            args[at] = match (self.files.descriptor(args[at]), self.own.userfaultfd) {
                (Some(descriptor), _) => descriptor as u64,
                (None, Some(userfaultfd)) if args[at] == arena::USERFAULTFD => userfaultfd,
                (None, _) => args[at],
            };
        }
        if let Some(at) = segment_argument(call.nr) {
            let segment = self.own.segments.get(args[at] as usize);
            args[at] = segment.copied().flatten().unwrap_or(u64::MAX);
        }
        if let Some(at) = pointer_argument(call.nr)
            && !call.data.is_empty()
        {
            args[at] = self
                .oracle
                .scratch(process, &call.placed_data(self.places))?;
            if call.nr == sysno::CAPSET {
                args[1] = args[0] + 8;
            }
        }
        if call.nr == sysno::MADVISE && args[2] == MADV_COLLAPSE {
            return self.collapse(process, args);
        }
        if call.nr == sysno::PROCESS_MADVISE && args[0] == PIDFD_SELF {
            return self.on_itself(process, args);
        }
        Ok(self.oracle.call(process, call.nr.into(), args)?.into())
    }

    /// Calls `madvise(MADV_COLLAPSE)`; retries if Linux returns EAGAIN because a page is busy.
    fn collapse(&mut self, process: usize, args: [u64; 6]) -> Result<Outcome, KernelError> {
        const EAGAIN: i32 = 11;
        const TRIES: u32 = 5;
        let mut outcome = Outcome::Errno(EAGAIN);
        for _ in 0..TRIES {
            outcome = self
                .oracle
                .call(process, sysno::MADVISE.into(), args)?
                .into();
            if outcome != Outcome::Errno(EAGAIN) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(outcome)
    }

    /// Opens a userfaultfd that raises SIGBUS, with the mode RWP if the kernel has it, if this process is
    /// permitted to.
    fn open_userfaultfd(&mut self) -> Result<Option<u64>, KernelError> {
        const FLAGS: u64 = 0o2000000 | 0o4000;
        const API: u64 = 0xc018_aa3f;
        const SIGBUS: u64 = 1 << 7;
        const RWP: u64 = 1 << 17;
        let args = [FLAGS, 0, 0, 0, 0, 0];
        let Ok(fd) = self.oracle.call(0, sysno::USERFAULTFD.into(), args)? else {
            return Ok(None);
        };
        for features in [SIGBUS | RWP, SIGBUS] {
            let asked = self.oracle.scratch(0, &[0xaa, features, 0])?;
            let args = [fd, API, asked, 0, 0, 0];
            if self.oracle.call(0, sysno::IOCTL.into(), args)?.is_ok() {
                return Ok(Some(fd));
            }
        }
        Ok(None)
    }

    /// Creates the shared memory segments, which are destroyed when the last process exits.
    fn make_segments(&mut self) -> Result<[Option<u64>; arena::SEGMENTS.len()], KernelError> {
        const PRIVATE: u64 = 0;
        const ALL_RIGHTS: u64 = 0o700;
        const RMID: u64 = 0;
        let mut segments = [None; arena::SEGMENTS.len()];
        let mut at = arena::KEEP;
        for (segment, len) in segments.iter_mut().zip(arena::SEGMENTS) {
            let mut call = |nr: u32, args: [u64; 3]| {
                let [a, b, c] = args;
                self.oracle.call(0, nr.into(), [a, b, c, 0, 0, 0])
            };
            let Ok(id) = call(sysno::SHMGET, [PRIVATE, len, ALL_RIGHTS])? else {
                break;
            };
            let attached = call(sysno::SHMAT, [id, at, 0])?;
            let _ = call(sysno::SHMCTL, [id, RMID, 0])?;
            *segment = attached.ok().map(|_| id);
            at += 16 * PAGE_SIZE;
        }
        Ok(segments)
    }

    /// Returns whether the userfaultfd exists, and whether all segments exist.
    pub fn has(&self) -> (bool, bool) {
        let segments = self.own.segments.iter().all(Option::is_some);
        (self.own.userfaultfd.is_some(), segments)
    }

    /// Maps a large area and makes every second page readable; see the module `fill`.
    fn fill(&mut self, process: usize, leave: u64) -> Result<Outcome, KernelError> {
        let limit = self.max_map_count;
        let count = self.view(process)?.mm.map_count.unwrap_or(limit);
        let Some(pages) = fill::missing(count, limit, leave) else {
            return Ok(Outcome::Impossible);
        };
        let [map, protect] = fill::calls(pages);
        if let Err(errno) = self.oracle.call(process, map.nr.into(), map.args)? {
            return Ok(Outcome::Errno(errno));
        }
        let series = Series {
            first: protect.args,
            step: [2 * PAGE_SIZE, 0, 0, 0, 0, 0],
            times: pages / 2,
        };
        let went = self.oracle.calls(process, protect.nr.into(), &series)?;
        Ok(went
            .stopped
            .map_or(Outcome::Value(0), |error| Outcome::Errno(-error as i32)))
    }

    /// Calls `process_madvise` on the calling process.
    ///
    /// Kernels before 6.14 do not support [`PIDFD_SELF`]. On these kernels the process opens a
    /// pidfd for itself and closes it after the call.
    fn on_itself(&mut self, process: usize, mut args: [u64; 6]) -> Result<Outcome, KernelError> {
        let advise = sysno::PROCESS_MADVISE.into();
        if self.names_itself {
            return Ok(self.oracle.call(process, advise, args)?.into());
        }
        let pid = self
            .oracle
            .pid(process)
            .ok_or(OracleError::NoProcess(process))?;
        let open = [pid as u64, 0, 0, 0, 0, 0];
        let Ok(descriptor) = self.oracle.call(process, PIDFD_OPEN, open)? else {
            return Ok(Outcome::Impossible);
        };
        args[0] = descriptor;
        let result = self.oracle.call(process, advise, args)?;
        let close = [descriptor, 0, 0, 0, 0, 0];
        // Closing a descriptor that was just opened cannot fail.
        let _ = self.oracle.call(process, CLOSE, close)?;
        Ok(result.into())
    }

    /// Updates and returns the view of a process's address space.
    ///
    /// # Errors
    /// If the kernel does not provide the view.
    pub fn view(&mut self, process: usize) -> Result<&View, KernelError> {
        let pid = self
            .oracle
            .pid(process)
            .ok_or(OracleError::NoProcess(process))?;
        self.eye.read(pid, &mut self.view)?;
        Ok(&self.view)
    }

    /// Returns the state of a process's address space.
    ///
    /// # Errors
    /// If the kernel does not provide the view.
    pub fn state(&mut self, process: usize) -> Result<SpaceState, KernelError> {
        let view = self.view(process)?;
        let vmas = view.vmas.iter().map(|v| VmaState {
            start: v.start,
            end: v.end,
            flags: named(v.flags) & !VmFlags::SOFTDIRTY.bits(),
            pgoff: v.pgoff,
            anon_pgoff: v.anon_pgoff,
            anon_vma: v.anon_vma,
            root: v.root,
            chain_singular: v.chain_singular,
            num_children: v.num_children.filter(|_| v.anon_vma != 0),
            num_active_vmas: v.num_active_vmas.filter(|_| v.anon_vma != 0),
            anonymous: v.ops == 0,
            file: v.file,
            policy: v.policy.unwrap_or(0) != 0,
            uffd: v.uffd.unwrap_or(0),
        });
        Ok(SpaceState {
            vmas: vmas.collect(),
            counters: [view.mm.total_vm, view.mm.locked_vm, view.mm.map_count],
            def_flags: view.mm.def_flags,
            brk: [view.mm.start_brk, view.mm.brk],
        })
    }

    /// Reads pages from a process's memory; returns as many bytes as could be read.
    ///
    /// The pages must be present and readable.
    ///
    /// # Errors
    /// If nothing can be read.
    pub fn pages(&self, process: usize, pages: &[u64]) -> Result<Vec<u8>, KernelError> {
        let mut bytes = vec![0; pages.len() * PAGE_SIZE as usize];
        let copied = self
            .oracle
            .memory(process, pages, PAGE_SIZE as usize, &mut bytes)?;
        bytes.truncate(copied);
        Ok(bytes)
    }
}

fn max_map_count() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Converts VMA flags to the current bit numbers; `VM_SEALED` was initially the highest bit.
fn named(flags: u64) -> u64 {
    const SEALED_AT_FIRST: u64 = 1 << 63;
    match flags & SEALED_AT_FIRST {
        0 => flags,
        _ => flags & !SEALED_AT_FIRST | VmFlags::SEALED.bits(),
    }
}

fn access(access: Access) -> Outcome {
    match access {
        Access::Done(value) => Outcome::Value(value),
        Access::Signal { signal, code } => Outcome::Signal(signal, code),
    }
}
