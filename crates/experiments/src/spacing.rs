//! The spacing speed test of the thesis (section 4.3.2, tables 4.2 and 4.3).
//!
//! Mappings with spaces between them are moved together; where the policy allows it they become one.
//! Only the moves are measured. The mappings have one anon_vma, where one mapping was cut into pieces
//! after its pages had come, or one each.
//!
//! # Picture
//! ```text
//! AA..BB..CC..DD..   mremap of each but the first   AABBCCDD........
//! ```

use super::kernel;
use super::ratio::{Ratio, median};
use serde::Serialize;
use std::time::{Duration, Instant};
use thiserror::Error;
use vmarea::fault::Access;
use vmarea::mm::{Layout, Limits, Stats};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::{Errno, MmId};
use vmarea::vma::merge::{CallKind, MergeOutcome};
use vmarea::{Space, System};

pub(super) const PAGE: u64 = 4096;
/// Where the core's mappings begin.
const BASE: u64 = 0x1000_0000_0000;
/// READ and WRITE.
const READ_WRITE: Prot = Prot::READ.union(Prot::WRITE);
/// Private, anonymous, fixed.
const PRIVATE_FIXED: MapFlags = MapFlags::PRIVATE
    .union(MapFlags::ANONYMOUS)
    .union(MapFlags::FIXED);
/// Pages of one measurement of the curve at the most, so that larger mappings are fewer.
const CURVE_PAGES: u64 = 65_536;
/// Pages a mapping in the curve.
const CURVE: [u64; 4] = [1, 16, 512, 4096];
/// Address space that a run may span, in pages: what fits under 2^46 on both sides.
const MOST_PAGES: u64 = 1 << 32;

/// The anon_vmas of the mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnonVmas {
    /// One for all.
    Same,
    /// Each has its own.
    Different,
}

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Setup {
    /// Mappings, at least two.
    pub mappings: u64,
    /// Pages of each, at least one.
    pub pages: u64,
    /// Their anon_vmas.
    pub anon_vmas: AnonVmas,
}

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum SpacingError {
    /// Too few or too many.
    #[error(
        "{0} mappings of {1} pages cannot be measured: take 2 mappings or more, 1 page or more, and not more than 4,294,967,296 pages in all with the spaces"
    )]
    Size(u64, u64),
    /// The core refused.
    #[error("the core refused a call under {policy}: {errno}")]
    Core {
        /// Under which policy.
        policy: &'static str,
        /// With what.
        errno: Errno,
    },
}

/// Who did it, and what it came to.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The policy, or `kernel` for the running one.
    pub who: String,
    /// Median time of all the moves, seconds.
    pub seconds: f64,
    /// Each round's time, seconds.
    pub rounds: Vec<f64>,
    /// Against `linux-5.10` of the same round.
    pub ratio: Option<Ratio>,
    /// Merges of different anon_vmas (`AV_MERGE_DIFFERENT`).
    pub different: Option<u64>,
    /// Moves whose pages took the page offset of their new place.
    pub page_offsets: Option<u64>,
    /// Attempts that failed.
    pub failed: Option<u64>,
    /// Attempts by outcome, as table 2.2 names them.
    pub outcomes: Vec<(&'static str, u64)>,
    /// VMAs at the end.
    pub vmas: u64,
}

/// One table.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was done.
    pub setup: Setup,
    /// The policies, then the kernel.
    pub rows: Vec<Row>,
    /// Why the kernel's row is missing.
    pub without_kernel: Option<String>,
}

impl Setup {
    /// Bytes of a mapping.
    pub(super) fn len(&self) -> u64 {
        self.pages * PAGE
    }

    /// Bytes from one mapping to the next.
    pub(super) fn stride(&self) -> u64 {
        2 * self.len()
    }

    /// Bytes of everything.
    pub(super) fn span(&self) -> u64 {
        self.mappings * self.stride()
    }

    /// The sizes of the curve, from this one: as many mappings as it has, or as a bound on the pages
    /// allows.
    pub fn curve(&self) -> Vec<Setup> {
        let sized = |pages| Setup {
            mappings: self.mappings.min(CURVE_PAGES / pages).max(2),
            pages,
            ..*self
        };
        CURVE.into_iter().map(sized).collect()
    }
}

/// Measures, `rounds` times each policy and the kernel in turn.
///
/// # Errors
/// For a size that cannot be measured. Where the kernel refuses, its row is missing and the report
/// says why.
pub fn run(setup: &Setup, rounds: usize) -> Result<Report, SpacingError> {
    let pages = setup
        .mappings
        .checked_mul(2)
        .and_then(|n| n.checked_mul(setup.pages));
    if setup.mappings < 2 || setup.pages == 0 || pages.is_none_or(|n| n > MOST_PAGES) {
        return Err(SpacingError::Size(setup.mappings, setup.pages));
    }
    let policies = [Policy::LINUX_5_10, Policy::THESIS, Policy::VMAREA];
    let mut ours = policies.map(|_| Vec::new());
    let mut theirs = Vec::new();
    let mut without_kernel = None;
    for round in 0..rounds.max(1) {
        for turn in 0..policies.len() {
            // Another one begins each time.
            let at = (round + turn) % policies.len();
            ours[at].push(on_core(setup, policies[at])?);
        }
        if without_kernel.is_none() {
            match kernel::run(setup) {
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

/// One run of the core under one policy, for counting its instructions; gives the VMAs at the end.
///
/// # Errors
/// Where the core refuses a call.
pub fn once(setup: &Setup, policy: Policy) -> Result<u64, SpacingError> {
    on_core(setup, policy).map(|went| went.vmas)
}

/// One run of the core.
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
    let space = Space::new(policy, system);
    let mm = space
        .mm_create(Layout::default(), Limits::default())
        .map_err(refused)?;
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

/// What is measured. Not inlined, so that a counter finds it by its name.
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
        space.mremap(mm, &request)?;
    }
    Ok(())
}

/// The mappings with their pages, a space after each.
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
        space.mmap(mm, &request)?;
    }
    for n in 0..setup.mappings {
        for page in 0..setup.pages {
            space.fault(mm, BASE + n * stride + page * PAGE, Access::Write)?;
        }
    }
    if setup.anon_vmas == AnonVmas::Same {
        for n in 0..setup.mappings {
            space.munmap(mm, BASE + n * stride + len, len)?;
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
        row.page_offsets = Some(last.stats.pgoff_updates);
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

    /// The outcome columns of tables 4.2 and 4.3, at another size.
    #[test]
    fn outcomes_are_those_of_the_thesis() {
        for (anon_vmas, different) in [(AnonVmas::Same, 0), (AnonVmas::Different, 299)] {
            for pages in [1, 3, 512] {
                let setup = setup(300, pages, anon_vmas);
                let linux = on_core(&setup, Policy::LINUX_5_10).unwrap();
                let row = core_row("", &[linux], &[1.0]);
                assert_eq!((row.vmas, row.different), (300, Some(0)));
                // The first move touches its own source as well.
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
            let went = kernel::run(&setup(100, 2, anon_vmas)).unwrap();
            // Every kernel so far leaves faulted neighbours of different offsets apart.
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
