//! The thread that acts above a threshold.
//!
//! It counts the mappings now and then, so rarely that the counting costs a fiftieth of a processor
//! at the most, and repairs the whole address space where there are too many. Where that did not
//! help it waits longer and longer, or until there are many more: what cannot be joined is not tried
//! again all the time. Where descriptors or memory are used up it looks again a moment later.
//!
//! Its descriptors are not those of the program, which may close all that it has not opened
//! (`close_range`), and may be given the numbers again.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use vmarea_repair::{Merger, Options, Owner, Reason, RepairError, Report};

use crate::Settings;

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(60);
/// Where something was used up.
const AGAIN: Duration = Duration::from_secs(1);
/// The part of the time that may go into counting.
const COUNTING: u32 = 50;
/// How often in a row the threads may not be stopped: one that waits in `vfork` does not stop, a
/// traced one never will.
const TRIES: u32 = 10;
/// User addresses, as far as any machine has them.
const EVERYTHING: std::ops::Range<u64> = 0..1 << 56;

/// Starts the thread, with all signals blocked: they are the program's.
pub(crate) fn start(settings: Settings) {
    let quiet = vmarea_repair::NoSignals::begin();
    // Where no thread can be had, the program simply runs as it always did.
    let _ = thread::Builder::new()
        .name("vmarea".to_owned())
        .spawn(move || collect(settings));
    drop(quiet);
}

fn collect(settings: Settings) {
    // Where a sandbox forbids it, they are the program's.
    let _ = vmarea_repair::separate_descriptors();
    let options = Options {
        max_pause: Some(settings.max_pause),
        owner: Owner::Anybody,
        ..Options::default()
    };
    let mut merger = None;
    let mut patience = Patience::default();
    let mut pause = SHORTEST;
    let mut in_vain = 0;
    loop {
        thread::sleep(pause);
        let begun = Instant::now();
        let counted = count();
        pause = (begun.elapsed() * COUNTING).clamp(SHORTEST, LONGEST);
        let merged = counted.and_then(|count| {
            let needed = count > settings.threshold && patience.allows(count, begun);
            needed.then(|| merge(&mut merger, options)).transpose()
        });
        match merged {
            Ok(None) => {}
            Ok(Some(report)) => {
                in_vain = if cannot_work(&report) { in_vain + 1 } else { 0 };
                if in_vain == TRIES {
                    return complain("the program's threads cannot be stopped; giving up");
                }
                patience.learn(&report, begun);
            }
            Err(error) if error.is_passing() => pause = pause.max(AGAIN),
            Err(error) => return complain(&error.to_string()),
        }
    }
}

fn merge(merger: &mut Option<Merger>, options: Options) -> Result<Report, RepairError> {
    let merger = match merger {
        Some(merger) => merger,
        None => merger.insert(Merger::new(options)?),
    };
    merger.merge(EVERYTHING)
}

/// How long to leave it alone where it did not help.
#[derive(Debug, Default)]
struct Patience {
    wait: Duration,
    until: Option<Instant>,
    left: u64,
}

impl Patience {
    /// True where enough time has passed, or where there are many new mappings.
    fn allows(&self, count: u64, now: Instant) -> bool {
        count > self.left + self.left / 8 || self.until.is_none_or(|until| now >= until)
    }

    /// A repair that began at `begun` came to this.
    fn learn(&mut self, report: &Report, begun: Instant) {
        // A tenth less is worth to go on at the same pace.
        self.wait = if report.after * 10 > report.before * 9 {
            (self.wait * 2).clamp(begun.elapsed() * 10, LONGEST.max(begun.elapsed() * 10))
        } else {
            Duration::ZERO
        };
        self.until = Some(Instant::now() + self.wait);
        self.left = report.after;
    }
}

fn cannot_work(report: &Report) -> bool {
    report.pieces == 0 && report.kept.by_reason.contains_key(&Reason::CannotStop)
}

fn count() -> Result<u64, RepairError> {
    let text = std::fs::read("/proc/self/maps").map_err(|cause| RepairError::System {
        what: "reading /proc/self/maps",
        cause,
    })?;
    Ok(text.iter().filter(|&&byte| byte == b'\n').count() as u64)
}

fn complain(text: &str) {
    const STANDARD_ERROR: i32 = 2;
    // Where the program has none any more, nobody is told.
    if let Ok(mut file) = vmarea_repair::file_of_program(STANDARD_ERROR) {
        let _ = writeln!(file, "vmarea: mappings are not kept merged: {text}");
    }
}
