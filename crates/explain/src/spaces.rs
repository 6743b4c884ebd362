//! The address spaces of a recording, without those that only continue an earlier one.
//!
//! If the records of an attached recording are lost, each address space is recorded anew from its
//! next list of mappings, and then has another id. It is still the same address space of the same
//! process, and a person who counts the address spaces of a recording expects it once.

use std::collections::HashSet;
use vmarea_trace::event::{Event, MmId, Origin, Tid};

/// Counts of address spaces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spaces {
    started: u64,
    restarts: u64,
    /// Address spaces that existed before they were recorded, and of which no task is known yet.
    attached: HashSet<MmId>,
    /// Processes whose address spaces existed before they were recorded.
    processes: HashSet<Tid>,
}

impl Spaces {
    /// Takes note of the next event of the recording.
    pub fn follow(&mut self, event: &Event) {
        match event {
            Event::MmStart(start) => {
                self.started += 1;
                if start.origin == Origin::Attach {
                    self.attached.insert(start.mm);
                }
            }
            Event::TaskStart { pid, mm, .. } if self.attached.remove(mm) => {
                let is_new = self.processes.insert(*pid);
                self.restarts += u64::from(!is_new);
            }
            _ => {}
        }
    }

    /// Returns the number of address spaces.
    pub fn count(&self) -> u64 {
        self.started - self.restarts
    }

    /// Returns how often the recording of an address space began anew.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_trace::event::MmStart;

    #[test]
    fn an_address_space_that_is_recorded_anew_is_not_another_one() {
        let mut spaces = Spaces::default();
        let mut starts = |mm, origin, pid| {
            let mm = MmId(mm);
            spaces.follow(&Event::MmStart(MmStart { mm, origin, t: 0 }));
            for tid in [pid, pid + 100] {
                let (tid, pid) = (Tid(tid), Tid(pid));
                spaces.follow(&Event::TaskStart { tid, pid, mm, t: 0 });
            }
        };
        starts(1, Origin::Attach, 7);
        starts(2, Origin::Fork { parent: MmId(1) }, 8);
        starts(3, Origin::Attach, 7);
        starts(4, Origin::Attach, 9);
        starts(5, Origin::Exec, 7);
        assert_eq!((spaces.count(), spaces.restarts()), (4, 1));
    }
}
