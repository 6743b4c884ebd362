//! Log of a replay's lookups and index changes, with small numbers in place of ids.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use vmarea::lookup::{Change, Vmas};
use vmarea::types::{MmId, VmRange, VmaId};

/// One step of a log. Address spaces, threads and VMAs are numbered from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A thread starts to run in an address space.
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
    /// Encodes the step as words; the first word gives the kind of step.
    fn to_words(self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let fields: &[u64] = &match self {
            Step::Enter { thread, mm } => [0, thread.into(), mm.into(), 0, 0],
            Step::Leave { thread } => [1, thread.into(), 0, 0, 0],
            Step::Find { thread, mm, addr } => [2, thread.into(), mm.into(), addr, 0],
            Step::Link { mm, vma, range } => [3, mm.into(), vma.into(), range.start, range.end],
            Step::Resize { vma, start, range } => [4, vma.into(), start, range.start, range.end],
            Step::Unlink { vma, prev } => {
                [5, vma.into(), prev.map_or(0, |p| 1 + u64::from(p)), 0, 0]
            }
            Step::Unmapped { mm } => [6, mm.into(), 0, 0, 0],
        };
        words.copy_from_slice(fields);
        words
    }

    /// Decodes the result of [`Step::to_words`]; `None` if the kind of step is unknown.
    fn from_words([kind, a, b, c, d]: [u64; WORDS]) -> Option<Step> {
        let (thread, mm, vma) = (a as u32, b as u32, a as u32);
        Some(match kind {
            0 => Step::Enter { thread, mm },
            1 => Step::Leave { thread },
            2 => Step::Find {
                thread,
                mm,
                addr: c,
            },
            3 => Step::Link {
                mm: a as u32,
                vma: b as u32,
                range: VmRange { start: c, end: d },
            },
            4 => Step::Resize {
                vma,
                start: b,
                range: VmRange { start: c, end: d },
            },
            5 => Step::Unlink {
                vma,
                prev: b.checked_sub(1).map(|prev| prev as u32),
            },
            6 => Step::Unmapped { mm: a as u32 },
            _ => return None,
        })
    }
}

/// Number of words that encode a step in a file.
const WORDS: usize = 5;

/// All steps of a replay.
#[derive(Debug, Default)]
pub struct Log {
    pub(super) steps: Vec<Step>,
    /// The thread that made each step, if a thread did; not written to a file.
    pub(super) by: Vec<Option<u32>>,
    pub(super) mms: u32,
    pub(super) threads: u32,
    pub(super) vmas: u32,
    pub(super) finds: u64,
    /// Numbers assigned to the address spaces, by id.
    pub(super) mm_numbers: HashMap<MmId, u32>,
    pub(super) vma_numbers: HashMap<VmaId, u32>,
}

impl Log {
    /// Returns the number of lookups.
    pub fn lookups(&self) -> u64 {
        self.finds
    }

    fn mm(&mut self, mm: MmId) -> u32 {
        *self.mm_numbers.entry(mm).or_insert_with(|| {
            self.mms += 1;
            self.mms - 1
        })
    }

    /// Writes the log.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, to: impl Write) -> io::Result<()> {
        let mut to = io::BufWriter::new(to);
        let sizes = [self.mms, self.threads, self.vmas, 0, 0].map(u64::from);
        let steps = self.steps.iter().map(|step| step.to_words());
        for word in [sizes].into_iter().chain(steps).flatten() {
            to.write_all(&word.to_le_bytes())?;
        }
        to.flush()
    }

    /// Reads a log that [`Log::write`] wrote.
    ///
    /// # Errors
    /// Those of the reader, and `InvalidData` for an empty file or an unknown kind of step.
    pub fn read(mut from: impl Read) -> io::Result<Log> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes)?;
        let mut words = bytes.chunks_exact(8 * WORDS).map(|step| {
            let mut words = [0; WORDS];
            for (word, bytes) in words.iter_mut().zip(step.chunks_exact(8)) {
                let bytes = bytes.try_into().unwrap_or_default();
                *word = u64::from_le_bytes(bytes);
            }
            words
        });
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let [mms, threads, vmas, ..] = words.next().ok_or_else(invalid)?.map(|word| word as u32);
        let steps: Option<Vec<Step>> = words.map(Step::from_words).collect();
        let steps = steps.ok_or_else(invalid)?;
        let finds = steps
            .iter()
            .filter(|step| matches!(step, Step::Find { .. }));
        Ok(Log {
            mms,
            threads,
            vmas,
            finds: finds.count() as u64,
            steps,
            ..Log::default()
        })
    }

    fn push(&mut self, by: Option<u32>, step: Step) {
        self.steps.push(step);
        self.by.push(by);
    }

    pub(super) fn enter(&mut self, thread: u32, mm: MmId) {
        let mm = self.mm(mm);
        self.threads = self.threads.max(thread + 1);
        self.push(Some(thread), Step::Enter { thread, mm });
    }

    pub(super) fn leave(&mut self, thread: u32) {
        self.push(Some(thread), Step::Leave { thread });
    }

    pub(super) fn find(&mut self, thread: u32, mm: MmId, addr: u64) {
        let mm = self.mm(mm);
        self.finds += 1;
        self.push(Some(thread), Step::Find { thread, mm, addr });
    }

    /// Adds a change that a call or fault of the thread `by` made.
    pub(super) fn change(&mut self, by: Option<u32>, vmas: &dyn Vmas, change: Change) {
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
        if let Some(step) = step {
            self.push(by, step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_as_it_was_written() {
        let range = VmRange::new(0x1000, 0x3000);
        let log = Log {
            steps: vec![
                Step::Enter { thread: 1, mm: 2 },
                Step::Link {
                    mm: 2,
                    vma: 3,
                    range,
                },
                Step::Find {
                    thread: 1,
                    mm: 2,
                    addr: 4,
                },
                Step::Resize {
                    vma: 3,
                    start: 5,
                    range,
                },
                Step::Unlink { vma: 3, prev: None },
                Step::Unlink {
                    vma: 3,
                    prev: Some(0),
                },
                Step::Unmapped { mm: 2 },
                Step::Leave { thread: 1 },
            ],
            mms: 3,
            threads: 2,
            vmas: 4,
            finds: 1,
            ..Log::default()
        };
        let mut bytes = Vec::new();
        log.write(&mut bytes).unwrap();
        let read = Log::read(bytes.as_slice()).unwrap();
        assert_eq!(read.steps, log.steps);
        assert_eq!(
            (read.mms, read.threads, read.vmas, read.finds),
            (3, 2, 4, 1)
        );
        bytes[40] = 9;
        assert!(Log::read(bytes.as_slice()).is_err(), "no such step");
    }
}
