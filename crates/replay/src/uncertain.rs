//! Uncertain ranges: memory that was changed by operations that are not in the recording.
//!
//! It is unknown whether a mapping has an anon_vma, or where it was split, if a userfaultfd may
//! have filled its pages or a call that is not modelled has changed it. Such ranges are recorded,
//! and so are mappings of unknown files. A difference inside them counts as *undecided*; a
//! difference elsewhere remains a difference.

use super::Replayer;
use super::action::{self, Action, Opaque};
use super::doubt::Doubt;
use super::world::World;
use std::collections::BTreeMap;
use vmarea::syscall::Syscall;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::syscall::shm::ShmatRequest;
use vmarea::types::{VmRange, page_align};
use vmarea_trace::event::{Call, FileId, MmId};

/// The uncertain ranges of one address space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uncertain {
    /// First address of each range, the address after its last byte, and why it is uncertain. The
    /// ranges are disjoint and not adjacent.
    ranges: BTreeMap<u64, (u64, Doubt)>,
}

impl Uncertain {
    /// Adds a range that has changed in an unknown way. If it joins others, the reason of the lowest
    /// one stands for all.
    pub(crate) fn add(&mut self, (mut start, mut end): (u64, u64), mut doubt: Doubt) {
        if start >= end {
            return;
        }
        while let Some((&s, &(e, older))) = self.ranges.range(..=end).next_back()
            && e >= start
        {
            (start, end, doubt) = (start.min(s), end.max(e), older);
            self.ranges.remove(&s);
        }
        self.ranges.insert(start, (end, doubt));
    }

    /// Removes a range whose new content is fully known.
    pub(crate) fn remove(&mut self, (start, end): (u64, u64)) {
        while start < end
            && let Some((&s, &(e, doubt))) = self.ranges.range(..end).next_back()
            && e > start
        {
            self.ranges.remove(&s);
            if s < start {
                self.ranges.insert(s, (start, doubt));
            }
            if end < e {
                self.ranges.insert(end, (e, doubt));
            }
        }
    }

    /// Marks the destination range of a move as uncertain if the source range is uncertain.
    pub(crate) fn copy(&mut self, (start, end): (u64, u64), (to, to_end): (u64, u64)) {
        if let Some(doubt) = self.touches((start, end)) {
            self.add((to, to_end), doubt);
        }
    }

    /// Returns why a range is uncertain if it overlaps or adjoins an uncertain range.
    ///
    /// Adjoining ranges count, because a merge depends on both neighbours.
    pub(crate) fn touches(&self, (start, end): (u64, u64)) -> Option<Doubt> {
        let (_, &(last, doubt)) = self.ranges.range(..=end).next_back()?;
        (last >= start).then_some(doubt)
    }

    /// Returns why the result of the call is uncertain if it depends on an uncertain range.
    pub(super) fn affects(&self, action: &Action) -> Option<Doubt> {
        let call = match action {
            Action::Call(call) => call,
            // A range registered with a userfaultfd is always uncertain.
            Action::CallOn(..) => return Some(Doubt::Userfault),
            _ => return None,
        };
        action::ranges(call)
            .into_iter()
            .find_map(|(addr, len)| self.touches((addr, addr.saturating_add(len))))
    }
}

impl World {
    /// Returns a doubt if a call advises on memory with a protection key: whether the kernel discards
    /// sealed pages, or populates pages, depends on the thread's rights, which `WRPKRU` changes.
    pub(super) fn advises_key(&self, mm: MmId, action: &Action) -> Option<Doubt> {
        let Action::Call(call @ (Syscall::Madvise { .. } | Syscall::ProcessMadvise { .. })) =
            action
        else {
            return None;
        };
        let r = self.space.mmap_read_lock(self.existing(mm)?)?;
        let has_key = |(addr, len): (u64, u64)| {
            let mut vmas = r.vmas_in(VmRange::new(addr, addr.saturating_add(len)));
            vmas.any(|vma| vma.body.flags.pkey() != 0)
        };
        let mut ranges = action::ranges(call).into_iter();
        ranges.any(has_key).then_some(Doubt::Key)
    }
}

impl Replayer {
    /// Counts an action that is not modelled, and marks its range as uncertain.
    pub(super) fn unseen(&mut self, action: &Action, mm: MmId) {
        let (range, doubt) = match *action {
            Action::Userfault { start, len } => {
                self.report.userfault += 1;
                // The context may watch an address space other than the caller's.
                let range = (start, start.saturating_add(len));
                self.known
                    .values_mut()
                    .for_each(|known| known.uncertain.add(range, Doubt::Userfault));
                return;
            }
            Action::Opaque(Opaque { what, range }) => {
                self.report.opaque += 1;
                let kind = self.report.opaque_by_kind.entry(what.to_owned());
                *kind.or_default() += 1;
                (range, Doubt::Opaque(what))
            }
            _ => return,
        };
        let Some(known) = self.known.get_mut(&mm) else {
            return;
        };
        match range {
            Some(range) => known.uncertain.add(range, doubt),
            None => {
                known.doubtful.get_or_insert(doubt);
                known.unordered.get_or_insert(doubt);
            }
        }
    }

    /// Updates the uncertain ranges for a call that maps, moves or unmaps memory.
    pub(super) fn follow_uncertain(&mut self, action: &Action, call: &Call) {
        let mm = match *action {
            Action::CallOn(owner, _) => owner,
            _ => call.mm,
        };
        let Some(known) = self.known.get_mut(&mm) else {
            return;
        };
        let range = |start: u64, len: u64| {
            (
                start,
                start.saturating_add(page_align(len).unwrap_or(u64::MAX)),
            )
        };
        let uncertain = &mut known.uncertain;
        let (Action::Call(request) | Action::CallOn(_, request)) = action else {
            return;
        };
        match *request {
            Syscall::Mmap(MmapRequest { len, .. }) => {
                uncertain.remove(range(call.ret as u64, len));
                if call.file.is_some_and(|r| r.file == FileId::UNKNOWN) {
                    uncertain.add(range(call.ret as u64, len), Doubt::File);
                }
            }
            Syscall::Shmat(ShmatRequest { len, .. }) => {
                uncertain.remove(range(call.ret as u64, len));
            }
            Syscall::Munmap { addr, len } => uncertain.remove(range(addr, len)),
            Syscall::Mremap(MremapRequest {
                addr,
                old_len,
                new_len,
                ..
            }) => uncertain.copy(range(addr, old_len), range(call.ret as u64, new_len)),
            // Pages change there unrecorded, and the registration ends when the descriptor is
            // closed.
            Syscall::UserfaultfdRegister { addr, len, .. }
            | Syscall::UserfaultfdUnregister { addr, len, .. } => {
                uncertain.add(range(addr, len), Doubt::Userfault);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_are_cut() {
        let mut u = Uncertain::default();
        let ranges = |u: &Uncertain| {
            let ranges = u.ranges.iter().map(|(s, (e, _))| (*s, *e));
            ranges.collect::<Vec<_>>()
        };
        for range in [(10, 20), (30, 40), (20, 25), (5, 5)] {
            u.add(range, Doubt::File);
        }
        assert_eq!(ranges(&u), [(10, 25), (30, 40)]);
        for range in [(25, 26), (0, 10), (12, 13)] {
            assert_eq!(u.touches(range), Some(Doubt::File));
        }
        for range in [(26, 29), (41, 50), (0, 9)] {
            assert_eq!(u.touches(range), None);
        }
        u.remove((15, 35));
        assert_eq!(ranges(&u), [(10, 15), (35, 40)]);
        u.remove((11, 12));
        assert_eq!(ranges(&u), [(10, 11), (12, 15), (35, 40)]);
        u.copy((0, 9), (100, 200));
        u.copy((36, 37), (300, 400));
        assert_eq!(u.touches((150, 160)), None);
        assert_eq!(u.touches((350, 351)), Some(Doubt::File));
        u.add((0, 1000), Doubt::Userfault);
        assert_eq!(ranges(&u), [(0, 1000)]);
    }

    #[test]
    fn each_range_keeps_its_reason() {
        let mut u = Uncertain::default();
        u.add((10, 20), Doubt::File);
        u.add((30, 40), Doubt::Userfault);
        u.copy((30, 40), (50, 60));
        u.remove((32, 34));
        assert_eq!(u.touches((12, 13)), Some(Doubt::File));
        assert_eq!(u.touches((35, 36)), Some(Doubt::Userfault));
        assert_eq!(u.touches((55, 56)), Some(Doubt::Userfault));
    }
}
