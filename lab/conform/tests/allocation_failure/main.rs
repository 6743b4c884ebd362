//! Tests that make each allocation in the core and each call to the platform fail, both in every
//! step of a set of sequences and in work on pages that the sequences do not contain.
//!
//! After such a failure, nothing may have changed except what Linux also changes: a fixed mapping
//! or move has unmapped its destination; a shrinking move has unmapped the tail; a change of
//! attributes has changed the VMAs below the one that failed; split VMAs remain split. No memory
//! may leak.

mod allocator;
mod other_work;
mod platform;

use vmarea::mm::Limits;
use vmarea::policy::Policy;
use vmarea::types::VmFlags;
use vmarea::{HugePages, System};
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

/// A machine, and the number of sequences that it runs.
#[derive(Clone, Copy)]
struct Run {
    policy: Policy,
    swap: bool,
    huge_pages: HugePages,
    seeds: u64,
}

/// Under `vmarea`, `thesis` and `relocate`, more VMAs merge and pages change their owner.
const RUNS: [Run; 4] = [
    Run {
        policy: Policy::LINUX,
        swap: false,
        huge_pages: HugePages::Madvise,
        seeds: 40,
    },
    Run {
        policy: Policy::VMAREA,
        swap: true,
        huge_pages: HugePages::Always,
        seeds: 60,
    },
    Run {
        policy: Policy::THESIS,
        swap: true,
        huge_pages: HugePages::Always,
        seeds: 60,
    },
    Run {
        policy: Policy::RELOCATE,
        swap: true,
        huge_pages: HugePages::Always,
        seeds: 60,
    },
];

fn model(run: Run) -> Model {
    let mut view = View::default();
    view.mm.mmap_base = Some(0x7fff_0000_0000);
    view.mm.start_brk = Some(PLACES.heap);
    view.mm.brk = view.mm.start_brk;
    let limits = Limits {
        ipc_lock: true,
        ..Limits::default()
    };
    let system = System {
        swap: run.swap,
        huge_pages: run.huge_pages,
        ..System::default()
    };
    Model::new(run.policy, system, &view, limits).unwrap()
}

/// Returns the mapped ranges in page numbers, without the pages in `excused`.
fn mapped(model: &Model, process: usize, excused: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for vma in model.state(process).vmas {
        let (first, end) = (vma.start >> 12, vma.end >> 12);
        match ranges.last_mut() {
            Some(last) if last.1 == first => last.1 = end,
            _ => ranges.push((first, end)),
        }
    }
    for &(from, to) in excused {
        let parts = ranges.iter().flat_map(|&(first, end)| {
            let below = (first, end.min(from));
            [below, (first.max(to), end)]
        });
        ranges = parts.filter(|(first, end)| first < end).collect();
    }
    ranges
}

/// Returns the number of pages charged to the commit limit but not on behalf of any VMA.
fn charged_for_nothing(model: &Model, process: usize) -> u64 {
    let space = model.machine().space();
    let Some(r) = model.mm(process).and_then(|mm| space.mmap_read_lock(mm)) else {
        return 0;
    };
    let charged = r.vmas().filter(|v| v.body.flags.contains(VmFlags::ACCOUNT));
    r.state().committed - charged.map(|v| v.range.pages()).sum::<u64>()
}

/// Returns the pages whose mapping a failed call may have changed.
fn excused(model: &Model, step: &Step) -> Vec<(u64, u64)> {
    let call = match &step.op {
        Op::Call(call) => call,
        // A stack that has grown down to the address stays so.
        Op::Read { addr } | Op::Write { addr, .. } => {
            let addr = PLACES.placed(*addr);
            let state = model.state(usize::from(step.process));
            let above = state.vmas.iter().find(|v| v.end > addr);
            return above.map_or_else(Vec::new, |v| vec![(addr >> 12, v.start >> 12)]);
        }
        _ => return Vec::new(),
    };
    let [a, b, c, _, e, _] = call.placed(PLACES);
    let range = |start: u64, len: u64| (start >> 12, start.saturating_add(len).div_ceil(4096));
    match call.nr {
        sysno::SHMAT => vec![range(b & !0xfff, arena::SEGMENTS[0])],
        sysno::MMAP | sysno::REMAP_FILE_PAGES => vec![range(a, b)],
        // If several VMAs are to be moved, those below the failing one have been moved.
        sysno::MREMAP => vec![range(a, b), range(e, c)],
        _ => Vec::new(),
    }
}

fn play(run: Run, steps: &[Step]) -> Model {
    let mut model = model(run);
    for step in steps {
        model.apply(step);
    }
    model
}

/// Applies a step with `apply`, which makes something fail; returns an error if the step is left
/// half done.
fn check(
    model: &mut Model,
    step: &Step,
    apply: impl FnOnce(&mut Model) -> Outcome,
) -> Result<(), String> {
    let excused = excused(model, step);
    let all = |model: &Model| -> Vec<_> {
        (0..PROCESSES)
            .map(|process| mapped(model, process, &excused))
            .collect()
    };
    let was = all(model);
    let charges = |model: &Model| -> Vec<u64> {
        let processes = 0..PROCESSES;
        processes.map(|p| charged_for_nothing(model, p)).collect()
    };
    let charged = charges(model);
    let outcome = apply(model);
    model.machine().validate()?;
    // The attributes of VMAs that the call handled before the one that failed may have changed, but
    // what is mapped must not have changed.
    if outcome.is_refused() && all(model) != was {
        return Err("mapped otherwise than before".into());
    }
    // As in Linux (`acct_stack_growth`), a stack that grows is charged even if its VMA is not.
    let may_charge = matches!(step.op, Op::Read { .. } | Op::Write { .. });
    if outcome.is_refused() && !may_charge && charges(model) != charged {
        return Err("a charge is left".into());
    }
    if matches!(step.op, Op::Fork { .. }) && outcome != Outcome::Errno(12) {
        return Err(format!("fork: {outcome:?}"));
    }
    Ok(())
}

/// Ends all processes; returns an error if any of their resources remain.
fn end(model: &mut Model) -> Result<(), String> {
    for process in 0..PROCESSES {
        model.apply(&Step {
            process: process as u8,
            op: Op::Exit,
        });
    }
    let left = format!("{:?}", model.machine().space());
    match left.contains("vmas: 0, anon_vmas: 0, frames: 0") {
        true => Ok(()),
        false => Err(format!("left over: {left}")),
    }
}

/// Calls `f` for each step of a sequence, with the steps before it.
fn for_each_step(run: Run, seed: u64, mut f: impl FnMut(&[Step], &Step)) {
    let mut generator = Generator::new(seed, Facts::ALL);
    if generator.steps() <= STEPS {
        return;
    }
    let mut steps: Vec<Step> = Vec::new();
    let mut ahead = model(run);
    for _ in 0..STEPS {
        let step = generator.next(&ahead);
        f(&steps, &step);
        ahead.apply(&step);
        steps.push(step);
    }
}
