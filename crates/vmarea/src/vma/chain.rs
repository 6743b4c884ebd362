//! The chain of a VMA: the links to its anon_vmas, oldest first.
//!
//! # Picture
//! ```text
//! split    the new VMA gets a copy of the chain                            (clone)
//! fork     the child gets a copy, and an anon_vma of its own               (fork)
//! merge    an unfaulted VMA that absorbs a faulted VMA gets a copy         (clone);
//!          the chain of the absorbed VMA is unlinked                       (unlink)
//! fault    the first write links a neighbour's anon_vma, or a new one      (prepare)
//! ```
//!
//! # Linux
//! `mm/rmap.c` 6.18: `__anon_vma_prepare`, `anon_vma_clone`, `anon_vma_fork`, `unlink_anon_vmas`.
//! Linux's list has the newest link first; this chain has the newest link last.

use super::Vma;
use crate::Space;
use crate::policy::AdjustLock;
use crate::rmap::root_locks::AnonVmaRootLocks;
use crate::rmap::span::RmapSpan;
use crate::types::platform::Environment;
use crate::types::{AnonVmaId, Errno, VmRange, VmaId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Deref;
use core::sync::atomic::Ordering;
use smallvec::{SmallVec, smallvec};
use vmarea_sync::WriteGuard;

/// One link of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "anon_vma_chain")]
pub struct Link {
    /// The anon_vma to which the VMA is linked.
    pub anon_vma: AnonVmaId,
    /// Position of the VMA in the anon_vma's interval tree.
    pub node: u32,
}

/// The links of one VMA, oldest first, stored in two words; a single link needs no heap allocation.
#[derive(Debug, Default)]
pub(crate) enum Chain {
    /// The chain of an unfaulted VMA.
    #[default]
    Empty,
    /// A single link, to the VMA's own anon_vma.
    One(Link),
    /// Several links, in a separately allocated vector, to keep this type small. The chain of the
    /// child of a fork has two, which need no other allocation.
    Many(Box<[Links; 1]>),
}

type Links = SmallVec<[Link; 2]>;

impl Deref for Chain {
    type Target = [Link];

    #[inline]
    fn deref(&self) -> &[Link] {
        match self {
            Chain::Empty => &[],
            Chain::One(link) => core::slice::from_ref(link),
            Chain::Many(links) => &links[0],
        }
    }
}

impl Chain {
    /// Reserves space for `more` links, so that [`push`](Self::push) cannot fail for them.
    fn reserve(&mut self, more: usize) -> Result<(), Errno> {
        if self.len() + more <= 1 {
            return Ok(());
        }
        if let Chain::Many(links) = self {
            return links[0].try_reserve(more).map_err(|_| Errno::ENOMEM);
        }
        let mut links = Links::new();
        let room = links.try_reserve_exact(self.len() + more);
        room.map_err(|_| Errno::ENOMEM)?;
        links.extend_from_slice(self);
        // `Box::new` cannot report an allocation failure, so the box is made from a vector.
        let mut boxed = Vec::new();
        boxed.try_reserve_exact(1).map_err(|_| Errno::ENOMEM)?;
        boxed.push(links);
        if let Ok(boxed) = boxed.into_boxed_slice().try_into() {
            *self = Chain::Many(boxed);
        }
        Ok(())
    }

    fn try_clone(&self) -> Result<Chain, Errno> {
        let mut copy = Chain::Empty;
        copy.reserve(self.len())?;
        self.iter().for_each(|link| copy.push(*link));
        Ok(copy)
    }

    fn push(&mut self, link: Link) {
        match self {
            Chain::Empty => *self = Chain::One(link),
            Chain::Many(links) => links[0].push(link),
            Chain::One(first) => *self = Chain::Many(Box::new([smallvec![*first, link]])),
        }
    }

    /// Returns the number of bytes of heap memory that the chain uses, outside the VMA itself.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Chain::Empty | Chain::One(_) => 0,
            Chain::Many(links) if links[0].spilled() => {
                size_of::<Links>() + links[0].capacity() * size_of::<Link>()
            }
            Chain::Many(_) => size_of::<Links>(),
        }
    }
}

/// Links that have been removed from a VMA's chain but are still in the interval trees.
#[derive(Debug)]
#[must_use = "the pages must have another anon_vma first, then `unlink_left`"]
pub(crate) struct Left {
    chain: Chain,
    own: Option<AnonVmaId>,
}

/// Whether a VMA whose chain is cloned from another VMA's may reuse an orphaned anon_vma as its
/// own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reuse {
    /// For a split, merge or copy: no anon_vma is reused, because the destination already has one.
    No,
    /// For the child of a fork: an anon_vma without active VMAs is reused.
    Orphaned,
}

impl<E: Environment> Space<E> {
    /// Makes `anon_vma` the VMA's own anon_vma, unless the VMA already has one; returns its own
    /// anon_vma. `rmap_span` is the length of the VMA's interval.
    ///
    /// The result differs from `anon_vma` if another fault has linked `vma` first, which is
    /// possible because faults do not hold `mmap_lock` for writing.
    pub(crate) fn anon_vma_link(
        &self,
        (id, vma): (VmaId, &Vma<E>),
        rmap_span: RmapSpan,
        anon_vma: AnonVmaId,
    ) -> Result<AnonVmaId, Errno> {
        let mut guard = self.anon_vma_lock(anon_vma);
        let inner = self.anon_vma(anon_vma).inner.get_mut(&mut guard);
        let mut chain = vma.chain.lock();
        if let Some(own) = vma.anon_vma() {
            return Ok(own);
        }
        chain.reserve(1)?;
        inner.tree.reserve()?;
        vma.set_rmap_span(rmap_span);
        let (first, last) = vma.interval();
        let node = inner.tree.insert(first, last, id);
        inner.num_active_vmas += 1;
        chain.push(Link { anon_vma, node });
        vma.set_anon_vma(Some(anon_vma));
        Ok(anon_vma)
    }

    /// Copies the chain of `src` to `dst`, and makes `anon_vma` the anon_vma of `dst`. The range of
    /// `dst` must already be set.
    pub(crate) fn anon_vma_clone<'s>(
        &'s self,
        (dst_id, dst): (VmaId, &Vma<E>),
        src: &Vma<E>,
        anon_vma: AnonVmaId,
        root_locks: &mut AnonVmaRootLocks<'s, E>,
    ) -> Result<(), Errno> {
        dst.set_anon_vma(Some(anon_vma));
        if dst.rmap_span() == RmapSpan::default() {
            // The first growth beyond its end looks for the next VMA.
            let range = VmRange::new(dst.start(), dst.end());
            dst.set_rmap_span(self.rmap_span_to(range, range.end));
        }
        let guard = root_locks.of(self, anon_vma);
        self.clone_chain((dst_id, dst), src, Reuse::No, guard)
    }

    /// Replaces the chain of `dst` by a copy of `src`'s chain, and returns the old chain.
    ///
    /// After the pages of `dst` have been transferred to the new anon_vma, the caller must unlink
    /// the returned links. They must stay linked until then, because unlinking may free the old
    /// anon_vma, and a reverse-map walk that finds a page's anon_vma freed does not wait for the
    /// root's lock.
    pub(crate) fn anon_vma_adopt<'s>(
        &'s self,
        (dst_id, dst): (VmaId, &Vma<E>),
        src: &Vma<E>,
        anon_vma: AnonVmaId,
        root_locks: &mut AnonVmaRootLocks<'s, E>,
    ) -> Result<Left, Errno> {
        let own = dst.anon_vma();
        let chain = core::mem::take(&mut *dst.chain.lock());
        dst.set_anon_vma(Some(anon_vma));
        let guard = root_locks.of(self, anon_vma);
        if let Err(error) = self.clone_chain((dst_id, dst), src, Reuse::No, guard) {
            *dst.chain.lock() = chain;
            dst.set_anon_vma(own);
            return Err(error);
        }
        Ok(Left { chain, own })
    }

    /// Unlinks the chain that [`anon_vma_adopt`](Self::anon_vma_adopt) returned.
    pub(crate) fn unlink_left<'s>(&'s self, left: &Left, root_locks: &mut AnonVmaRootLocks<'s, E>) {
        self.unlink_chain(&left.chain, left.own, root_locks);
    }

    /// Reserves space in `dst` for a copy of `src`'s links, and returns `src`'s links.
    fn reserve_links(
        &self,
        dst: &Vma<E>,
        src: &Vma<E>,
        reuse: Reuse,
        guard: &mut WriteGuard<'_, E::Wait>,
    ) -> Result<Chain, Errno> {
        let links = src.chain.lock().try_clone()?;
        let more = links.len() + usize::from(reuse == Reuse::Orphaned);
        dst.chain.lock().reserve(more)?;
        for link in links.iter() {
            let inner = self.anon_vma(link.anon_vma).inner.get_mut(guard);
            inner.tree.reserve()?;
        }
        Ok(links)
    }

    fn clone_chain(
        &self,
        (dst_id, dst): (VmaId, &Vma<E>),
        src: &Vma<E>,
        reuse: Reuse,
        guard: &mut WriteGuard<'_, E::Wait>,
    ) -> Result<(), Errno> {
        let links = self
            .reserve_links(dst, src, reuse, guard)
            .inspect_err(|_| dst.set_anon_vma(None))?;
        let (first, last) = dst.interval();
        for link in links.iter() {
            let inner = self.anon_vma(link.anon_vma).inner.get_mut(guard);
            let node = inner.tree.insert(first, last, dst_id);
            dst.chain.lock().push(Link {
                anon_vma: link.anon_vma,
                node,
            });
            let orphaned = inner.num_children < 2 && inner.num_active_vmas == 0;
            if reuse == Reuse::Orphaned && dst.anon_vma().is_none() && orphaned {
                dst.set_anon_vma(Some(link.anon_vma));
            }
        }
        if let Some(own) = dst.anon_vma() {
            self.anon_vma(own).inner.get_mut(guard).num_active_vmas += 1;
        }
        Ok(())
    }

    /// Copies `src`'s chain to `dst`, a VMA of a fork's child, and gives `dst` its own anon_vma.
    ///
    /// `dst`'s own anon_vma is either an ancestor's anon_vma without active VMAs, or a new
    /// anon_vma.
    pub(crate) fn anon_vma_fork(
        &self,
        (dst_id, dst): (VmaId, &Vma<E>),
        src: &Vma<E>,
    ) -> Result<(), Errno> {
        let Some(parent) = src.anon_vma() else {
            return Ok(());
        };
        // The child's VMAs after `dst` do not exist yet, but will have the same addresses as in the
        // parent.
        dst.set_rmap_span(src.rmap_span());
        let mut guard = self.anon_vma_lock(parent);
        self.clone_chain((dst_id, dst), src, Reuse::Orphaned, &mut guard)?;
        drop(guard);
        if dst.anon_vma().is_some() {
            return Ok(());
        }
        self.anon_vma_add_own((dst_id, dst), parent)
    }

    /// Links an imported VMA to a new anon_vma of its own and to one of an ancestor, as a fork does.
    pub(crate) fn anon_vma_link_inherited(
        &self,
        (id, vma): (VmaId, &Vma<E>),
        rmap_span: RmapSpan,
    ) -> Result<(), Errno> {
        let ancestor = self.anon_vma_alloc_root()?;
        let mut guard = self.anon_vma_lock(ancestor);
        let inner = self.anon_vma(ancestor).inner.get_mut(&mut guard);
        let reserved = vma.chain.lock().reserve(1);
        if let Err(error) = reserved.and_then(|()| inner.tree.reserve()) {
            self.anon_vma_put(ancestor, &mut guard);
            return Err(error);
        }
        vma.set_rmap_span(rmap_span);
        let (first, last) = vma.interval();
        let node = inner.tree.insert(first, last, id);
        let anon_vma = ancestor;
        vma.chain.lock().push(Link { anon_vma, node });
        drop(guard);
        self.anon_vma_add_own((id, vma), ancestor)
    }

    /// Gives a VMA that is linked to `parent` a new anon_vma of its own; unlinks it on failure.
    fn anon_vma_add_own(
        &self,
        (id, vma): (VmaId, &Vma<E>),
        parent: AnonVmaId,
    ) -> Result<(), Errno> {
        let linked = self.anon_vma_alloc_child(parent).and_then(|own| {
            self.anon_vma_link_own((id, vma), own)
                .inspect_err(|_| self.abandon(own))
        });
        linked.inspect_err(|_| self.unlink_anon_vmas(vma, &mut AnonVmaRootLocks::none()))
    }

    /// Makes `own` the anon_vma of a VMA that already has links and an interval length.
    fn anon_vma_link_own(&self, (id, vma): (VmaId, &Vma<E>), own: AnonVmaId) -> Result<(), Errno> {
        let mut guard = self.anon_vma_lock(own);
        let inner = self.anon_vma(own).inner.get_mut(&mut guard);
        let mut chain = vma.chain.lock();
        chain.reserve(1)?;
        inner.tree.reserve()?;
        let (first, last) = vma.interval();
        let node = inner.tree.insert(first, last, id);
        inner.num_active_vmas += 1;
        chain.push(Link {
            anon_vma: own,
            node,
        });
        vma.set_anon_vma(Some(own));
        Ok(())
    }

    /// Frees an anon_vma that has been allocated but never linked.
    fn abandon(&self, id: AnonVmaId) {
        let mut guard = self.anon_vma_lock(id);
        let parent = self.anon_vma_parent_of(id);
        self.anon_vma(parent).inner.get_mut(&mut guard).num_children -= 1;
        self.anon_vma_put(id, &mut guard);
    }

    /// Unlinks `vma` from all its anon_vmas, and frees those that have become unused.
    pub(crate) fn unlink_anon_vmas<'s>(
        &'s self,
        vma: &Vma<E>,
        root_locks: &mut AnonVmaRootLocks<'s, E>,
    ) {
        let chain = core::mem::take(&mut *vma.chain.lock());
        let own = vma.anon_vma();
        vma.set_anon_vma(None);
        self.unlink_chain(&chain, own, root_locks);
        vma.set_rmap_span(RmapSpan::default());
    }

    /// Removes links from their interval trees, newest first, and frees unused anon_vmas.
    fn unlink_chain<'s>(
        &'s self,
        chain: &Chain,
        own: Option<AnonVmaId>,
        root_locks: &mut AnonVmaRootLocks<'s, E>,
    ) {
        match chain {
            Chain::Empty => {}
            Chain::One(link) => {
                self.unlink(link, own, root_locks.of(self, link.anon_vma));
            }
            Chain::Many(links) => {
                let Some(last) = links[0].last() else { return };
                let guard = root_locks.of(self, last.anon_vma);
                for link in links[0].iter().rev() {
                    self.unlink(link, own, guard);
                }
            }
        }
    }

    /// Removes one link of a VMA whose anon_vma is `own`; frees the link's anon_vma if it is unused.
    #[inline(always)]
    fn unlink(&self, link: &Link, own: Option<AnonVmaId>, guard: &mut WriteGuard<'_, E::Wait>) {
        let inner = self.anon_vma(link.anon_vma).inner.get_mut(guard);
        // By V4, the VMA's own anon_vma is in its chain.
        if own == Some(link.anon_vma) {
            inner.num_active_vmas -= 1;
        }
        inner.tree.remove(link.node);
        if inner.tree.is_empty() {
            let parent = self.anon_vma_parent_of(link.anon_vma);
            self.anon_vma(parent).inner.get_mut(guard).num_children -= 1;
            self.anon_vma_put(link.anon_vma, guard);
        }
    }

    /// Updates the interval trees after the range or page offset of `vma` has changed. `limit` is
    /// the address at which the VMA's interval ended before.
    ///
    /// If the VMA still ends at or below `limit`, the interval still ends at `limit`, so most
    /// changes do not have to look up the next VMA. The caller must have held `guard` since before
    /// the change.
    pub(crate) fn anon_vma_moved(
        &self,
        vma: &Vma<E>,
        limit: u64,
        guard: &mut WriteGuard<'_, E::Wait>,
    ) {
        let span = match vma.end() <= limit {
            true => self.rmap_span_to(VmRange::new(vma.start(), vma.end()), limit),
            false => self.rmap_span_of(vma),
        };
        vma.set_rmap_span(span);
        let (first, last) = vma.interval();
        for link in vma.chain.lock().iter() {
            let av = self.anon_vma(link.anon_vma);
            av.inner.get_mut(guard).tree.update(link.node, first, last);
        }
    }

    /// Computes the length of a VMA's interval, which extends to the next VMA if the policy allows.
    pub(crate) fn rmap_span_of(&self, vma: &Vma<E>) -> RmapSpan {
        let range = VmRange::new(vma.start(), vma.end());
        let mut limit = range.end;
        if self.policy.adjust_lock == AdjustLock::WhenNeeded
            && let Some(mm) = vma.mm_index().and_then(|index| self.mms.key_at(index))
            && let Some(mm) = self.mms.get(mm)
        {
            let next = mm.next_start(range);
            limit = next.map_or(self.system.task_size, |next| {
                next.min(self.system.task_size)
            });
        }
        self.rmap_span_to(range, limit)
    }

    /// Computes the length of a VMA's interval, given the VMA's range and the start `limit` of the
    /// next VMA. The interval is as long as the range if the policy locks the reverse map for every
    /// change.
    pub(crate) fn rmap_span_to(&self, range: VmRange, limit: u64) -> RmapSpan {
        let end = match self.policy.adjust_lock {
            AdjustLock::Always => range.end,
            AdjustLock::WhenNeeded => limit.max(range.end),
        };
        RmapSpan::at_least(VmRange::new(range.start, end).pages())
    }
}

impl<E: Environment> Vma<E> {
    pub(crate) fn set_anon_vma(&self, to: Option<AnonVmaId>) {
        // ORDERING: Release, pairs with the Acquire in `Vma::anon_vma`: a reader that sees the
        // anon_vma sees it initialized.
        self.anon_vma
            .store(to.map_or(0, AnonVmaId::to_bits), Ordering::Release);
    }
}
