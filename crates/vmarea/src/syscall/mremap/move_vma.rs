//! Moves one VMA and its pages to a free address range.
//!
//! Either a neighbour of the new range grows into the range, or a new VMA is created there. The
//! pages then move into the grown or new VMA and get its anon_vma and page offsets. Finally the old
//! range is unmapped, or remains mapped without pages.
//!
//! # Picture
//! ```text
//!              source    destination
//!              AAVVVVBB  NN......
//! copy_vma     AAVVVVBB  NN____..    a VMA without pages, or NN that grows
//! move pages   AA____BB  NNVVVV..    an unfaulted VMA takes the page offset of its new address,
//!                                    a faulted VMA keeps its page offset, unless it is relocated
//! unmap        AA....BB  NNVVVV..    the source is removed; with DONTUNMAP it remains, empty and
//!                                    unlocked
//! ```
//!
//! # Linux
//! `mm/mremap.c` `move_vma`, `mm/vma.c` `copy_vma`, 6.18.

use super::context::Remap;
use crate::changes::Change;
use crate::mm::MmapWriteGuard;
use crate::mm::modify::Decided;
use crate::page::Kept;
use crate::page::moving::PageOwner;
use crate::policy::Merging;
use crate::policy::rules::MremapRoom;
use crate::refused::{Growing, Rule};
use crate::rmap::root_locks::AnonVmaRootLocks;
use crate::syscall::mmap::Placement;
use crate::syscall::munmap::Pages;
use crate::syscall::userfaultfd::unwatched;
use crate::types::call_flags::MremapFlags;
use crate::types::platform::Environment;
use crate::types::{Errno, PAGE_SHIFT, PageOffsets, VmFlags, VmRange, VmaId};
use crate::vma::merge::{CallKind, MergeScope, Plan, Proposal, Relocation};
use crate::vma::{VmaBody, VmaView};

impl<E: Environment> MmapWriteGuard<'_, E> {
    pub(super) fn move_vma(&mut self, r: &Remap, vma: &VmaView) -> Result<u64, Errno> {
        let (count, limit) = (self.state().map_count, self.space.system.max_map_count);
        let cuts =
            r.flags.contains(MremapFlags::DONTUNMAP) && vma.body.flags.contains(VmFlags::LOCKED);
        let (exceeded, needed) = match self.space.policy.rules.mremap_room {
            MremapRoom::Moves => (count >= limit.saturating_sub(3), 4),
            MremapRoom::Always => (count + 2 + u32::from(cuts) > limit, 2 + u32::from(cuts)),
        };
        if exceeded {
            return Err(self.refuse_mappings(Errno::ENOMEM, Growing::Move(needed)));
        }
        let mut vma = match r.placement {
            Placement::At(_) => self.clear_place(r)?,
            Placement::Search | Placement::Arena(_) => *vma,
        };
        if !self.may_be_cut_out(r, &vma) {
            return Err(self.space.refuse(Errno::EINVAL, Rule::Splits));
        }
        let flags = vma.body.flags;
        let keep = r.flags.contains(MremapFlags::DONTUNMAP);
        let kept_charge = if keep { 0 } else { r.old_len };
        let charge = (r.new_len - kept_charge) >> PAGE_SHIFT;
        if keep && self.space.policy.rules.dontunmap.cuts_locked {
            vma = self.cut_locked(r, vma)?;
        }
        let accounted = flags.contains(VmFlags::ACCOUNT);
        let new_id = self.charged(accounted.then_some(charge), |w| {
            w.copy_vma_and_pages(r, &vma)
        })?;
        let rules = self.space.policy.rules.dontunmap;
        let counted = match keep && !rules.counts_locked {
            true => flags - VmFlags::LOCKED,
            false => flags,
        };
        self.count_more(counted, r.new_len >> PAGE_SHIFT);
        let source = VmRange::new(r.addr, r.addr + r.old_len);
        if keep {
            if rules.charges_next && accounted {
                self.charge_next(source, new_id);
            }
            self.leave_empty(source, new_id);
            self.mapped(source, vma.offsets, &vma.body);
        } else if source.start < source.end {
            // The charge moved with the pages, so nothing is uncharged.
            let as_it_was = self.space.vmas.get(vma.id.0).is_some_and(|now| {
                vma.range == source && now.start() == source.start && now.end() == source.end
            });
            let gathered = match as_it_was {
                true => self.gather_whole(&vma),
                false => self.gather(source),
            };
            match gathered {
                Ok(gathered) => self.complete(source, gathered, Pages::Moved),
                // The pages have moved. As in Linux the old range stays mapped, empty and charged.
                Err(_) => {
                    self.state_mut().committed += source.pages() * u64::from(accounted);
                    self.mapped(source, vma.offsets, &vma.body);
                }
            }
        }
        Ok(r.new_addr)
    }

    /// True if the VMA can be split at both ends of the range to be moved.
    fn may_be_cut_out(&self, r: &Remap, vma: &VmaView) -> bool {
        let rules = &self.space.policy.rules;
        let ends = [
            (vma.range.start, r.addr),
            (vma.range.end, r.addr + r.old_len),
        ];
        ends.iter()
            .all(|&(edge, at)| edge == at || rules.may_split(&vma.body, at))
    }

    /// Unmaps the destination that `Placement::At` prescribes, which may be in use.
    ///
    /// Returns the source VMA, which the unmapping may have split. Returns ENOMEM if the
    /// destination overlaps the source.
    fn clear_place(&mut self, r: &Remap) -> Result<VmaView, Errno> {
        let place = VmRange::new(r.new_addr, r.new_addr + r.new_len);
        if place.overlaps(VmRange::new(r.addr, r.addr + r.old_len)) {
            return Err(self.space.refuse(Errno::ENOMEM, Rule::RangesApart));
        }
        self.unmap_range(place)?;
        self.mapping_at(r.addr)
    }

    /// Creates a VMA at the destination, or grows a neighbour into it, and moves the pages there.
    #[doc(alias = "copy_vma")]
    fn copy_vma_and_pages(&mut self, r: &Remap, vma: &VmaView) -> Result<VmaId, Errno> {
        let to = VmRange::new(r.new_addr, r.new_addr + r.new_len);
        let from = VmRange::new(r.addr, r.addr + r.old_len);
        self.start_write(vma.id);
        let mut source = VmaView {
            range: from,
            ..*vma
        };
        let proposal = Proposal {
            range: to,
            offsets: source.offsets.carried(from.start, to.start),
            body: self.copied_body(vma),
            anon_vma: vma.anon_vma,
            middle: None,
            copied_from: Some(source),
        };
        self.call = CallKind::MremapMove;
        self.unmerge_range(vma, from)?;
        let decided = self.decide_copy(r, vma, &proposal);
        let verdict = decided.verdict;
        let relocated = verdict.relocation == Some(Relocation::Done);
        let copies = |plan| self.needs_copies(&plan, &proposal);
        if verdict.plan.is_some_and(copies) {
            self.unshare(&source)?;
        }
        let merged = self.carry_out(&proposal, &decided)?;
        let (id, offsets) = match merged {
            Some(id) => {
                if verdict.plan.is_some_and(|plan| plan.takes(vma.id)) {
                    // The source is also a neighbour, and the merge may have changed its page
                    // offset and anon_vma.
                    let now = self.mapping_at(from.start)?;
                    source.offsets = now.offsets;
                    source.anon_vma = now.anon_vma;
                }
                (id, self.space.vma(id).offsets())
            }
            None => {
                let anon_vma = vma.anon_vma.filter(|_| !relocated);
                let copied = VmaView { anon_vma, ..*vma };
                let offsets = verdict.offsets;
                (self.copy_vma_new(&copied, to, offsets)?, offsets)
            }
        };
        let moved = self
            .prepare_relocated(id, relocated)
            .and_then(|()| self.move_pages(&source, to, (id, offsets)));
        self.count_relocation(verdict.relocation, moved.is_ok());
        let id = match moved {
            Ok(()) => {
                if offsets != proposal.offsets && vma.anon_vma.is_some() {
                    self.state_mut().stats.pgoff_updated(merged.is_some());
                }
                id
            }
            Err(kept) => {
                if merged.is_some() {
                    self.merge_given_up(&proposal, &decided, kept.into());
                }
                self.move_apart(vma, (from, to), kept)?
            }
        };
        self.unwatch_moved(id);
        if !from.is_empty() {
            self.changed(|| Change::Moved { from, to: to.start });
        }
        let added = VmRange::new(to.start + from.len_bytes(), to.end);
        self.mapped(added, proposal.offsets, &vma.body);
        Ok(id)
    }

    /// Gives the VMA at the destination the anon_vma that a first fault would give it.
    fn prepare_relocated(&self, id: VmaId, relocated: bool) -> Result<(), Kept> {
        if relocated {
            let prepared = self.anon_vma_prepare(&self.view(id));
            prepared.map_err(|_| Kept::NoMemory)?;
        }
        Ok(())
    }

    fn count_relocation(&mut self, relocation: Option<Relocation>, moved: bool) {
        let failed = relocation == Some(Relocation::Done) && !moved;
        if let Some(what) = relocation {
            let what = if failed { Relocation::GivenUp } else { what };
            self.state_mut().stats.relocated(what);
        }
    }

    /// Removes the userfaultfd context from the moved mapping, because the context is not notified
    /// of the move: it watches neither the moved pages nor the neighbour with which they have
    /// merged.
    fn unwatch_moved(&mut self, id: VmaId) {
        let body = self.view(id).body;
        if body.uffd != 0 {
            self.set_body(id, unwatched(body));
        }
    }

    /// Moves the pages in `source` to the VMA `id`, which has the page offsets `offsets`.
    fn move_pages(
        &self,
        source: &VmaView,
        to: VmRange,
        (id, offsets): (VmaId, PageOffsets),
    ) -> Result<(), Kept> {
        let is = source.offsets.anon_pgoff_at(source.range.start);
        let becomes = offsets.anon_pgoff_at(to.start);
        let owner = match self.space.vma(id).anon_vma() {
            Some(av) if becomes != is || Some(av) != source.anon_vma => {
                PageOwner::Take(av, becomes)
            }
            _ => PageOwner::Keep,
        };
        let was = source.anon_vma.map(|anon_vma| (anon_vma, is));
        let tables = self.page_tables();
        tables.move_to(source.range, to.start, (was, owner))
    }

    /// Retries a move that failed because it would have changed the pages' owner: moves the pages,
    /// with their current owner, to a separate VMA.
    ///
    /// # Errors
    /// ENOMEM if the failed move lacked memory, or if this one does.
    fn move_apart(
        &mut self,
        vma: &VmaView,
        (from, to): (VmRange, VmRange),
        kept: Kept,
    ) -> Result<VmaId, Errno> {
        // What was mapped at the destination for the pages is not counted yet.
        self.count_more(vma.body.flags, to.pages());
        let offsets = vma.offsets.carried(from.start, to.start);
        self.mapped(to, offsets, &vma.body);
        match self.gather(to) {
            Ok(gathered) => self.complete(to, gathered, Pages::Drop),
            Err(error) => {
                // As in Linux the new range stays mapped, empty and charged.
                let accounted = vma.body.flags.contains(VmFlags::ACCOUNT);
                self.state_mut().committed += to.pages() * u64::from(accounted);
                return Err(error);
            }
        }
        if kept == Kept::NoMemory {
            return Err(Errno::ENOMEM);
        }
        let vma = self.mapping_at(from.start)?;
        let source = VmaView { range: from, ..vma };
        let offsets = source.offsets.carried(from.start, to.start);
        let id = self.copy_vma_new(&source, to, offsets)?;
        match self.move_pages(&source, to, (id, offsets)) {
            Ok(()) => Ok(id),
            Err(_) => {
                self.forget(id);
                Err(Errno::ENOMEM)
            }
        }
    }

    /// Returns the attributes of the moved mapping's copy.
    ///
    /// No userfaultfd context watches the copy. Linux removes the context only after the merge; if
    /// the copy has merged with a watched neighbour, Linux then watches neither. Under a policy
    /// that merges more VMAs, neighbours that Linux keeps watching would also lose their context.
    /// Such a policy therefore removes the copy's context before it decides on the merge.
    fn copied_body(&self, vma: &VmaView) -> VmaBody {
        let merging = &self.space.policy.merging;
        match merging.update_pgoff || merging.relocate {
            true => unwatched(vma.body),
            false => vma.body,
        }
    }

    /// Decides whether the copy merges with its neighbours, and which page offsets the copy gets.
    fn decide_copy(&self, r: &Remap, vma: &VmaView, proposal: &Proposal) -> Decided {
        let keep = r.flags.contains(MremapFlags::DONTUNMAP);
        let apart = keep && self.space.policy.rules.dontunmap.stays_apart;
        let mut decided = if apart && vma.is_anonymous() && vma.anon_vma.is_none() {
            self.decide_without(proposal, vma.id)
        } else {
            self.decide(proposal, MergeScope::Both)
        };
        if self.must_stay_apart(r, vma, decided.verdict.plan) {
            decided.verdict.plan = None;
            decided.verdict.offsets = proposal.offsets;
            decided.verdict.relocation = None;
        }
        decided
    }

    /// True if shared pages must be copied, because their anon_vma or page offset will change.
    fn needs_copies(&self, plan: &Plan, proposal: &Proposal) -> bool {
        let survivor = plan.anon_from.and_then(|id| self.view(id).anon_vma);
        let changes = survivor != proposal.anon_vma || plan.offsets != proposal.offsets;
        plan.copies > 0 && changes
    }

    /// True if the copy must not merge with its source, a locked VMA that is moved with DONTUNMAP.
    ///
    /// The source is unlocked and the copy stays locked, so they cannot be one VMA. Linux merges
    /// them despite the lock, but only if the source has no pages yet.
    fn must_stay_apart(&self, r: &Remap, vma: &VmaView, plan: Option<Plan>) -> bool {
        self.space.policy.merging != Merging::MAINLINE
            && r.flags.contains(MremapFlags::DONTUNMAP)
            && vma.body.flags.contains(VmFlags::LOCKED)
            && vma.anon_vma.is_some()
            && plan.is_some_and(|plan| plan.takes(vma.id))
    }

    fn copy_vma_new(
        &mut self,
        vma: &VmaView,
        to: VmRange,
        offsets: PageOffsets,
    ) -> Result<VmaId, Errno> {
        self.reserve_in_index(1, to.start)?;
        let id = self.new_vma(to, offsets, vma.body)?;
        if let Some(anon_vma) = vma.anon_vma {
            let space = self.space;
            let mut root_locks = AnonVmaRootLocks::none();
            let new = (id, space.vma(id));
            if let Err(error) =
                space.anon_vma_clone(new, space.vma(vma.id), anon_vma, &mut root_locks)
            {
                drop(root_locks);
                self.release_vma(id);
                return Err(error);
            }
        }
        self.link(id);
        Ok(id)
    }
}
