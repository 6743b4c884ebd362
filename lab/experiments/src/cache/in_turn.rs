//! The steps of a log as on a machine with a processor for each thread: a simulated order.
//!
//! The recorded order of the lookups depends on how the scheduler of the recording machine cut the
//! threads' time into slices. Here each thread keeps the order of its own steps, its lookups and
//! the changes that its calls made, and the threads make one lookup each in turn. A step waits only
//! for what it needs: a lookup must find at its address what it found in the recording, and a change
//! must meet the VMA that it changed. Two recordings in which the threads did the same things give
//! the same order, no matter how the threads' slices were interleaved.
//!
//! # Picture
//! ```text
//! recorded   1 1 1 c 1 1 2 2 c 2 2 2     c: a change, by the thread whose lookups surround it
//! in turn    1 2 1 2 1 c 2 c 1 2 1 2
//! ```

use super::log::{Log, Step};
use std::collections::{BTreeMap, HashMap, VecDeque};
use vmarea::types::{PAGE_SIZE, VmRange};

impl Log {
    /// Returns the log in a simulated order, in which each thread has a processor of its own.
    pub fn in_turn(&self) -> Log {
        let order = order(self);
        Log {
            steps: order.iter().map(|&step| self.steps[step]).collect(),
            by: order.iter().map(|&step| self.by[step]).collect(),
            mms: self.mms,
            threads: self.threads,
            vmas: self.vmas,
            finds: self.finds,
            ..Log::default()
        }
    }
}

/// Returns the numbers of a log's steps in the order in which the threads take turns.
fn order(log: &Log) -> Vec<usize> {
    let needs = Needs::of(log);
    let mut queues: BTreeMap<Option<u32>, VecDeque<usize>> = BTreeMap::new();
    for (step, by) in log.by.iter().enumerate() {
        queues.entry(*by).or_default().push_back(step);
    }
    let mut done = vec![false; log.steps.len()];
    let mut order = Vec::with_capacity(log.steps.len());
    // The first step in recorded order that is not done is never waiting, so each turn makes progress.
    while !queues.is_empty() {
        queues.retain(|_, queue| {
            while let Some(&step) = queue.front()
                && needs[step].iter().all(|needed| done[*needed])
            {
                queue.pop_front();
                done[step] = true;
                order.push(step);
                if matches!(log.steps[step], Step::Find { .. }) {
                    break;
                }
            }
            !queue.is_empty()
        });
    }
    order
}

/// Steps that a later step may have to wait for, in a range of addresses.
#[derive(Clone, Default)]
struct Touched {
    end: u64,
    /// The last change of the range.
    changed: Option<usize>,
    /// Each thread's last lookup since then.
    looked: Vec<(Option<u32>, usize)>,
}

/// What has happened so far in one address space.
#[derive(Default)]
struct Past {
    /// Disjoint ranges, by start.
    ranges: BTreeMap<u64, Touched>,
    /// Each thread's last step.
    last: HashMap<Option<u32>, usize>,
    /// The last step that no thread made. Nothing is known about its cause, so no step passes it.
    barrier: Option<usize>,
}

impl Past {
    /// Makes `addr` a boundary between two ranges, if it is within one.
    fn split(&mut self, addr: u64) {
        if let Some((_, before)) = self.ranges.range_mut(..addr).next_back()
            && before.end > addr
        {
            let after = before.clone();
            before.end = addr;
            self.ranges.insert(addr, after);
        }
    }

    /// Adds the ranges that together are `range`, and calls `touch` for each.
    fn touch(&mut self, range: VmRange, mut touch: impl FnMut(&mut Touched)) {
        self.split(range.start);
        self.split(range.end);
        let within = self.ranges.range(range.start..range.end);
        let mut gaps = Vec::new();
        let mut at = range.start;
        for (start, touched) in within {
            gaps.push((at, *start));
            at = touched.end;
        }
        gaps.push((at, range.end));
        for (start, end) in gaps.into_iter().filter(|(start, end)| start < end) {
            let touched = Touched {
                end,
                ..Touched::default()
            };
            self.ranges.insert(start, touched);
        }
        for (_, touched) in self.ranges.range_mut(range.start..range.end) {
            touch(touched);
        }
    }

    fn look(&mut self, step: usize, by: Option<u32>, addr: u64, needs: &mut Vec<usize>) {
        let start = addr / PAGE_SIZE * PAGE_SIZE;
        let page = VmRange {
            start,
            end: start.saturating_add(PAGE_SIZE),
        };
        self.touch(page, |touched| {
            needs.extend(touched.changed);
            touched.looked.retain(|(thread, _)| *thread != by);
            touched.looked.push((by, step));
        });
    }

    fn change(&mut self, step: usize, range: VmRange, needs: &mut Vec<usize>) {
        self.touch(range, |touched| {
            needs.extend(touched.changed.replace(step).filter(|last| *last != step));
            needs.extend(touched.looked.drain(..).map(|(_, look)| look));
        });
    }
}

/// Collects, for each step, the earlier steps that must come before it.
struct Needs {
    pasts: Vec<Past>,
    /// Each VMA's address space, range, and last change.
    vmas: HashMap<u32, (u32, VmRange, usize)>,
}

impl Needs {
    fn of(log: &Log) -> Vec<Vec<usize>> {
        let mut needs = Needs {
            pasts: (0..log.mms).map(|_| Past::default()).collect(),
            vmas: HashMap::new(),
        };
        let steps = log.steps.iter().zip(&log.by).enumerate();
        steps
            .map(|(number, (step, by))| needs.step(number, step, *by))
            .collect()
    }

    fn step(&mut self, number: usize, step: &Step, by: Option<u32>) -> Vec<usize> {
        let mut needs = Vec::new();
        let mm = match *step {
            Step::Leave { .. } => return needs,
            Step::Enter { mm, .. } | Step::Unmapped { mm } => mm,
            Step::Find { mm, addr, .. } => {
                self.pasts[mm as usize].look(number, by, addr, &mut needs);
                mm
            }
            Step::Link { mm, vma, range } => {
                self.vmas.insert(vma, (mm, range, number));
                self.pasts[mm as usize].change(number, range, &mut needs);
                mm
            }
            Step::Resize { vma, range, .. } => {
                let Some((mm, old, last)) = self.vmas.get_mut(&vma) else {
                    return needs;
                };
                needs.push(std::mem::replace(last, number));
                // What the VMA keeps is found as before.
                for part in difference(std::mem::replace(old, range), range) {
                    self.pasts[*mm as usize].change(number, part, &mut needs);
                }
                *mm
            }
            Step::Unlink { vma, .. } => {
                let Some((mm, range, last)) = self.vmas.remove(&vma) else {
                    return needs;
                };
                needs.push(last);
                self.pasts[mm as usize].change(number, range, &mut needs);
                mm
            }
        };
        let past = &mut self.pasts[mm as usize];
        needs.extend(past.barrier);
        if by.is_none() {
            needs.extend(past.last.values());
            past.barrier = Some(number);
        }
        past.last.insert(by, number);
        needs
    }
}

/// Returns the ranges that are in only one of two ranges.
fn difference(a: VmRange, b: VmRange) -> impl Iterator<Item = VmRange> {
    let part = |start: u64, end: u64| VmRange { start, end };
    let parts = if a.start < b.end && b.start < a.end {
        [
            part(a.start.min(b.start), a.start.max(b.start)),
            part(a.end.min(b.end), a.end.max(b.end)),
        ]
    } else {
        [a, b]
    };
    parts.into_iter().filter(|part| part.start < part.end)
}
