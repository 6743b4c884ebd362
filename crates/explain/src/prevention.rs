//! Changes to a recorded program that would have prevented mappings.
//!
//! Each change is applied to the recorded calls, and the changed run is replayed to its end
//! ([`vmarea_replay::prevention`]). A change has a count only if that replay succeeds and the same
//! replay without a change reproduces the recorded peak.

use super::origins::label;
use super::recording::{CallStacks, RecordedError};
use serde::Serialize;
use std::collections::HashMap;
use vmarea_replay::prevention::Prevention;
use vmarea_replay::{Options, Replayer};
use vmarea_symbols::Frame;
use vmarea_trace::Error as TraceError;
use vmarea_trace::event::{Event, Header};

/// Result of one change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Prevented {
    /// Name of the change.
    pub change: &'static str,
    /// The change in the program, as a sentence.
    pub text: &'static str,
    /// Peak number of mappings of one address space in the recorded run.
    pub before: u64,
    /// Number of these mappings that are older than the recording, which no change of a recorded call
    /// prevents.
    #[serde(skip_serializing_if = "is_zero")]
    pub older: u64,
    /// Peak number of mappings in the changed run; absent if the run could not be replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Why there is no count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_count: Option<String>,
    /// Number of calls that the change replaces.
    pub calls: u64,
    /// The call that is replaced most often.
    pub call: String,
    /// Number of the stack of that call, if stacks were recorded.
    #[serde(skip)]
    pub stack: Option<u32>,
    /// Function that makes the call, if stacks were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<Frame>,
    /// True if the C library makes the call in `pthread_create`.
    pub in_pthread_create: bool,
}

/// Replays the events with each change; returns the changes that affect the program and save
/// at least a twentieth of the mappings, or whose effect could not be determined, most savings first.
///
/// # Errors
/// [`RecordedError`].
pub(crate) fn replay(
    header: &Header,
    events: impl Iterator<Item = Result<Event, TraceError>>,
    mut stacks: CallStacks,
) -> Result<Vec<Prevented>, RecordedError> {
    let options = Options {
        preventions: Prevention::ALL.to_vec(),
        ..Options::default()
    };
    let mut replayer = Replayer::new(header, &options)?;
    let mut sites = CallSites::new();
    let mut last: Vec<u64> = vec![0; Prevention::ALL.len()];
    for event in events {
        let event = event?;
        replayer.event(&event)?;
        let Event::Call(call) = &event else { continue };
        let stack = stacks.next(call.tid);
        for (last, now) in last.iter_mut().zip(replayer.rewritten()) {
            if now.1 > *last {
                let sites = sites.entry(now.0).or_default();
                *sites.entry((label(call), stack)).or_default() += now.1 - *last;
                *last = now.1;
            }
        }
    }
    Ok(results(&replayer, sites))
}

/// The calls that each change replaces, with their numbers.
type CallSites = HashMap<Prevention, HashMap<(String, Option<u32>), u64>>;

fn results(replayer: &Replayer, mut sites: CallSites) -> Vec<Prevented> {
    let recorded = replayer.recorded_kernel().report.vmas_peak_single;
    let results: Vec<_> = replayer.prevented().collect();
    // The first world has no change.
    let doubt = results.first().and_then(|baseline| {
        let is_same = baseline.peak.abs_diff(recorded) * 50 <= recorded;
        let why = "the recording lacks accesses on which the mappings depend (record as root)";
        baseline
            .broken
            .clone()
            .or((!is_same).then(|| why.to_owned()))
    });
    let mut prevented: Vec<_> = results
        .into_iter()
        .skip(1)
        .filter(|result| result.rewritten > 0)
        .map(|result| {
            let sites = sites.remove(&result.prevention).unwrap_or_default();
            let most = sites.into_iter().max_by_key(|(_, calls)| *calls);
            let (call, stack) = most.map_or((String::new(), None), |(site, _)| site);
            let no_count = doubt.clone().or(result.broken);
            Prevented {
                change: result.prevention.name(),
                text: text(result.prevention),
                before: recorded,
                older: 0,
                after: no_count.is_none().then_some(result.peak),
                no_count,
                calls: result.rewritten,
                call,
                stack,
                site: None,
                in_pthread_create: false,
            }
        })
        .filter(|prevented| is_worth_a_word(prevented.before, prevented.after))
        .collect();
    prevented.sort_by_key(|prevented| prevented.after.unwrap_or(u64::MAX));
    prevented
}

/// True if a change saves a twentieth of the mappings, or if nobody knows what it saves.
fn is_worth_a_word(before: u64, after: Option<u64>) -> bool {
    after.is_none_or(|after| before.saturating_sub(after) * 20 >= before)
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn text(prevention: Prevention) -> &'static str {
    match prevention {
        Prevention::None => "",
        Prevention::Priming => {
            "map each reservation with PROT_READ|PROT_WRITE and MAP_NORESERVE, write one byte, \
             then mprotect(PROT_NONE)"
        }
        Prevention::WholeAdvice => {
            "call madvise once for the whole mapping instead of for its pieces"
        }
        Prevention::GuardMarkers => {
            "make guards with madvise(MADV_GUARD_INSTALL), 102, instead of mprotect(PROT_NONE), and remove \
             them with MADV_GUARD_REMOVE, 103, where mprotect makes the memory accessible again, which \
             does not remove them"
        }
    }
}
