//! The spacing speed test of the thesis (section 4.3.2, tables 4.2 and 4.3).
//!
//! Mappings with gaps between them are moved next to each other; if the policy permits, they merge
//! into one VMA. Only the moves are measured. The mappings share one anon_vma if they were created
//! by splitting one mapping whose pages had been faulted in; otherwise each mapping has its own
//! anon_vma.
//!
//! # Picture
//! ```text
//! AA..BB..CC..DD..   mremap of each but the first   AABBCCDD........
//! ```

mod on_kernel;

use super::ratio::{Ratio, median};
use serde::Serialize;
use std::time::{Duration, Instant};
use thiserror::Error;
use vmarea::fault::Access;
use vmarea::mm::{Layout, Limits, Stats};
use vmarea::policy::Policy;
use vmarea::syscall::Syscall;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::{Errno, MmId};
use vmarea::vma::merge::{CallKind, MergeOutcome};
use vmarea::{Space, System};
use vmarea_replay::standard;

const PAGE: u64 = 4096;
/// Start address of the core's mappings.
const BASE: u64 = 0x1000_0000_0000;
/// `PROT_READ | PROT_WRITE`.
const READ_WRITE: Prot = Prot::READ.union(Prot::WRITE);
/// `MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED`.
const PRIVATE_FIXED: MapFlags = MapFlags::PRIVATE
    .union(MapFlags::ANONYMOUS)
    .union(MapFlags::FIXED);
/// Maximum total number of pages at one point of [`Setup::curve`]; can reduce the number of
/// mappings.
const CURVE_PAGES: u64 = 65_536;
/// Number of pages per mapping at each point of [`Setup::curve`].
const CURVE: [u64; 4] = [1, 16, 512, 4096];
/// Maximum span of a run in pages, so that all addresses stay below 2^46 in the core and on the
/// kernel.
const MOST_PAGES: u64 = 1 << 32;

/// Whether the mappings share an anon_vma.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AnonVmas {
    /// All mappings share one anon_vma.
    Same,
    /// Each mapping has its own anon_vma.
    Different,
}

/// Parameters of the test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Setup {
    /// Number of mappings, at least two.
    pub mappings: u64,
    /// Number of pages per mapping, at least one.
    pub pages: u64,
    /// Whether the mappings share an anon_vma.
    pub anon_vmas: AnonVmas,
}

/// Reason why the spacing test produced no results.
#[derive(Debug, Error)]
pub enum SpacingError {
    /// The number of mappings or pages is too small or too large.
    #[error(
        "{0} mappings of {1} pages cannot be measured: take 2 mappings or more, 1 page or more, and not more than 4,294,967,296 pages in all with the spaces"
    )]
    Size(u64, u64),
    /// The core refused a call.
    #[error("the core refused a call under {policy}: {errno}")]
    Core {
        /// Name of the policy.
        policy: &'static str,
        /// Error number of the call.
        errno: Errno,
    },
}

/// Results for one policy, or for the kernel.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// Name of the policy, or `kernel` for the running kernel.
    pub who: String,
    /// Median total duration of the moves, in seconds.
    pub seconds: f64,
    /// Duration of the moves in each round, in seconds.
    pub rounds: Vec<f64>,
    /// Time relative to the time under the policy `linux-5.18` in the same round.
    pub ratio: Option<Ratio>,
    /// Number of merges of different anon_vmas (`AV_MERGE_DIFFERENT`).
    pub different: Option<u64>,
    /// Number of moves that changed the page offsets to match the new address.
    pub page_offsets: Option<u64>,
    /// Number of failed merge attempts.
    pub failed: Option<u64>,
    /// Number of merge attempts for each outcome, with the names from table 2.2.
    pub outcomes: Vec<(&'static str, u64)>,
    /// Number of VMAs after the moves.
    pub vmas: u64,
}

/// Results of the test in one table.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Parameters of the test.
    pub setup: Setup,
    /// One row per policy, followed by the kernel's row.
    pub rows: Vec<Row>,
    /// Reason why the kernel's row is missing, if it is.
    pub without_kernel: Option<String>,
}

impl Setup {
    /// Returns the size of a mapping in bytes.
    fn len(&self) -> u64 {
        self.pages * PAGE
    }

    /// Returns the distance between the starts of adjacent mappings, in bytes.
    fn stride(&self) -> u64 {
        2 * self.len()
    }

    /// Returns the span of all mappings and gaps in bytes.
    fn span(&self) -> u64 {
        self.mappings * self.stride()
    }

    /// Returns one set of parameters for each number of pages per mapping: 1, 16, 512 and 4096.
    ///
    /// The other parameters are copied from `self`, but the number of mappings is reduced if the
    /// measurement would have too many pages.
    pub fn curve(&self) -> Vec<Setup> {
        let sized = |pages| Setup {
            mappings: self.mappings.min(CURVE_PAGES / pages).max(2),
            pages,
            ..*self
        };
        CURVE.into_iter().map(sized).collect()
    }
}

/// Measures each policy and the kernel in turn, `rounds` times.
///
/// # Errors
/// If the size is out of range or the core refuses a call. If the kernel refuses a call, the
/// kernel's row is missing and the report contains the reason.
pub fn run(setup: &Setup, rounds: usize) -> Result<Report, SpacingError> {
    let pages = setup
        .mappings
        .checked_mul(2)
        .and_then(|n| n.checked_mul(setup.pages));
    if setup.mappings < 2 || setup.pages == 0 || pages.is_none_or(|n| n > MOST_PAGES) {
        return Err(SpacingError::Size(setup.mappings, setup.pages));
    }
    let policies = [Policy::LINUX_5_18, Policy::THESIS, Policy::VMAREA];
    let mut ours = policies.map(|_| Vec::new());
    let mut theirs = Vec::new();
    let mut without_kernel = None;
    for round in 0..rounds.max(1) {
        for turn in 0..policies.len() {
            // Each round starts with another policy.
            let at = (round + turn) % policies.len();
            ours[at].push(on_core(setup, policies[at])?);
        }
        if without_kernel.is_none() {
            match on_kernel::run(setup) {
                Ok(went) => theirs.push(went),
                Err(error) => without_kernel = Some(error.to_string()),
            }
        }
    }
    let base: Vec<f64> = ours[0].iter().map(|w| w.time.as_secs_f64()).collect();
    let mut rows: Vec<Row> = Vec::new();
    for (policy, went) in policies.iter().zip(&ours) {
        rows.push(core_row(policy.name, went, &base));
    }
    if without_kernel.is_none() {
        let times: Vec<f64> = theirs.iter().map(|w| w.time.as_secs_f64()).collect();
        let vmas = theirs.last().map_or(0, |w| w.vmas);
        rows.push(row("kernel", times, &base, vmas));
    }
    Ok(Report {
        setup: *setup,
        rows,
        without_kernel,
    })
}

/// Runs the test once in the core under one policy, so that a tool can count the instructions.
/// Returns the number of VMAs after the moves.
///
/// # Errors
/// If the core refuses a call.
pub fn once(setup: &Setup, policy: Policy) -> Result<u64, SpacingError> {
    on_core(setup, policy).map(|went| went.vmas)
}

/// Result of one run in the core.
struct OnCore {
    time: Duration,
    vmas: u64,
    stats: Stats,
}

fn on_core(setup: &Setup, policy: Policy) -> Result<OnCore, SpacingError> {
    let refused = |errno| SpacingError::Core {
        policy: policy.name,
        errno,
    };
    let system = System {
        max_map_count: u32::MAX,
        ..System::default()
    };
    let space = standard::space(policy, system);
    let mm = standard::mm_create(&space, Layout::default(), Limits::default()).map_err(refused)?;
    make(&space, mm, setup).map_err(refused)?;
    let begun = Instant::now();
    moves(&space, mm, setup).map_err(refused)?;
    let time = begun.elapsed();
    let r = space
        .mmap_read_lock(mm)
        .ok_or_else(|| refused(Errno::ESRCH))?;
    Ok(OnCore {
        time,
        vmas: u64::from(r.state().map_count),
        stats: r.state().stats.clone(),
    })
}

/// Performs the measured moves. Not inlined, so that an instruction counter finds it by name.
#[inline(never)]
fn moves(space: &Space, mm: MmId, setup: &Setup) -> Result<(), Errno> {
    let (len, stride) = (setup.len(), setup.stride());
    for n in 1..setup.mappings {
        let request = MremapRequest {
            addr: BASE + n * stride,
            old_len: len,
            new_len: len,
            flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
            new_addr: BASE + n * len,
            ..MremapRequest::default()
        };
        standard::syscall(space, mm, &Syscall::Mremap(request))?;
    }
    Ok(())
}

/// Creates the mappings, faults in their pages, and leaves a gap after each mapping.
fn make(space: &Space, mm: MmId, setup: &Setup) -> Result<(), Errno> {
    let (len, stride) = (setup.len(), setup.stride());
    let (first, times) = match setup.anon_vmas {
        AnonVmas::Same => (setup.span(), 1),
        AnonVmas::Different => (len, setup.mappings),
    };
    for n in 0..times {
        let request = MmapRequest {
            addr: BASE + n * stride,
            len: first,
            prot: READ_WRITE,
            flags: PRIVATE_FIXED,
            ..MmapRequest::default()
        };
        standard::syscall(space, mm, &Syscall::Mmap(request))?;
    }
    for n in 0..setup.mappings {
        for page in 0..setup.pages {
            standard::fault(space, mm, BASE + n * stride + page * PAGE, Access::Write)?;
        }
    }
    if setup.anon_vmas == AnonVmas::Same {
        for n in 0..setup.mappings {
            let addr = BASE + n * stride + len;
            standard::syscall(space, mm, &Syscall::Munmap { addr, len })?;
        }
    }
    Ok(())
}

fn core_row(who: &str, went: &[OnCore], base: &[f64]) -> Row {
    let times = went.iter().map(|w| w.time.as_secs_f64()).collect();
    let vmas = went.last().map_or(0, |w| w.vmas);
    let mut row = row(who, times, base, vmas);
    if let Some(last) = went.last() {
        let moves = last
            .stats
            .attempts()
            .filter(|(call, ..)| *call == CallKind::MremapMove);
        let moves: Vec<(MergeOutcome, u64)> = moves.map(|(_, outcome, n)| (outcome, n)).collect();
        let of = |wanted: &[MergeOutcome]| -> u64 {
            moves
                .iter()
                .filter(|(o, _)| wanted.contains(o))
                .map(|(_, n)| n)
                .sum()
        };
        row.different = Some(of(&[MergeOutcome::AvDifferent]));
        row.failed = Some(of(&[MergeOutcome::Failed, MergeOutcome::AvFailed]));
        row.page_offsets = Some(last.stats.pgoff_merges);
        row.outcomes = moves.iter().map(|(o, n)| (o.name(), *n)).collect();
    }
    row
}

fn row(who: &str, rounds: Vec<f64>, base: &[f64], vmas: u64) -> Row {
    let mut sorted = rounds.clone();
    sorted.sort_by(f64::total_cmp);
    Row {
        who: who.to_owned(),
        seconds: median(&sorted),
        ratio: Ratio::of_pairs(&rounds, base),
        rounds,
        different: None,
        page_offsets: None,
        failed: None,
        outcomes: Vec::new(),
        vmas,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(mappings: u64, pages: u64, anon_vmas: AnonVmas) -> Setup {
        Setup {
            mappings,
            pages,
            anon_vmas,
        }
    }

    /// Checks the outcome columns of tables 4.2 and 4.3 with a different number of mappings.
    #[test]
    fn outcomes_are_those_of_the_thesis() {
        for (anon_vmas, different) in [(AnonVmas::Same, 0), (AnonVmas::Different, 299)] {
            for pages in [1, 3, 512] {
                let setup = setup(300, pages, anon_vmas);
                let linux = on_core(&setup, Policy::LINUX_5_18).unwrap();
                let row = core_row("", &[linux], &[1.0]);
                assert_eq!((row.vmas, row.different), (300, Some(0)));
                // The first move also fails to merge because its destination is adjacent to its own
                // source.
                assert_eq!((row.page_offsets, row.failed), (Some(0), Some(300)));
                for policy in [Policy::THESIS, Policy::VMAREA] {
                    let went = on_core(&setup, policy).unwrap();
                    let row = core_row("", &[went], &[1.0]);
                    assert_eq!((row.vmas, row.different), (1, Some(different)));
                    assert_eq!((row.page_offsets, row.failed), (Some(299), Some(0)));
                }
            }
        }
    }

    #[test]
    fn the_kernel_does_the_same_work() {
        for anon_vmas in [AnonVmas::Same, AnonVmas::Different] {
            let went = on_kernel::run(&setup(100, 2, anon_vmas)).unwrap();
            // No Linux kernel to date merges faulted neighbours whose page offsets are not
            // contiguous.
            assert_eq!(went.vmas, 100);
        }
    }

    #[test]
    fn sizes_are_checked_and_the_curve_is_bounded() {
        for (mappings, pages) in [(1, 1), (2, 0), (u64::MAX, 2), (1 << 20, 1 << 20)] {
            let wrong = run(&setup(mappings, pages, AnonVmas::Same), 1);
            assert!(matches!(wrong, Err(SpacingError::Size(..))));
        }
        for setup in setup(20_000, 1, AnonVmas::Same).curve() {
            assert!(setup.mappings * setup.pages <= CURVE_PAGES);
        }
    }
}
