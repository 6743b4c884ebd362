//! Times of calls that change an address space, in the core and on the kernel.
//!
//! Each series repeats one call on VMAs whose pages were never touched: the calls map and unmap
//! VMAs one by one, split them off one VMA with `mprotect` and merge them again, or move them with
//! `mremap`. Further tests fork an address space with many VMAs, whose pages were never touched or
//! each of which has one page. The kernel's times include a trap into the kernel; the core's times
//! do not, and the core maintains no hardware page table here. The comparison therefore shows what
//! such calls cost a program on the kernel and what they cost in the core, but not which code is
//! faster.

use super::Ratio;
use super::kernel::{KernelError, all, reserve};
use super::ratio::median;
use serde::Serialize;
use std::time::Instant;
use vmarea::fault::{Access, Faulted};
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::Syscall;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::registers;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::{Errno, MmId};
use vmarea::{Space, System};
use vmarea_oracle::{Oracle, Series};
use vmarea_replay::standard;

const PAGE: u64 = 4096;
/// Distance between the starts of adjacent mappings.
const STRIDE: u64 = 2 * PAGE;
/// Start address of the core's mappings.
const BASE: u64 = 0x1000_0000_0000;
const READ: u64 = 1;
const READ_WRITE: u64 = 3;
/// `MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED`.
const PRIVATE_FIXED: u64 = 0x32;
/// `MREMAP_MAYMOVE | MREMAP_FIXED`.
const MOVE_THERE: u64 = 3;
const MMAP: i64 = 9;
const MPROTECT: i64 = 10;
const MUNMAP: i64 = 11;
const MREMAP: i64 = 25;

/// Number of calls in a series.
const CALLS: u64 = 1_000;
/// The forked address spaces: the number of VMAs, and whether each VMA has a page.
const FORKED: [(u64, Pages); 3] = [
    (1_000, Pages::Untouched),
    (MANY, Pages::Untouched),
    (MANY, Pages::OneEach),
];
/// Number of VMAs in the largest address space; Linux allows 65,530 by default.
const MANY: u64 = 60_000;

/// The pages of the VMAs in a forked address space.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    Untouched,
    OneEach,
}

/// Reason why the measurement of calls produced no results.
#[derive(Debug, thiserror::Error)]
#[error("the core refused a call of the benchmark: {0}")]
pub struct CallsError(Errno);

/// Results for one kind of call.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// Name of the call and its effect, for example `mprotect that splits`.
    pub what: String,
    /// Median time of a call in the core, in nanoseconds.
    pub core_ns: f64,
    /// Median time of a call on the kernel, in nanoseconds.
    pub kernel_ns: Option<f64>,
    /// Time in the core relative to the time on the kernel in the same round.
    pub ratio: Option<Ratio>,
}

/// Results for all kinds of calls.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// One row per kind of call.
    pub rows: Vec<Row>,
    /// Reason why the kernel's times are missing, if they are.
    pub without_kernel: Option<String>,
}

/// Executor of the calls; its address space is initially empty above `base`.
trait Doer {
    type Error;
    /// Makes the calls of a series and returns their duration in seconds.
    fn calls(
        &mut self,
        what: &'static str,
        number: i64,
        series: &Series,
    ) -> Result<f64, Self::Error>;
    /// Writes to one page of each VMA.
    fn touch(&mut self, series: &Series) -> Result<(), Self::Error>;
    /// Forks, destroys the child, and returns the duration of the fork in seconds.
    fn fork(&mut self) -> Result<f64, Self::Error>;
    /// Returns the lowest address at which the measured calls may map memory.
    fn base(&self) -> u64;
}

/// Executor that makes the calls in the core.
struct Core {
    space: Space,
    mm: MmId,
}

impl Core {
    fn new() -> Result<Self, Errno> {
        let system = System {
            max_map_count: u32::MAX,
            ..System::default()
        };
        let space = standard::space(Policy::LINUX, system);
        let mm = standard::mm_create(&space, Layout::default(), Limits::default())?;
        Ok(Core { space, mm })
    }

    fn call(&self, number: i64, args: [u64; 6]) -> Result<(), Errno> {
        let [addr, len, prot, flags, ..] = args;
        let call = match number {
            MMAP => Syscall::Mmap(MmapRequest {
                addr,
                len,
                prot: Prot::from_bits_retain(prot as u32),
                flags: MapFlags::from_bits_retain(flags as u32),
                ..MmapRequest::default()
            }),
            _ => registers::syscall(number as u32, args).ok_or(Errno::ENOSYS)?,
        };
        standard::syscall(&self.space, self.mm, &call).map(|_| ())
    }
}

impl Doer for Core {
    type Error = CallsError;

    fn calls(&mut self, _: &'static str, number: i64, series: &Series) -> Result<f64, CallsError> {
        let mut args = series.first;
        let begun = Instant::now();
        for _ in 0..series.times {
            self.call(number, args).map_err(CallsError)?;
            for (arg, step) in args.iter_mut().zip(series.step) {
                *arg = arg.wrapping_add(step);
            }
        }
        Ok(begun.elapsed().as_secs_f64())
    }

    fn touch(&mut self, series: &Series) -> Result<(), CallsError> {
        for n in 0..series.times {
            let addr = series.first[0] + n * series.step[0];
            match self.space.fault(self.mm, addr, Access::Write) {
                Ok(Faulted::Done) => {}
                Ok(_) => return Err(CallsError(Errno::EFAULT)),
                Err(errno) => return Err(CallsError(errno)),
            }
        }
        Ok(())
    }

    fn fork(&mut self) -> Result<f64, CallsError> {
        let begun = Instant::now();
        let child = standard::fork(&self.space, self.mm).map_err(CallsError)?;
        let seconds = begun.elapsed().as_secs_f64();
        standard::mm_exit(&self.space, child).map_err(CallsError)?;
        Ok(seconds)
    }

    fn base(&self) -> u64 {
        BASE
    }
}

/// Executor that makes the calls on the running kernel, in a child process.
struct Kernel {
    oracle: Oracle,
    base: u64,
}

impl Kernel {
    fn new() -> Result<Self, KernelError> {
        let mut oracle = Oracle::start()?;
        // Large enough for the fork with the most VMAs.
        let base = reserve(&mut oracle, 2 * MANY * STRIDE)?;
        Ok(Kernel { oracle, base })
    }
}

impl Doer for Kernel {
    type Error = KernelError;

    fn calls(
        &mut self,
        what: &'static str,
        number: i64,
        series: &Series,
    ) -> Result<f64, KernelError> {
        let went = self.oracle.calls(0, number, series)?;
        Ok(all(what, series, went)?.time.as_secs_f64())
    }

    fn touch(&mut self, series: &Series) -> Result<(), KernelError> {
        let went = self.oracle.writes(0, series)?;
        all("a write", series, went).map(|_| ())
    }

    fn fork(&mut self) -> Result<f64, KernelError> {
        let begun = Instant::now();
        let forked = self.oracle.fork(0, 1)?;
        let seconds = begun.elapsed().as_secs_f64();
        forked.map_err(|errno| KernelError::Refused {
            what: "fork",
            times: 0,
            how: i64::from(-errno),
        })?;
        self.oracle.exit(1)?;
        Ok(seconds)
    }

    fn base(&self) -> u64 {
        self.base
    }
}

/// Returns a series of `mmap` calls that map single pages, with a gap after each page.
fn map(base: u64, times: u64) -> Series {
    Series {
        first: [base, PAGE, READ_WRITE, PRIVATE_FIXED, u64::MAX, 0],
        step: [STRIDE, 0, 0, 0, 0, 0],
        times,
    }
}

fn unmap(base: u64, times: u64) -> Series {
    Series {
        first: [base, PAGE, 0, 0, 0, 0],
        step: [STRIDE, 0, 0, 0, 0, 0],
        times,
    }
}

/// Returns a series of writes, one to each of the pages that [`map`] maps.
fn touch(base: u64, times: u64) -> Series {
    Series {
        first: [base, 1, 0, 0, 0, 0],
        step: [STRIDE, 0, 0, 0, 0, 0],
        times,
    }
}

/// Runs one round; returns the nanoseconds per call for each of the [`names`].
fn round<D: Doer>(doer: &mut D) -> Result<Vec<f64>, D::Error> {
    let base = doer.base();
    let mut each = Vec::new();
    let mut add = |seconds: f64, times: u64| each.push(seconds * 1e9 / times as f64);

    let mapped = doer.calls("mmap", MMAP, &map(base, CALLS))?;
    let unmapped = doer.calls("munmap", MUNMAP, &unmap(base, CALLS))?;
    add(mapped + unmapped, CALLS);

    let whole = Series {
        first: [
            base,
            CALLS * STRIDE + PAGE,
            READ_WRITE,
            PRIVATE_FIXED,
            u64::MAX,
            0,
        ],
        times: 1,
        ..Series::default()
    };
    doer.calls("mmap", MMAP, &whole)?;
    let protect = |prot| Series {
        first: [base + PAGE, PAGE, prot, 0, 0, 0],
        step: [STRIDE, 0, 0, 0, 0, 0],
        times: CALLS,
    };
    let split = doer.calls("mprotect", MPROTECT, &protect(READ))?;
    let merged = doer.calls("mprotect", MPROTECT, &protect(READ_WRITE))?;
    add(split, CALLS);
    add(merged, CALLS);
    let gone = Series {
        first: [base, CALLS * STRIDE + PAGE, 0, 0, 0, 0],
        times: 1,
        ..Series::default()
    };
    doer.calls("munmap", MUNMAP, &gone)?;

    doer.calls("mmap", MMAP, &map(base, CALLS))?;
    let there = base + CALLS * STRIDE;
    let moves = Series {
        first: [base, PAGE, PAGE, MOVE_THERE, there, 0],
        step: [STRIDE, 0, 0, 0, STRIDE, 0],
        times: CALLS,
    };
    add(doer.calls("mremap", MREMAP, &moves)?, CALLS);
    doer.calls("munmap", MUNMAP, &unmap(there, CALLS))?;

    for (vmas, pages) in FORKED {
        doer.calls("mmap", MMAP, &map(base, vmas))?;
        if pages == Pages::OneEach {
            doer.touch(&touch(base, vmas))?;
        }
        add(doer.fork()?, 1);
        doer.calls("munmap", MUNMAP, &unmap(base, vmas))?;
    }
    Ok(each)
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = [
        "mmap and munmap",
        "mprotect that splits",
        "mprotect that merges",
        "mremap that moves",
    ]
    .map(str::to_owned)
    .into();
    names.extend(FORKED.map(|(vmas, pages)| match pages {
        Pages::Untouched => format!("fork of {vmas} VMAs"),
        Pages::OneEach => format!("fork of {vmas} VMAs with a page each"),
    }));
    names
}

/// Measures the core and the kernel in turn, `rounds` times.
///
/// # Errors
/// If the core refuses a call, which it should not. If the kernel refuses a call, the kernel's
/// times are missing and the report contains the reason.
pub fn run(rounds: usize) -> Result<Report, CallsError> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut without_kernel = None;
    for _ in 0..rounds.max(1) {
        ours.push(round(&mut Core::new().map_err(CallsError)?)?);
        if without_kernel.is_none() {
            match Kernel::new().and_then(|mut kernel| round(&mut kernel)) {
                Ok(each) => theirs.push(each),
                Err(error) => without_kernel = Some(error.to_string()),
            }
        }
    }
    let column = |rounds: &[Vec<f64>], at: usize| -> Vec<f64> {
        rounds.iter().map(|each| each[at]).collect()
    };
    let middle = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        median(&times)
    };
    let row = |(at, what): (usize, String)| {
        let (ours, theirs) = (column(&ours, at), column(&theirs, at));
        let complete = without_kernel.is_none();
        Row {
            what,
            ratio: Ratio::of_pairs(&ours, &theirs).filter(|_| complete),
            core_ns: middle(ours),
            kernel_ns: complete.then(|| middle(theirs)),
        }
    };
    Ok(Report {
        rows: names().into_iter().enumerate().map(row).collect(),
        without_kernel,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_and_the_kernel_do_the_same_work() {
        let mut core = Core::new().unwrap();
        assert_eq!(round(&mut core).unwrap().len(), names().len());
        let left = core.space.mmap_read_lock(core.mm).unwrap().vmas().count();
        assert_eq!(left, 0);
        let mut kernel = Kernel::new().unwrap();
        assert_eq!(round(&mut kernel).unwrap().len(), names().len());
    }

    #[test]
    fn each_forked_vma_has_a_page() {
        let mut core = Core::new().unwrap();
        core.calls("mmap", MMAP, &map(BASE, 10)).unwrap();
        core.touch(&touch(BASE, 10)).unwrap();
        assert_eq!(core.space.frames_in_use(), 10);
        let child = core.space.fork(core.mm).unwrap();
        let shared = core.space.mmap_read_lock(child).unwrap();
        let pages = shared.vmas().filter(|vma| {
            let page = shared.pages().get(vma.range.start);
            page.frame().is_some()
        });
        assert_eq!(pages.count(), 10);
    }

    #[test]
    fn the_report_has_a_row_for_each_fork() {
        let forks: Vec<String> = names().into_iter().filter(|n| n.contains("fork")).collect();
        let row = "fork of 60000 VMAs";
        assert_eq!(forks[1..], [row.into(), format!("{row} with a page each")]);
    }
}
