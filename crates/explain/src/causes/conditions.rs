//! What must be true of a process for a pattern to show its cause.
//!
//! Many causes leave the same list of mappings, so each names what tells it apart: a library that is
//! loaded, a setting, where the stack pointers of the threads are, which pages have been touched. A
//! condition on the process is not met if the fact is not known.

use super::counts::most_frequent;
use super::space::{Part, Space};
use super::subject::Subject;
use serde::Deserialize;
use std::collections::HashSet;
use vmarea::types::PAGE_SIZE;

/// Number of pieces of memory whose pages are looked at.
const SAMPLE: usize = 200;

/// To whom the stacks of a pattern belong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stacks {
    /// Threads run on them.
    Threads,
    /// They hold descriptors of threads, but there are far fewer threads.
    EndedThreads,
    /// They are used as stacks, from the top, and hold no descriptors of threads.
    Coroutines,
}

impl Stacks {
    /// Says to whom the stacks belong.
    pub fn words(self) -> &'static str {
        match self {
            Stacks::Threads => "on which threads run",
            Stacks::EndedThreads => {
                "with descriptors of threads, of which there are fewer than half"
            }
            Stacks::Coroutines => {
                "used from the top, without descriptors of threads, and at most one thread for ten of them"
            }
        }
    }
}

/// How many threads there are beside the stacks of a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Threads {
    /// At least one for two stacks.
    AsMany,
    /// At most one for ten stacks.
    Few,
}

impl Threads {
    /// Says how many threads there are.
    pub fn words(self) -> &'static str {
        match self {
            Threads::AsMany => "at least one thread for two of them",
            Threads::Few => "at most one thread for ten of them",
        }
    }

    fn fit(self, threads: u64, stacks: u64) -> bool {
        match self {
            Threads::AsMany => threads * 2 >= stacks,
            Threads::Few => threads * 10 <= stacks,
        }
    }
}

/// Conditions besides the mappings of the pattern themselves.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// Names, one of which must occur somewhere in the list.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Names that must not occur.
    #[serde(default)]
    pub absent: Vec<String>,
    /// To whom the stacks belong.
    pub stacks: Option<Stacks>,
    /// Only if the process is not running, so that nothing is known of its stacks but their shapes.
    #[serde(default)]
    pub not_running: bool,
    /// How many threads there are, if a recording says so.
    pub threads: Option<Threads>,
    /// Value of `vm.overcommit_memory`; in a list of mappings, which does not show it, any.
    pub overcommit: Option<u64>,
    /// The pieces and their guards have neither one size nor the form of stacks.
    #[serde(default)]
    pub not_stacks: bool,
    /// The pieces begin as heaps of glibc's malloc do.
    #[serde(default)]
    pub malloc_heaps: bool,
    /// A part of the address space that is full.
    pub space: Option<Part>,
}

/// What the evidence says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Judged {
    /// Number of stacks that hold a stack pointer.
    pub held: u64,
    /// Number of stack pointers that are known.
    pub known: u64,
    /// Number of threads of the process.
    pub threads: u64,
    /// Name of the library that is loaded.
    pub library: String,
    /// Number of the files that are also open, if known.
    pub open: Option<u64>,
    /// Value of `vm.overcommit_memory`, if known.
    pub overcommit: Option<u64>,
    /// How full the address space is.
    pub space: Space,
}

impl Conditions {
    /// Checks the conditions on the list and the settings; returns the library that must be loaded.
    pub fn of_list(&self, subject: &Subject<'_>) -> Option<String> {
        if self.not_running && subject.evidence.is_of_running_process() {
            return None;
        }
        if let (Some(wanted), Some(found)) = (self.overcommit, subject.evidence.overcommit())
            && wanted != found
        {
            return None;
        }
        if subject.named(&self.absent).is_some() {
            return None;
        }
        if self.needs.is_empty() {
            return Some(String::new());
        }
        let path = subject.named(&self.needs)?;
        Some(path.rsplit('/').next().unwrap_or(path).to_owned())
    }

    /// Checks the conditions on the process, and returns the sequences that meet them; each has `len`
    /// mappings.
    pub fn of_process(
        &self,
        len: usize,
        subject: &Subject<'_>,
        starts: Vec<usize>,
    ) -> Option<(Vec<usize>, Judged)> {
        if self.not_stacks && are_like_stacks(len, subject, &starts) {
            return None;
        }
        if self.malloc_heaps && are_malloc_heaps(subject, &starts) != Some(true) {
            return None;
        }
        let count = starts.len() as u64;
        if let (Some(wanted), Some(threads)) = (self.threads, subject.threads)
            && !wanted.fit(threads, count)
        {
            return None;
        }
        if let Some(part) = self.space {
            let space = Space::of(subject.mappings, part)?;
            let judged = Judged {
                space,
                ..Judged::default()
            };
            return space.is_full().then_some((starts, judged));
        }
        let Some(stacks) = self.stacks else {
            return Some((starts, Judged::default()));
        };
        let lasts = starts.iter().map(|start| *start + len - 1);
        let held = lasts.filter(|n| subject.stack_pointers_in(*n) > 0);
        let judged = Judged {
            threads: subject.threads?,
            known: subject.evidence.stack_pointers()?.count(),
            held: held.count() as u64,
            ..Judged::default()
        };
        let is_met = match stacks {
            Stacks::Threads => return of_threads(len, subject, starts, judged),
            Stacks::EndedThreads => {
                judged.threads * 2 <= count && hold_descriptors(len, subject, &starts) == Some(true)
            }
            Stacks::Coroutines => {
                Threads::Few.fit(judged.threads, count)
                    && hold_descriptors(len, subject, &starts) == Some(false)
                    && are_used_from_the_top(len, subject, &starts)
            }
        };
        is_met.then_some((starts, judged))
    }
}

/// True if most pieces have one size, and a guard of one page.
fn are_like_stacks(len: usize, subject: &Subject<'_>, starts: &[usize]) -> bool {
    let sizes = |start: &usize| {
        let all = *start..*start + len;
        let guards = all
            .clone()
            .filter(|n| !subject.mappings[*n].is_accessible());
        let guard: u64 = guards.map(|n| subject.size(n)).sum();
        (guard, all.map(|n| subject.size(n)).sum::<u64>())
    };
    let Some(usual) = most_frequent(starts.iter().map(sizes)) else {
        return false;
    };
    let alike = starts.iter().filter(|start| sizes(start) == usual).count();
    usual.0 == PAGE_SIZE && alike * 5 >= starts.len() * 4
}

/// Returns the sequences that hold the stack pointer of a thread, and those of the same sizes, if
/// there are not far more of them than threads.
fn of_threads(
    len: usize,
    subject: &Subject<'_>,
    mut starts: Vec<usize>,
    mut judged: Judged,
) -> Option<(Vec<usize>, Judged)> {
    let size = |start: &usize| subject.size(*start + len - 1);
    let holds = |start: &&usize| subject.stack_pointers_in(**start + len - 1) > 0;
    let sizes: HashSet<_> = starts.iter().filter(holds).map(size).collect();
    starts.retain(|start| sizes.contains(&size(start)));
    judged.held = starts.iter().filter(holds).count() as u64;
    let count = starts.len() as u64;
    let most_hold = judged.held * 2 >= count.min(judged.known);
    (count > 0 && most_hold && Threads::AsMany.fit(judged.threads, count))
        .then_some((starts, judged))
}

/// Returns some of the pieces, spread over all of them.
fn sample(starts: &[usize]) -> impl ExactSizeIterator<Item = usize> {
    let step = starts.len().div_ceil(SAMPLE).max(1);
    starts.iter().copied().step_by(step)
}

/// Checks whether the pieces hold descriptors of threads; `None` if only some do, or if their memory
/// cannot be read.
fn hold_descriptors(len: usize, subject: &Subject<'_>, starts: &[usize]) -> Option<bool> {
    let all = sample(starts).len();
    let mut held = 0;
    for start in sample(starts) {
        let end = subject.mappings[start + len - 1].entry.end;
        held += usize::from(subject.evidence.has_thread_descriptor(end)?);
    }
    match held * 10 {
        few if few <= all => Some(false),
        many if many >= all * 9 => Some(true),
        _ => None,
    }
}

/// True if nearly every piece begins as a heap of glibc's malloc does; `None` if the memory cannot be
/// read.
fn are_malloc_heaps(subject: &Subject<'_>, starts: &[usize]) -> Option<bool> {
    let all = sample(starts).len();
    let mut heaps = 0;
    for start in sample(starts) {
        let start = subject.mappings[start].entry.start;
        heaps += usize::from(subject.evidence.is_malloc_heap(start)?);
    }
    Some(heaps * 10 >= all * 9)
}

/// True if the last page of nearly every piece has been touched, and its first page has not.
fn are_used_from_the_top(len: usize, subject: &Subject<'_>, starts: &[usize]) -> bool {
    let is_used = |start: &usize| {
        let entry = &subject.mappings[start + len - 1].entry;
        let touched = |address| subject.evidence.is_touched(address);
        touched(entry.end - 1) == Some(true) && touched(entry.start) == Some(false)
    };
    let all = sample(starts).len();
    sample(starts).filter(is_used).count() * 10 >= all * 9
}
