//! Section 2.10: outcomes of table 2.2, and merges by page offset and by growth in place.

use crate::world::{PAGE, RW, World, at};
use std::sync::{Arc, Mutex};
use vmarea::mm::Stats;
use vmarea::policy::Policy;
use vmarea::types::MmId;
use vmarea::types::call_flags::{MbindFlags, MremapFlags, Prot};
use vmarea::types::mempolicy::MpolMode;
use vmarea::vma::merge::MergeOutcome::{AvDifferent, AvFailed, AvNull, AvSame, Failed};
use vmarea::vma::merge::{Attempt, CallKind, MergeOutcome, Observer, Outcomes};
use vmarea_soft_platform::Machine;

const NOTHING: MremapFlags = MremapFlags::empty();

/// Records what the tracepoint in the thesis reports.
#[derive(Clone, Default)]
struct Trace(Arc<Mutex<Vec<(CallKind, Outcomes)>>>);

impl Observer for Trace {
    fn attempt(&self, attempt: &Attempt<'_>) {
        let mut seen = self.0.lock().unwrap();
        seen.push((attempt.call, attempt.outcomes()));
    }
}

/// Runs `scene` under `policy`; returns the call and the outcomes of its last merge attempt.
fn last(policy: Policy, scene: impl Fn(&mut World, MmId)) -> (CallKind, Outcomes) {
    let (mut w, mm) = World::new(policy);
    let trace = Trace::default();
    let observed: &mut Machine = &mut w.machine;
    observed.set_observer(Box::new(trace.clone()));
    scene(&mut w, mm);
    let seen = trace.0.lock().unwrap();
    *seen.last().expect("an attempt")
}

/// Creates three adjacent mappings under separate anon_vmas, the middle one read-only; then gives
/// the middle mapping the protection of the other two.
///
/// ```text
/// AA..CC....BB   mremap of read-only BB   AArrCC   mprotect of rr
/// ```
fn three(w: &mut World, mm: MmId, child: bool) {
    w.map(mm, 0, 2, RW);
    w.write(mm, 0, 2);
    w.map(mm, 4, 2, RW);
    w.write(mm, 4, 2);
    w.map(mm, 10, 2, RW);
    w.write(mm, 10, 2);
    w.protect(mm, 10, 2, Prot::READ);
    w.shift(mm, 10, 2, 2, NOTHING).unwrap();
    if child {
        w.fork(mm);
    }
    w.protect(mm, 2, 2, RW);
}

fn outcomes(of: [Option<MergeOutcome>; 3]) -> Outcomes {
    let [prev, next, both] = of;
    Outcomes { prev, next, both }
}

#[test]
fn t2_10_1_each_comparison_has_its_outcome() {
    let all =
        |child| [Policy::LINUX_5_18, Policy::THESIS].map(|p| last(p, |w, mm| three(w, mm, child)));
    let different = Some(AvDifferent);
    let failed = outcomes([Some(AvFailed), Some(AvFailed), None]);
    let merged = outcomes([different; 3]);
    assert_eq!(
        all(false),
        [failed, merged].map(|o| (CallKind::Mprotect, o))
    );
    assert_eq!(all(true), [failed, failed].map(|o| (CallKind::Mprotect, o)));
}

/// ```text
/// AA..CC   mmap   AA**CC   the range can merge with either; A and C cannot merge
/// ```
#[test]
fn t2_10_1_neighbours_that_stay_apart() {
    let scene = |w: &mut World, mm: MmId| {
        w.map(mm, 0, 2, RW);
        w.write(mm, 0, 2);
        w.map(mm, 4, 2, RW);
        w.write(mm, 4, 2);
        w.map(mm, 2, 2, RW);
    };
    let null = Some(AvNull);
    for (policy, both) in [
        (Policy::LINUX, AvFailed),
        (Policy::LINUX_6_1, AvFailed),
        (Policy::LINUX_5_18, AvFailed),
        (Policy::THESIS, AvDifferent),
    ] {
        let expected = outcomes([null, null, Some(both)]);
        assert_eq!(
            last(policy, scene),
            (CallKind::Mmap, expected),
            "{}",
            policy.name
        );
    }
}

#[test]
fn t2_10_1_same_and_other_reasons() {
    let same = last(Policy::THESIS, |w, mm| {
        w.map(mm, 0, 4, RW);
        w.write(mm, 0, 4);
        w.protect(mm, 2, 2, Prot::READ);
        w.protect(mm, 2, 2, RW);
    });
    assert_eq!(same.1, outcomes([Some(AvSame), None, None]));
    let failed = last(Policy::THESIS, |w, mm| {
        w.map(mm, 0, 2, RW);
        w.map(mm, 2, 2, Prot::READ);
    });
    assert_eq!(failed.1, outcomes([Some(Failed), None, None]));
}

#[test]
fn t2_10_1_mbind_is_a_call_of_its_own() {
    let (call, _) = last(Policy::THESIS, |w, mm| {
        w.map(mm, 0, 2, RW);
        let space = w.machine.space();
        let flags = MbindFlags::empty();
        space
            .mbind(mm, at(0), PAGE, (MpolMode::BIND, 1), flags)
            .unwrap();
    });
    assert_eq!(call, CallKind::Mbind);
}

fn counted(policy: Policy, scene: impl Fn(&mut World, MmId)) -> [u64; 3] {
    let (mut w, mm) = World::new(policy);
    scene(&mut w, mm);
    let r = w.machine.space().mmap_read_lock(mm).unwrap();
    let Stats {
        pgoff_updates,
        pgoff_merges,
        expand_merges,
        ..
    } = r.state().stats;
    [pgoff_updates, pgoff_merges, expand_merges]
}

#[test]
fn t2_10_2_a_move_with_a_new_page_offset_may_merge_or_not() {
    let scene = |to: u64| {
        move |w: &mut World, mm: MmId| {
            w.map(mm, 0, 5, RW);
            w.write(mm, 0, 5);
            w.unmap(mm, 1, 2);
            w.shift(mm, 3, 2, to, NOTHING).unwrap();
        }
    };
    assert_eq!(counted(Policy::THESIS, scene(1)), [1, 1, 0]);
    assert_eq!(counted(Policy::THESIS, scene(8)), [1, 0, 0]);
    assert_eq!(counted(Policy::LINUX_5_18, scene(1)), [0, 0, 0]);
}

#[test]
fn t2_10_3_growth_in_place_joins_the_next() {
    let scene = |w: &mut World, mm: MmId| {
        w.map(mm, 0, 3, RW);
        w.unmap(mm, 1, 1);
        w.grow(mm, 0, 1, 2);
    };
    assert_eq!(counted(Policy::THESIS, scene), [0, 0, 1]);
    assert_eq!(counted(Policy::LINUX_5_18, scene), [0, 0, 0]);
}
