//! The thread that merges mappings when their number exceeds a threshold.
//!
//! The thread counts the mappings at intervals long enough that counting takes at most a fiftieth
//! of one processor's time. If there are too many mappings, the thread repairs the whole address
//! space. Each repair that does not help lengthens the wait before the next one, so that the thread
//! does not retry mappings that cannot be merged; many new mappings end the wait early. If
//! descriptors or memory run out, the thread retries a moment later.
//!
//! The thread's descriptor table is separate from the program's, because the program can close
//! even descriptors that it did not open (`close_range`), and new files of the program can then get
//! the same descriptor numbers.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use vmarea_repair::{KeptReason, Merger, Options, Owner, RepairError, Report};

use crate::Settings;

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(60);
/// Minimum wait before the next attempt after descriptors or memory ran out.
const AGAIN: Duration = Duration::from_secs(1);
/// Ratio of the counting interval to the time that counting takes.
const COUNTING: u32 = 50;
/// Number of consecutive failures to stop the program's threads after which the thread ends.
///
/// A thread that waits in `vfork` does not stop for a while; a traced thread never does.
const TRIES: u32 = 10;
/// Address range that contains all user addresses on every machine.
const EVERYTHING: std::ops::Range<u64> = 0..1 << 56;

/// Starts the thread with all signals blocked, so that the program's own threads receive them.
pub(crate) fn start(settings: Settings) {
    let quiet = vmarea_repair::NoSignals::begin();
    // If no thread can be started, the program simply runs without merging.
    let _ = thread::Builder::new()
        .name("vmarea".to_owned())
        .spawn(move || collect(settings));
    drop(quiet);
}

fn collect(settings: Settings) {
    // If a sandbox forbids this, the thread shares the program's descriptors.
    let _ = vmarea_repair::separate_descriptors();
    let options = Options {
        max_pause: Some(settings.max_pause),
        owner: Owner::Anybody,
        ..Options::default()
    };
    let mut merger = None;
    let mut backoff = Backoff::default();
    let mut pause = SHORTEST;
    let mut in_vain = 0;
    loop {
        thread::sleep(pause);
        let begun = Instant::now();
        let counted = count();
        pause = (begun.elapsed() * COUNTING).clamp(SHORTEST, LONGEST);
        let merged = counted.and_then(|count| {
            let needed = count > settings.threshold && backoff.allows(count, begun);
            needed.then(|| merge(&mut merger, options)).transpose()
        });
        match merged {
            Ok(None) => {}
            Ok(Some(report)) => {
                in_vain = if cannot_work(&report) { in_vain + 1 } else { 0 };
                if in_vain == TRIES {
                    return complain("the program's threads cannot be stopped; giving up");
                }
                backoff.learn(&report, begun);
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

/// State that determines how long the thread waits after a repair that did not help.
#[derive(Debug, Default)]
struct Backoff {
    wait: Duration,
    until: Option<Instant>,
    left: u64,
}

impl Backoff {
    /// True if the thread has waited long enough, or if there are many new mappings.
    fn allows(&self, count: u64, now: Instant) -> bool {
        count > self.left + self.left / 8 || self.until.is_none_or(|until| now >= until)
    }

    /// Sets how long to wait after a repair that began at `begun` and returned `report`.
    fn learn(&mut self, report: &Report, begun: Instant) {
        // If the repair removed at least a tenth of the mappings, the thread continues at the same
        // pace.
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
    report.pieces == 0 && report.kept.by_reason.contains_key(&KeptReason::CannotStop)
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
    // If the program has closed its standard error, the message is lost.
    if let Ok(mut file) = vmarea_repair::file_of_program(STANDARD_ERROR) {
        let _ = writeln!(file, "vmarea: mappings are not kept merged: {text}");
    }
}
