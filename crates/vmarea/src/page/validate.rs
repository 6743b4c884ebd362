//! Checks frames, swap slots, KSM items and huge pages against all page tables.

use super::entry::{Pte, Was};
use super::huge::Huge;
use super::slot::{Cover, HugeFate, Visitor};
use super::table::PageTable;
use crate::Space;
use crate::types::platform::Environment;
use crate::types::violation::ensure;
use crate::types::{FrameId, MmId, SwapId, Violation, VmRange};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::ControlFlow;
use vmarea_sync::Key;

/// The combined contents of all page tables, by frame, swap slot and compound.
#[derive(Default)]
pub(crate) struct Census {
    /// All mappings of each frame, including mappings by huge pages.
    mapped: BTreeMap<FrameId, Vec<(MmId, u64)>>,
    /// Number of small entries that map each frame.
    small: BTreeMap<FrameId, u32>,
    /// Number of entries that refer to each swap slot.
    slots: BTreeMap<SwapId, u32>,
    ksm: BTreeMap<FrameId, Vec<(MmId, u64)>>,
    migrating: BTreeSet<FrameId>,
    /// The frames in each compound, with the number of slots that map the compound.
    compounds: BTreeMap<Key, (u32, Vec<FrameId>)>,
}

impl Census {
    /// Adds the contents of one address space's page table.
    pub(crate) fn add(&mut self, mm: MmId, table: &PageTable) {
        let all = VmRange::new(0, u64::MAX);
        table.visit(all, self);
        table.for_each(all, |addr, entry| {
            self.entry(mm, addr, entry);
            ControlFlow::Continue(())
        });
    }

    fn entry(&mut self, mm: MmId, addr: u64, entry: Pte) {
        if let Some(frame) = entry.frame() {
            self.mapped.entry(frame).or_default().push((mm, addr));
        }
        match entry {
            Pte::Swap { slot } => *self.slots.entry(slot).or_default() += 1,
            Pte::Ksm { frame } => self.ksm.entry(frame).or_default().push((mm, addr)),
            Pte::Migration { frame, was } => {
                self.migrating.insert(frame);
                if was == Was::Ksm {
                    self.ksm.entry(frame).or_default().push((mm, addr));
                }
            }
            _ => {}
        }
    }
}

impl Visitor for Census {
    fn page(&mut self, _: u64, entry: &mut Pte) {
        if let Some(frame) = entry.frame() {
            *self.small.entry(frame).or_default() += 1;
        }
    }

    fn huge(&mut self, _: u64, huge: &mut Huge, _: Cover) -> HugeFate {
        if let Some(key) = huge.compound {
            let frames = || (0, huge.frames().collect());
            self.compounds.entry(key).or_insert_with(frames).0 += 1;
        }
        HugeFate::Keep
    }
}

impl<E: Environment> Space<E> {
    /// Checks the invariants F1, F2, H2, K1, M1, S1 and S2 against a census of all page tables.
    pub(crate) fn check_census(&self, mut census: Census) -> Result<(), Violation> {
        self.check_compounds(&census)?;
        self.check_frames(&mut census)?;
        self.check_ksm(&mut census)?;
        self.check_swap(census)
    }

    fn check_compounds(&self, census: &Census) -> Result<(), Violation> {
        for (key, (slots, frames)) in &census.compounds {
            let whole = self.compound_whole(*key);
            ensure!(
                *slots == whole,
                "H2: {:?} counts {whole} whole mappings, not {slots}",
                frames.first()
            );
        }
        Ok(())
    }

    fn check_frames(&self, census: &mut Census) -> Result<(), Violation> {
        let mut counts = core::mem::take(&mut census.small);
        for (_, frames) in census.compounds.values() {
            for frame in frames {
                *counts.entry(*frame).or_default() += 1;
            }
        }
        for frame in self.frames.keys().map(FrameId) {
            let there = self.frame(frame);
            let pinned = there.is_pinned() && there.mapcount() == 0;
            let held = pinned || there.is_migrating() && there.mapcount() == 1;
            ensure!(
                held || counts.contains_key(&frame),
                "F1: {frame:?} counts {} and is mapped nowhere",
                there.mapcount()
            );
        }
        for (&frame, places) in &mut census.mapped {
            let there = self.frame(frame);
            let migrates = census.migrating.contains(&frame);
            ensure!(
                there.is_migrating() == migrates,
                "M1: {frame:?} has migration entries: {migrates}"
            );
            let has = there.mapcount();
            let want = counts.get(&frame).copied().unwrap_or(0) + u32::from(migrates);
            ensure!(has == want, "F1: {frame:?} counts {has}, mapped {want}");
            let mut found = Vec::new();
            self.rmap_walk(frame, |m| found.push((m.mm, m.addr)));
            found.sort();
            places.sort();
            ensure!(
                found == *places,
                "F2: {frame:?} mapped at {places:x?}, walk finds {found:x?}"
            );
        }
        Ok(())
    }

    fn check_ksm(&self, census: &mut Census) -> Result<(), Violation> {
        for frame in self.ksm.frames() {
            let mut mapped = census.ksm.remove(&frame).unwrap_or_default();
            mapped.sort();
            let items = self.ksm.items(frame);
            ensure!(
                items == mapped,
                "K1: {frame:?} mapped at {mapped:x?}, items {items:x?}"
            );
        }
        let left = census.ksm.keys().next();
        ensure!(left.is_none(), "K1: {left:?} is mapped and has no items");
        Ok(())
    }

    fn check_swap(&self, mut census: Census) -> Result<(), Violation> {
        let mut cached = 0;
        for (slot, count, cache) in self.swap.in_use() {
            let named = census.slots.remove(&slot).unwrap_or(0);
            ensure!(
                count == named,
                "S1: {slot:?} counts {count}, named by {named}"
            );
            if let Some(frame) = cache {
                cached += 1;
                ensure!(
                    self.frames.get(frame.0).is_some_and(|f| f.is_swap_cache()),
                    "S2: {slot:?} has {frame:?}, which does not know"
                );
            }
        }
        let left = census.slots.keys().next();
        ensure!(left.is_none(), "S1: {left:?} is named and not in use");
        let mut frames = census.mapped.keys();
        let marked = frames.by_ref().filter(|f| self.frame(**f).is_swap_cache());
        let marked = marked.count();
        ensure!(
            marked == cached,
            "S2: {marked} frames marked, {cached} in the cache"
        );
        Ok(())
    }
}
