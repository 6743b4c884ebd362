//! Comparison of two policies on one trace: where they part, and what each of them merges.
//!
//! Each call is replayed under both policies. Two calls *differ* if the policies return different
//! results, merge differently, add a different number of VMAs, or leave different flags in the range
//! of the call. After the first difference the address spaces themselves differ, so later
//! differences can be its consequences. Neither address space is corrected with the kernel's list of
//! VMAs.

mod flags;

use crate::action::Action;
use crate::world::World;
use crate::{Error, Options, PolicyName, Replayer, machine, verify};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use vmarea::types::{VmFlags, VmRange};
use vmarea::vma::merge::{Attempt, CallKind, MergeKind, Observer, Refusal};
use vmarea_trace::dump::call_text;
use vmarea_trace::event::{Call, Event, Header};

/// Size in bytes of `vm_area_struct`, with the VMA's lock, in Linux 6.18 on x86-64. The nodes of
/// the maple tree come in addition.
pub const VMA_BYTES: u64 = 192;

/// Largest number of points of [`OverTime`].
const MOST_POINTS: usize = 64;

/// Positions of the two policies' worlds in the replay, after that of the recorded kernel.
const WORLDS: [usize; 2] = [1, 2];

/// The result of a comparison.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Compared {
    /// Number of events in the trace.
    pub events: u64,
    /// Number of calls in the trace.
    pub calls: u64,
    /// The policies, in the order in which they were given.
    pub policies: [Side; 2],
    /// The first call that differs.
    pub first: Option<Parting>,
    /// Number of calls that differ.
    pub differing_calls: u64,
    /// The calls that differ, by kind, place and what each policy did; the most frequent first.
    pub differences: Vec<Group>,
    /// Number of VMAs during the replay.
    pub over_time: OverTime,
    /// Remarks of the recorder and of the replay.
    pub notes: Vec<String>,
}

/// Counts of one policy.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Side {
    /// Name of the policy.
    pub name: String,
    /// Peak number of VMAs in all live address spaces together.
    pub vmas_peak: u64,
    /// Sum of the numbers of VMAs that the address spaces had when they ended.
    pub vmas_exit: u64,
    /// Memory in bytes that the VMAs take at the peak: [`VMA_BYTES`] for each.
    pub bytes_peak: u64,
    /// Number of merges, by kind.
    pub merges: BTreeMap<String, u64>,
    /// Merges that only this policy makes, or that remove more boundaries than those of the other
    /// policy, by kind.
    pub only_merges: BTreeMap<String, u64>,
    /// Number of splits.
    pub splits: u64,
}

/// A call at which the policies part.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parting {
    /// Number of the call in the trace, counted from 1.
    pub number: u64,
    /// Position of the event in the trace, counted from 1.
    pub event: u64,
    /// The trace's number for the address space.
    pub mm: u32,
    /// The call with its arguments and its recorded result.
    pub call: String,
    /// What is mapped at the place of the difference.
    pub place: &'static str,
    /// First address of the place.
    pub address: u64,
    /// What each policy did, and why.
    pub did: [String; 2],
}

/// Calls of one kind that differ in the same way.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Group {
    /// Name of the call.
    pub call: String,
    /// What is mapped at the place of the difference.
    pub place: &'static str,
    /// What each policy did, and why.
    pub did: [String; 2],
    /// Number of calls.
    pub count: u64,
    /// Number of the first such call in the trace, counted from 1.
    pub first_call: u64,
    /// First address of that call's place.
    pub first_address: u64,
}

/// Largest number of VMAs in each of several equal parts of the trace.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OverTime {
    /// Number of calls in one part.
    pub calls_per_point: u64,
    /// Number of VMAs in all live address spaces together, for each policy.
    pub vmas: [Vec<u64>; 2],
    /// Numbers of VMAs after the last call.
    #[serde(skip)]
    last: [u64; 2],
}

impl OverTime {
    /// Adds the numbers of VMAs after the call with this number, counted from 1.
    fn add(&mut self, call: u64, vmas: [u64; 2]) {
        self.calls_per_point = self.calls_per_point.max(1);
        while (call - 1) / self.calls_per_point >= MOST_POINTS as u64 {
            self.calls_per_point *= 2;
            for points in &mut self.vmas {
                *points = points
                    .chunks(2)
                    .map(|pair| pair.iter().copied().max().unwrap_or(0))
                    .collect();
            }
        }
        let point = ((call - 1) / self.calls_per_point) as usize;
        let before = std::mem::replace(&mut self.last, vmas);
        for (points, (before, now)) in self.vmas.iter_mut().zip(before.into_iter().zip(vmas)) {
            // A part begins with the number with which the part before it ended.
            while points.len() <= point {
                points.push(before);
            }
            points[point] = points[point].max(now);
        }
    }
}

/// A decided merge attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tried {
    call: CallKind,
    range: VmRange,
    merged: Option<MergeKind>,
    refused: [Option<Refusal>; 2],
}

impl Tried {
    /// Returns what became of the attempt. The reason for a refusal does not belong to it: two
    /// policies that refuse for different reasons do the same.
    fn outcome(&self) -> (CallKind, VmRange, Option<MergeKind>) {
        (self.call, self.range, self.merged)
    }

    /// Returns the number of boundaries that the merge removes.
    fn boundaries(&self) -> u32 {
        match self.merged {
            None => 0,
            Some(MergeKind::JoinAcross | MergeKind::JoinThree) => 2,
            Some(_) => 1,
        }
    }

    fn text(&self) -> String {
        let mut parts: Vec<_> = self
            .merged
            .iter()
            .map(|kind| kind.name().to_owned())
            .collect();
        for (side, refusal) in ["previous", "next"].into_iter().zip(self.refused) {
            parts.extend(refusal.map(|why| format!("{side} refused: {}", why.name())));
        }
        if parts.is_empty() {
            parts.push("no neighbour".to_owned());
        }
        let collected = self.call == CallKind::Collect;
        format!(
            "{}{}",
            if collected { "later " } else { "" },
            parts.join(", ")
        )
    }
}

#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<Tried>>>);

impl Log {
    fn take(&self) -> Vec<Tried> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for Log {
    fn attempt(&self, attempt: &Attempt<'_>) {
        let tried = Tried {
            call: attempt.call,
            range: attempt.proposal.range,
            merged: attempt.verdict.plan.map(|plan| plan.kind),
            refused: [attempt.verdict.left, attempt.verdict.right],
        };
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(tried);
    }
}

/// Watches the two worlds of a comparison during a replay.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    logs: [Log; 2],
    vmas: [u64; 2],
    found: Compared,
    groups: BTreeMap<Key, Group>,
    /// Results of the call that is being replayed.
    pub(crate) results: [Option<i64>; 2],
}

/// Name of a call, place, and what each policy did.
type Key = (String, &'static str, [String; 2]);

impl Watch {
    /// Prepares for the next call.
    pub(crate) fn before(&mut self, call: &Call, worlds: &[World]) {
        for ((log, vmas), world) in self.logs.iter().zip(&mut self.vmas).zip(WORLDS) {
            log.take();
            *vmas = worlds[world].vmas(call.mm);
        }
        self.results = [None; 2];
    }

    /// Compares what the policies have done in a call.
    pub(crate) fn after(
        &mut self,
        (action, call): (&Action, &Call),
        (number, event): (u64, u64),
        worlds: &[World],
    ) {
        let [a, b] = WORLDS.map(|world| &worlds[world]);
        let total = [a, b].map(World::total_vmas);
        self.found.over_time.add(number.max(1), total);
        let tried = [0, 1].map(|side: usize| self.logs[side].take());
        let added = [(a, 0), (b, 1)]
            .map(|(world, side)| world.vmas(call.mm) as i64 - self.vmas[side] as i64);
        let flags = flags::apart([a, b], action, call);
        let same = self.results[0] == self.results[1] && added[0] == added[1] && flags.is_none();
        if tried[0].is_empty() && tried[1].is_empty() && same {
            return;
        }
        self.count_merges(&tried);
        let [ours, others] = [0, 1].map(|side: usize| tried[side].iter().map(Tried::outcome));
        if ours.eq(others) && same {
            return;
        }
        let uneven = |side: usize| {
            let others: Vec<_> = tried[1 - side].iter().map(Tried::outcome).collect();
            tried[side]
                .iter()
                .find(|one| !others.contains(&one.outcome()))
        };
        let address = uneven(0).or(uneven(1)).map(|one| one.range.start);
        let address = address.or(flags.map(|flags| flags.address));
        let address = address.unwrap_or(call.args[0]);
        let place = place(a, call, address).or_else(|| place(b, call, address));
        let place = place.unwrap_or("unmapped");
        let did = [0, 1].map(|side: usize| {
            let mut parts: Vec<_> = tried[side].iter().map(Tried::text).collect();
            if self.results[0] != self.results[1] {
                parts.extend(self.results[side].map(result));
            }
            parts.extend(flags.map(|flags| flags.text(side)));
            parts.push(format!("{:+} VMAs", added[side]));
            parts.join("; ")
        });
        self.differs(call, (number, event), (place, address), did);
    }

    /// Counts the merges that only one policy makes.
    fn count_merges(&mut self, tried: &[Vec<Tried>; 2]) {
        for side in [0, 1] {
            let mut others = tried[1 - side].clone();
            for one in tried[side].iter() {
                let Some(kind) = one.merged else { continue };
                let same = |other: &Tried| {
                    other.range == one.range && other.boundaries() >= one.boundaries()
                };
                match others.iter().position(same) {
                    Some(at) => drop(others.swap_remove(at)),
                    None => {
                        let only = &mut self.found.policies[side].only_merges;
                        *only.entry(kind.name().to_owned()).or_default() += 1;
                    }
                }
            }
        }
    }

    fn differs(
        &mut self,
        call: &Call,
        (number, event): (u64, u64),
        (place, address): (&'static str, u64),
        did: [String; 2],
    ) {
        self.found.differing_calls += 1;
        if self.found.first.is_none() {
            self.found.first = Some(Parting {
                number,
                event,
                mm: call.mm.0,
                call: call_text(call),
                place,
                address,
                did: did.clone(),
            });
        }
        let text = call_text(call);
        let name = text.split('(').next().unwrap_or(&text).to_owned();
        let key = (name.clone(), place, did.clone());
        let group = self.groups.entry(key).or_insert_with(|| Group {
            call: name,
            place,
            did,
            count: 0,
            first_call: number,
            first_address: address,
        });
        group.count += 1;
    }

    fn finish(self, worlds: &mut [World]) -> Compared {
        let mut found = self.found;
        found.differences = self.groups.into_values().collect();
        let order = |group: &Group| (std::cmp::Reverse(group.count), group.first_call);
        found.differences.sort_by_key(order);
        for (side, world) in found.policies.iter_mut().zip(WORLDS) {
            let world = &mut worlds[world];
            world.finish();
            side.name = world.name.to_owned();
            side.vmas_peak = world.report.vmas_peak;
            side.vmas_exit = world.report.vmas_exit;
            side.bytes_peak = world.report.vmas_peak.saturating_mul(VMA_BYTES);
            side.merges = world.report.merges.clone();
            side.splits = world.report.splits;
        }
        found
    }
}

/// Describes the result of a call.
fn result(result: i64) -> String {
    let errno = verify::errno(result);
    errno.map_or_else(
        || format!("returns {result:#x}"),
        |name| format!("fails with {name}"),
    )
}

/// Returns what is mapped at an address.
fn place(world: &World, call: &Call, address: u64) -> Option<&'static str> {
    let read = world.space.mmap_read_lock(world.existing(call.mm)?)?;
    let vma = read
        .find_vma(address)
        .filter(|vma| vma.range.contains(address))?;
    let layout = read.state().layout;
    Some(if vma.body.flags.contains(VmFlags::GROWSDOWN) {
        "stack"
    } else if vma.body.flags.contains(VmFlags::MAYSHARE) {
        "shared"
    } else if !vma.body.is_anonymous() {
        "file"
    } else if (layout.start_brk..layout.brk).contains(&address) {
        "heap"
    } else {
        "anonymous"
    })
}

/// Compares two policies on a trace, event by event.
pub struct Comparison(Replayer);

impl Comparison {
    /// Prepares the comparison on a trace with this header. The policy `linux` stands for the rules
    /// of the recorded kernel.
    ///
    /// # Errors
    /// Fails if the trace was recorded with another page size or on another architecture.
    pub fn new(header: &Header, policies: [&PolicyName; 2]) -> Result<Comparison, Error> {
        let mut replayer = Replayer::new(header, &Options::default())?;
        let watch = Watch::default();
        for (named, log) in policies.into_iter().zip(&watch.logs) {
            let policy = match named.policy() {
                policy if policy.name == "linux" => machine::rules(header).policy,
                policy => policy,
            };
            let mut world = World::new(policy.name, policy, machine::system(header));
            world.space.set_observer(Box::new(log.clone()));
            replayer.worlds.push(world);
            let note = named.note().map(str::to_owned);
            replayer.report.notes.extend(note);
        }
        replayer.watch = Some(Box::new(watch));
        Ok(Comparison(replayer))
    }

    /// Replays the next event under both policies.
    ///
    /// # Errors
    /// Fails if the event is impossible after those before it.
    pub fn event(&mut self, event: &Event) -> Result<(), Error> {
        self.0.event(event)
    }

    /// Ends all remaining address spaces and returns the result.
    pub fn finish(self) -> Compared {
        let mut replayer = self.0;
        let watch = replayer.watch.take().unwrap_or_default();
        Compared {
            events: replayer.report.events,
            calls: replayer.report.calls,
            notes: replayer.report.notes,
            ..watch.finish(&mut replayer.worlds)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_keep_the_largest_number_of_vmas_of_their_part() {
        let mut points = OverTime::default();
        for call in 1..=1000u64 {
            let now = if call == 500 { 77 } else { call / 100 };
            points.add(call, [now, 1]);
        }
        assert_eq!(points.calls_per_point, 16);
        assert_eq!(points.vmas[0].len(), 63);
        assert_eq!(points.vmas[0][499 / 16], 77);
        assert_eq!(points.vmas[0][30], 4, "the peak is in one part only");
        assert_eq!(points.vmas[0][33], 5);
        assert_eq!(points.vmas[0][62], 10);
        assert!(points.vmas[1].iter().all(|&vmas| vmas == 1));
    }
}
