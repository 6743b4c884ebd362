//! Replay of one recorded run under a single policy, for measuring what the policy costs.
//!
//! `one_policy POLICY TRACE` replays the trace once. An instruction counter that is limited to
//! `replay` counts only the instructions of the calls and faults under that policy. Reading the
//! trace is excluded, and no other policy runs.
//!
//! `one_policy --times PAIRS TRACE` replays the trace PAIRS times under `linux` and under each of
//! the other policies, in turn, and prints the ratio of each policy's time to the time under
//! `linux`.
//!
//! `one_policy --spacing POLICY same|diff MAPPINGS PAGES` performs the moves of the spacing
//! benchmark once. There are MAPPINGS mappings of PAGES pages, which all share one anon_vma
//! (`same`) or each have their own (`diff`). In this mode, limit the instruction counter to
//! `moves`.
//!
//! ```text
//! cargo run --release --manifest-path lab/Cargo.toml -p vmarea-experiments --example one_policy -- vmarea gcc.vmtrace
//! ```

use std::fs::File;
use std::process::ExitCode;
use std::time::Instant;
use vmarea::policy::Policy;
use vmarea_experiments::Ratio;
use vmarea_experiments::one_world;
use vmarea_experiments::spacing::{self, AnonVmas, Setup};
use vmarea_replay::machine;
use vmarea_replay::world::World;
use vmarea_trace::event::{Event, Header};

type Failed = Box<dyn std::error::Error>;

const USAGE: &str = "usage: one_policy POLICY TRACE | one_policy --times PAIRS TRACE | \
                     one_policy --spacing POLICY same|diff MAPPINGS PAGES";

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("one_policy: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), Failed> {
    match args {
        [times, pairs, trace] if times == "--times" => {
            let (header, events) = read(trace)?;
            compare(&header, &events, pairs.parse()?);
        }
        [policy, trace] => {
            let policy = Policy::by_name(policy).ok_or("no such policy")?;
            let (header, events) = read(trace)?;
            let mut world = World::new(policy.name, policy, machine::system(&header));
            replay(&mut world, &events);
            world.finish();
            println!(
                "{}: {} VMAs at peak, {} at exit",
                policy.name, world.report.vmas_peak, world.report.vmas_exit
            );
        }
        [spacing, policy, anon_vmas, mappings, pages] if spacing == "--spacing" => {
            let policy = Policy::by_name(policy).ok_or("no such policy")?;
            let setup = Setup {
                mappings: mappings.parse()?,
                pages: pages.parse()?,
                anon_vmas: match anon_vmas.as_str() {
                    "same" => AnonVmas::Same,
                    "diff" => AnonVmas::Different,
                    _ => return Err(USAGE.into()),
                },
            };
            let vmas = spacing::once(&setup, policy)?;
            println!("{}: {vmas} VMAs at the end", policy.name);
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn read(trace: &str) -> Result<(Header, Vec<Event>), Failed> {
    Ok(one_world::read(File::open(trace)?, usize::MAX)?)
}

/// Replays the recorded events. Not inlined, so that an instruction counter finds it by name.
#[inline(never)]
fn replay(world: &mut World, events: &[Event]) {
    one_world::replay(world, events);
}

fn compare(header: &Header, events: &[Event], pairs: usize) {
    let policies = [Policy::LINUX, Policy::THESIS, Policy::VMAREA];
    let mut times = policies.map(|_| Vec::new());
    for round in 0..pairs.max(1) {
        for turn in 0..policies.len() {
            // Each round starts with another policy.
            let at = (round + turn) % policies.len();
            let policy = policies[at];
            let mut world = World::new(policy.name, policy, machine::system(header));
            let begun = Instant::now();
            replay(&mut world, events);
            times[at].push(begun.elapsed().as_secs_f64());
        }
    }
    for (policy, of) in policies.iter().zip(&times).skip(1) {
        if let Some(ratio) = Ratio::of_pairs(of, &times[0]) {
            println!(
                "{:8} {:.3} of the time of linux, {:.3} to {:.3} ({:.0} % of {} pairs)",
                policy.name,
                ratio.median,
                ratio.low,
                ratio.high,
                ratio.confidence * 100.0,
                ratio.pairs
            );
        }
    }
}
