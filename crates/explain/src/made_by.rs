//! Calls that created the boundaries, by reason, and the call sites in the program.

use super::origins::Origin;
use super::prevention::Prevented;
use super::recorded::Recorded;
use serde::Serialize;
use std::collections::HashMap;
use vmarea_process::{Boundary, Reason};

/// Maximum number of stacks that are shown.
const STACKS: usize = 5;

/// A call and the number of boundaries that it created.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MadeBy {
    /// Name of the call.
    pub call: String,
    /// Number of boundaries created by the call that still exist at the examined moment.
    pub mappings: u64,
}

/// A call site in the program and the number of boundaries that its calls created.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MadeFrom {
    /// Reason why the mappings are separate.
    pub reason: &'static str,
    /// Name of the call.
    pub call: String,
    /// Number of boundaries created by this call at this call site.
    pub mappings: u64,
    /// Names of the stack frames, innermost first.
    pub stack: Vec<String>,
}

/// Boundaries in a recorded program, with their origins.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// The boundaries.
    pub boundaries: &'a [Boundary],
    /// Recording to which the boundaries belong.
    pub recorded: &'a Recorded,
    /// Stacks, indexed by stack number.
    pub stacks: &'a [Vec<String>],
}

impl Traced<'_> {
    fn each(&self) -> impl Iterator<Item = (Reason, &Origin)> {
        let origins = self.recorded.origins.iter().skip(1);
        let each = self.boundaries.iter().zip(origins);
        each.filter_map(|(boundary, origin)| Some((boundary.reason, origin.as_ref()?)))
    }

    /// Returns the calls that created the boundaries with one reason, most boundaries first.
    pub fn calls(&self, reason: Reason) -> Vec<MadeBy> {
        let of_reason = self.each().filter(|(r, _)| *r == reason);
        let counted = most(of_reason.map(|(_, origin)| &origin.call));
        let made = counted.into_iter().map(|(call, mappings)| MadeBy {
            call: call.clone(),
            mappings,
        });
        made.collect()
    }

    /// Returns the changes to the program, with the functions whose calls they replace.
    pub fn prevented(&self) -> Vec<Prevented> {
        let site = |stack: u32| {
            let frames = self.stacks.get(stack as usize)?;
            // The innermost frames are the C library's.
            let own = frames.iter().find(|frame| !frame.contains("libc"));
            own.or(frames.first()).cloned()
        };
        let mut all = self.recorded.prevented.clone();
        for change in &mut all {
            change.site = change.stack.and_then(site);
        }
        all
    }

    /// Returns the call sites in the program that created the most boundaries.
    pub fn places(&self) -> Vec<MadeFrom> {
        let stacked = self.each().filter(|(_, origin)| origin.stack.is_some());
        let counted = most(stacked);
        let shown = counted.into_iter().take(STACKS);
        let made = shown.map(|((reason, origin), mappings)| MadeFrom {
            reason: reason.name(),
            call: origin.call.clone(),
            mappings,
            stack: origin
                .stack
                .and_then(|number| self.stacks.get(number as usize).cloned())
                .unwrap_or_default(),
        });
        made.collect()
    }
}

/// Counts equal items; sorts them by count, largest first, then by first occurrence.
fn most<T: std::hash::Hash + Eq + Copy>(things: impl Iterator<Item = T>) -> Vec<(T, u64)> {
    let mut counts: HashMap<T, (usize, u64)> = HashMap::new();
    for (n, thing) in things.enumerate() {
        counts.entry(thing).or_insert((n, 0)).1 += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, (first, count))| (std::cmp::Reverse(*count), *first));
    let plain = counts.into_iter().map(|(thing, (_, count))| (thing, count));
    plain.collect()
}

#[cfg(test)]
mod tests {
    use super::most;

    #[test]
    fn the_most_frequent_comes_first() {
        let counted = most("b a c a c a".split(' '));
        assert_eq!(counted, [("a", 3), ("c", 2), ("b", 1)]);
    }
}
