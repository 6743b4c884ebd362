//! Every allocation of the core fails in turn, in every step of a set of sequences.
//!
//! What Linux leaves after a failure is what must be left here: nothing has changed, but for the
//! halves that each call's documentation names. They are: a fixed mapping or move has unmapped its
//! destination; a move that shrinks has cut the tail off; a change of attributes has reached the
//! VMAs before the one that failed; VMAs that were cut stay cut. Nothing leaks.

use vmarea::System;
use vmarea::mm::Limits;
use vmarea::mutant;
use vmarea::policy::Policy;
use vmarea_conform::arena;
use vmarea_conform::generate::{Facts, Generator};
use vmarea_conform::model::Model;
use vmarea_conform::op::{Op, Places, Step};
use vmarea_conform::outcome::Outcome;
use vmarea_process::view::View;
use vmarea_trace::sysno;

const STEPS: usize = 60;
const PLACES: Places = Places {
    heap: 0x5555_5555_0000,
    special: 0,
};
const PROCESSES: usize = 4;

fn model() -> Model {
    let mut view = View::default();
    view.mm.mmap_base = Some(0x7fff_0000_0000);
    view.mm.start_brk = Some(PLACES.heap);
    view.mm.brk = view.mm.start_brk;
    let limits = Limits {
        ipc_lock: true,
        ..Limits::default()
    };
    Model::new(Policy::LINUX, System::default(), &view, limits).unwrap()
}

/// What is mapped, page by page: what it is like, without where it is cut.
fn pages(model: &Model, process: usize) -> Vec<(u64, u64, u64)> {
    let state = model.state(process);
    let of = |v: &vmarea_conform::state::VmaState| {
        let first = v.start >> 12;
        let (flags, pgoff) = (v.flags, v.pgoff);
        (first..v.end >> 12).map(move |page| (page, flags, pgoff + page - first))
    };
    state.vmas.iter().flat_map(of).collect()
}

/// Addresses in which a failed call may have changed what is mapped.
fn excused(step: &Step) -> Vec<(u64, u64)> {
    let Op::Call(call) = &step.op else {
        return Vec::new();
    };
    let [a, b, c, _, e, _] = call.placed(PLACES);
    let range = |start: u64, len: u64| (start >> 12, start.saturating_add(len).div_ceil(4096));
    match call.nr {
        sysno::SHMAT => vec![range(b & !0xfff, arena::SEGMENTS[0])],
        sysno::MMAP | sysno::REMAP_FILE_PAGES => vec![range(a, b)],
        // Of several VMAs those before have moved.
        sysno::MREMAP => vec![range(a, b), range(e, c)],
        _ => Vec::new(),
    }
}

fn play(steps: &[Step]) -> Model {
    let mut model = model();
    for step in steps {
        model.apply(step);
    }
    model
}

/// True if the failure was reached.
fn check(before: &[Step], step: &Step, nth: u32) -> bool {
    let mut model = play(before);
    let was: Vec<_> = (0..PROCESSES).map(|p| pages(&model, p)).collect();
    mutant::fail_allocation(nth);
    let outcome = model.apply(step);
    let reached = mutant::fail_allocation(0);
    let space = model.machine().space();
    let told = || format!("allocation {nth} of {step} (after {} steps)", before.len());
    if let Err(violation) = space.validate_all() {
        panic!("{}: {}", told(), violation.0);
    }
    if reached && outcome.is_refused() {
        let excused = excused(step);
        for (process, was) in was.iter().enumerate() {
            let now = pages(&model, process);
            let counts = |(page, ..): &&(u64, u64, u64)| {
                !excused.iter().any(|(from, to)| (*from..*to).contains(page))
            };
            let mapped = |(page, ..): &(u64, u64, u64)| *page;
            // Attributes before the VMA that failed have changed; what is mapped has not.
            let was: Vec<u64> = was.iter().filter(counts).map(mapped).collect();
            let now: Vec<u64> = now.iter().filter(counts).map(mapped).collect();
            assert!(was == now, "{}: mapped otherwise than before", told());
        }
    }
    if reached && matches!(step.op, Op::Fork { .. }) {
        assert_eq!(outcome, Outcome::Errno(12), "{}", told());
    }
    for process in 0..PROCESSES {
        model.apply(&Step {
            process: process as u8,
            op: Op::Exit,
        });
    }
    let left = format!("{:?}", model.machine().space());
    assert!(
        left.contains("vmas: 0, anon_vmas: 0, frames: 0"),
        "{}: left over: {left}",
        told()
    );
    reached
}

#[test]
fn every_allocation_may_fail() {
    let (mut failures, mut steps_with) = (0, 0);
    for seed in 0..40 {
        let mut generator = Generator::new(seed, Facts::ALL);
        if generator.steps() <= STEPS {
            continue;
        }
        let mut steps: Vec<Step> = Vec::new();
        let mut ahead = model();
        for _ in 0..STEPS {
            let step = generator.next(&ahead);
            let mut nth = 1;
            while check(&steps, &step, nth) && nth < 200 {
                nth += 1;
                failures += 1;
            }
            steps_with += u32::from(nth > 1);
            ahead.apply(&step);
            steps.push(step);
        }
    }
    println!("{failures} failed allocations in {steps_with} steps");
    assert!(failures > 1000, "only {failures} allocations failed");
}
