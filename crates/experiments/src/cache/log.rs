//! Lookups of a replay and the index changes between them, with small numbers instead of ids.

use std::collections::{BTreeMap, HashMap, VecDeque};
use vmarea::lookup::{Change, Vmas};
use vmarea::types::{MmId, VmRange, VmaId};

/// One step of a log. Address spaces, threads and VMAs are numbered from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A thread enters an address space, in which it then runs.
    Enter { thread: u32, mm: u32 },
    /// A thread ends.
    Leave { thread: u32 },
    /// A thread looks up an address.
    Find { thread: u32, mm: u32, addr: u64 },
    /// A new VMA is added to the index.
    Link { mm: u32, vma: u32, range: VmRange },
    /// The bounds of a VMA change.
    Resize {
        vma: u32,
        start: u64,
        range: VmRange,
    },
    /// A VMA is removed from the index.
    Unlink { vma: u32, prev: Option<u32> },
    /// A call has unmapped memory.
    Unmapped { mm: u32 },
}

impl Step {
    /// Returns the thread of a step that does not change an index.
    fn thread(&self) -> Option<u32> {
        match *self {
            Step::Enter { thread, .. } | Step::Leave { thread } | Step::Find { thread, .. } => {
                Some(thread)
            }
            Step::Link { .. }
            | Step::Resize { .. }
            | Step::Unlink { .. }
            | Step::Unmapped { .. } => None,
        }
    }
}

/// All steps of a replay.
#[derive(Debug, Default)]
pub struct Log {
    pub(super) steps: Vec<Step>,
    pub(super) mms: u32,
    pub(super) threads: u32,
    pub(super) vmas: u32,
    pub(super) finds: u64,
    /// Numbers of the live address spaces, by id.
    mm_numbers: HashMap<MmId, u32>,
    vma_numbers: HashMap<VmaId, u32>,
}

impl Log {
    fn mm(&mut self, mm: MmId) -> u32 {
        *self.mm_numbers.entry(mm).or_insert_with(|| {
            self.mms += 1;
            self.mms - 1
        })
    }

    /// Returns the log with the lookups of the threads interleaved.
    ///
    /// Between two changes the threads make one lookup each in turn, as if each thread had its own
    /// processor. Lookups change nothing, so their order between two changes is arbitrary.
    pub(super) fn in_turn(&self) -> Log {
        let mut steps = Vec::with_capacity(self.steps.len());
        let of_thread = |step: &Step| step.thread().is_some();
        for piece in self.steps.chunk_by(|a, b| of_thread(a) == of_thread(b)) {
            let mut queues: BTreeMap<u32, VecDeque<Step>> = BTreeMap::new();
            for step in piece {
                match step.thread() {
                    Some(thread) => queues.entry(thread).or_default().push_back(*step),
                    None => steps.push(*step),
                }
            }
            while !queues.is_empty() {
                queues.retain(|_, queue| {
                    steps.extend(queue.pop_front());
                    !queue.is_empty()
                });
            }
        }
        Log {
            steps,
            mms: self.mms,
            threads: self.threads,
            vmas: self.vmas,
            finds: self.finds,
            ..Log::default()
        }
    }

    pub(super) fn enter(&mut self, thread: u32, mm: MmId) {
        let mm = self.mm(mm);
        self.threads = self.threads.max(thread + 1);
        self.steps.push(Step::Enter { thread, mm });
    }

    pub(super) fn leave(&mut self, thread: u32) {
        self.steps.push(Step::Leave { thread });
    }

    pub(super) fn find(&mut self, thread: u32, mm: MmId, addr: u64) {
        let mm = self.mm(mm);
        self.finds += 1;
        self.steps.push(Step::Find { thread, mm, addr });
    }

    pub(super) fn change(&mut self, vmas: &dyn Vmas, change: Change) {
        let mm = self.mm(vmas.mm());
        let range = |vma| vmas.range(vma).unwrap_or(VmRange::new(0, 0));
        let step = match change {
            Change::Linked(id) => {
                let vma = self.vmas;
                self.vmas += 1;
                self.vma_numbers.insert(id, vma);
                let range = range(id);
                Some(Step::Link { mm, vma, range })
            }
            Change::Resized { vma, start } => self.vma_numbers.get(&vma).map(|number| {
                let range = range(vma);
                Step::Resize {
                    vma: *number,
                    start,
                    range,
                }
            }),
            Change::Unlinked { vma, prev } => {
                let prev = prev.and_then(|prev| self.vma_numbers.get(&prev).copied());
                let vma = self.vma_numbers.remove(&vma);
                vma.map(|vma| Step::Unlink { vma, prev })
            }
            Change::Unmapped => Some(Step::Unmapped { mm }),
        };
        self.steps.extend(step);
    }
}
