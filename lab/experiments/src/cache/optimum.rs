//! The most hits that a cache of a given size can have: the optimum of a cache that knows the future.
//!
//! A thread's cache can answer a lookup only with a VMA that an earlier lookup of the thread found,
//! or that took the place of such a VMA when that one was removed, and must have kept it since. If
//! it has to give up a VMA, the best choice is the one that answers the latest lookup (Belády,
//! 1966). A VMA that answers none need not be kept at all.

use std::collections::HashMap;
use std::hash::Hash;

/// What happens to the VMAs that a thread has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step<V> {
    /// A lookup found a VMA, which contains the address or starts above it.
    Found(V, bool),
    /// A VMA was removed; the second one is before it, and may have merged with it.
    Removed(V, V),
}

/// Returns the most lookups that a cache with `slots` entries can answer.
pub(super) fn hits<V: Copy + Eq + Hash>(steps: &[Step<V>], slots: usize) -> u64 {
    // The lookups that the kept VMAs will answer.
    let mut kept: Vec<usize> = Vec::new();
    let mut hits = 0;
    for (now, answer) in answers(steps).into_iter().enumerate() {
        if let Some(at) = kept.iter().position(|lookup| *lookup == now) {
            kept.swap_remove(at);
            hits += 1;
        }
        kept.extend(answer);
        if kept.len() > slots
            && let Some(latest) = (0..kept.len()).max_by_key(|at| kept[*at])
        {
            kept.swap_remove(latest);
        }
    }
    hits
}

/// Returns for each lookup the next one that its VMA answers, if the VMA is kept until then.
fn answers<V: Copy + Eq + Hash>(steps: &[Step<V>]) -> Vec<Option<usize>> {
    let mut answers = vec![None; steps.len()];
    let mut last: HashMap<V, usize> = HashMap::new();
    for (now, step) in steps.iter().enumerate() {
        match *step {
            Step::Found(vma, contains) => {
                if let Some(before) = last.insert(vma, now)
                    && contains
                {
                    answers[before] = Some(now);
                }
            }
            Step::Removed(vma, prev) => {
                if let Some(found) = last.remove(&vma) {
                    let of_prev = last.entry(prev).or_insert(found);
                    *of_prev = found.max(*of_prev);
                }
            }
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::{Step, hits};

    fn all(text: &str) -> Vec<Step<char>> {
        // A small letter stands for a lookup below the VMA.
        let lookup = |c: char| Step::Found(c.to_ascii_uppercase(), c.is_ascii_uppercase());
        text.chars().map(lookup).collect()
    }

    #[test]
    fn the_vma_that_is_needed_last_gives_way() {
        let rounds = all("ABCABCABC");
        assert_eq!([1, 2, 3].map(|slots| hits(&rounds, slots)), [2, 4, 6]);
        // The least recently used of two would give up A for X, and answer nothing.
        let past = all("ABXABYAB");
        assert_eq!([1, 2].map(|slots| hits(&past, slots)), [2, 4]);
    }

    #[test]
    fn a_lookup_in_a_hole_brings_a_vma_but_is_never_answered() {
        assert_eq!(hits(&all("aA"), 1), 1);
        assert_eq!(hits(&all("Aa"), 1), 0);
        // A is not kept beside C, because the search in the hole brings it again.
        assert_eq!(hits(&all("ACCaA"), 1), 2);
    }

    #[test]
    fn a_vma_that_merges_answers_with_the_one_before_it() {
        let mut steps = all("B");
        steps.push(Step::Removed('B', 'A'));
        steps.extend(all("A"));
        assert_eq!(hits(&steps, 1), 1);
        steps[1] = Step::Removed('C', 'A');
        assert_eq!(hits(&steps, 1), 0);
    }
}
