//! Checks the invariants listed in the documentation of the modules.
//!
//! Meant for tests and debug builds: a complete check visits every VMA and every page.

use super::MmapReadGuard;
use crate::Space;
use crate::page::Pte;
use crate::page::validate::Census;
use crate::types::platform::Environment;
use crate::types::violation::ensure;
use crate::types::{MmId, PAGE_SIZE, PMD_SIZE, Violation, VmFlags, VmRange, VmaId};
use crate::vma::VmaView;
use alloc::collections::BTreeMap;
use alloc::{format, vec::Vec};
use core::ops::ControlFlow;

impl<E: Environment> Space<E> {
    /// Checks one address space.
    ///
    /// The check takes time in proportion to the number of pages. In tests, call it, or
    /// [`validate_all`](Self::validate_all), after each step.
    ///
    /// # Errors
    /// The first violation that is found. An address space that does not exist has none.
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(2 * PAGE_SIZE))?;
    /// space.fault(mm, at, Access::Write)?;
    /// assert_eq!(space.validate(mm), Ok(()));
    /// assert_eq!(space.validate_vmas(mm), Ok(()));
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "validate_mm")]
    pub fn validate(&self, mm: MmId) -> Result<(), Violation> {
        let Some(r) = self.mmap_read_lock(mm) else {
            return Ok(());
        };
        r.check_tree()?;
        r.check_vmas()?;
        r.check_counters()?;
        r.check_pages()
    }

    /// Checks one address space: its tree, VMAs, chains and counters, but not its pages.
    ///
    /// This check is cheap enough for debug builds to run it after each call.
    ///
    /// # Errors
    /// As [`validate`](Self::validate), which has an example.
    pub fn validate_vmas(&self, mm: MmId) -> Result<(), Violation> {
        let Some(r) = self.mmap_read_lock(mm) else {
            return Ok(());
        };
        r.check_tree()?;
        r.check_vmas()?;
        r.check_counters()
    }

    /// Checks all address spaces, and the anon_vmas and pages that they share.
    ///
    /// # Errors
    /// The first violation that is found. The documentation of [`lifecycle`](crate::mm::lifecycle)
    /// has an example.
    pub fn validate_all(&self) -> Result<(), Violation> {
        for key in self.mms.keys().collect::<Vec<_>>() {
            self.validate(MmId(key))?;
        }
        self.check_families()?;
        self.check_files()?;
        self.check_all_pages()
    }

    /// Checks all frames, swap slots, KSM items and huge pages against the page tables.
    fn check_all_pages(&self) -> Result<(), Violation> {
        let mut census = Census::default();
        for key in self.mms.keys().collect::<Vec<_>>() {
            if let Some(r) = self.mmap_read_lock(MmId(key)) {
                census.add(MmId(key), r.pages());
            }
        }
        self.check_census(census)
    }

    /// Checks the invariants A1, A2, A3, T1 and T2.
    fn check_families(&self) -> Result<(), Violation> {
        let mut linked: BTreeMap<u64, usize> = BTreeMap::new();
        let mut own: BTreeMap<u64, u32> = BTreeMap::new();
        for key in self.vmas.keys() {
            let vma = self.vma(VmaId(key));
            for link in vma.chain.lock().iter() {
                *linked.entry(link.anon_vma.to_bits()).or_default() += 1;
            }
            if let Some(anon_vma) = vma.anon_vma() {
                *own.entry(anon_vma.to_bits()).or_default() += 1;
            }
        }
        let mut children: BTreeMap<u64, u32> = BTreeMap::new();
        for key in self.anon_vmas.keys() {
            let id = crate::types::AnonVmaId(key);
            let av = self.anon_vma(id);
            let guard = self.anon_vma(self.anon_vma_root(id)).lock.read();
            let inner = av.inner.get(&guard);
            inner.tree.validate().map_err(|e| Violation(e.into()))?;
            let bits = id.to_bits();
            ensure!(
                inner.tree.len() == linked.remove(&bits).unwrap_or(0),
                "A1: {id:?} tree and chains differ"
            );
            let active = own.remove(&bits).unwrap_or(0);
            ensure!(
                inner.num_active_vmas == active,
                "A2: {id:?} {} active, not {active}",
                inner.num_active_vmas
            );
            if !inner.tree.is_empty() {
                *children
                    .entry(self.anon_vma_parent_of(id).to_bits())
                    .or_default() += 1;
            }
        }
        ensure!(
            linked.is_empty() && own.is_empty(),
            "A1: a VMA hangs on an anon_vma that is gone"
        );
        for key in self.anon_vmas.keys() {
            let id = crate::types::AnonVmaId(key);
            let has = self.anon_vma_view(id).num_children;
            let want = children.get(&id.to_bits()).copied().unwrap_or(0);
            ensure!(has == want, "A3: {id:?} has {has} children, not {want}");
        }
        Ok(())
    }
}

impl<E: Environment> MmapReadGuard<'_, E> {
    /// Checks the invariants of the VMA tree; violations bear the names that `RangeTree` reports.
    fn check_tree(&self) -> Result<(), Violation> {
        let tree = self.index().validate();
        tree.map_err(|v| Violation(format!("tree of {:?}: {v}", self.id)))
    }

    /// Checks V1, V2, V4 and R1.
    fn check_vmas(&self) -> Result<(), Violation> {
        let mut last_end = 0;
        for v in self.vmas() {
            let VmRange { start, end } = v.range;
            ensure!(
                start < end && start % PAGE_SIZE == 0 && end % PAGE_SIZE == 0,
                "V1: {v:x?}"
            );
            ensure!(start >= last_end, "V2: {v:x?} begins before {last_end:x}");
            last_end = end;
            let entry = self.index().get(start);
            ensure!(
                entry.is_some_and(|e| (e.start, e.end) == (start, end)),
                "V2: {v:x?} is {entry:x?} in the tree"
            );
            ensure!(
                self.space.vma(v.id).is_of(self.id),
                "V2: {v:x?} is another mm's"
            );
            self.check_chain(&v)?;
        }
        Ok(())
    }

    fn check_chain(&self, v: &VmaView) -> Result<(), Violation> {
        let links = self.space.vma(v.id).chain.lock().to_vec();
        match v.anon_vma {
            None => ensure!(links.is_empty(), "V4: {v:x?} has a chain and no anon_vma"),
            Some(own) => {
                ensure!(
                    links.iter().any(|l| l.anon_vma == own),
                    "V4: {v:x?} does not hang on its anon_vma"
                );
            }
        }
        let vma = self.space.vma(v.id);
        if links.is_empty() {
            return Ok(());
        }
        ensure!(
            vma.rmap_span().pages() >= v.range.pages(),
            "R1: {v:x?} stands too short in its interval trees"
        );
        let (first, last) = vma.interval();
        for link in links.iter() {
            let root = self.space.anon_vma_root(link.anon_vma);
            let guard = self.space.anon_vma(root).lock.read();
            let at = self
                .space
                .anon_vma(link.anon_vma)
                .inner
                .get(&guard)
                .tree
                .at(link.node);
            ensure!(
                at == Some((first, last, v.id)),
                "A1: {v:x?} stands as {at:x?} in its anon_vma"
            );
        }
        Ok(())
    }

    fn check_counters(&self) -> Result<(), Violation> {
        let (mut count, mut total, mut locked, mut charged) = (0u32, 0u64, 0u64, 0u64);
        let (mut data, mut exec, mut stack) = (0, 0, 0);
        for v in self.vmas() {
            let pages = v.range.pages();
            count += 1;
            total += pages;
            let flags = v.body.flags;
            if flags.contains(VmFlags::LOCKED) {
                locked += pages;
            }
            if flags.contains(VmFlags::ACCOUNT) {
                charged += pages;
            }
            if flags.is_exec() {
                exec += pages;
            } else if flags.is_stack() {
                stack += pages;
            } else if flags.is_data() {
                data += pages;
            }
        }
        let s = self.state();
        ensure!(s.map_count == count, "map_count {} of {count}", s.map_count);
        ensure!(s.total_vm == total, "total_vm {} of {total}", s.total_vm);
        // As in Linux, DONTUNMAP leaves the count of locked pages too high.
        ensure!(
            s.locked_vm >= locked,
            "locked_vm {} of {locked}",
            s.locked_vm
        );
        // As in Linux, the growth of a stack that is not charged (MAP_NORESERVE) is charged for
        // good. As in Linux 5.10, DONTUNMAP may mark a VMA as charged that is not.
        ensure!(
            s.committed >= charged || self.space.policy.rules.dontunmap.charges_next,
            "committed {} of {charged}",
            s.committed
        );
        let parts = (s.exec_vm, s.stack_vm, s.data_vm);
        ensure!(
            parts == (exec, stack, data),
            "exec, stack, data {parts:?} of {:?}",
            (exec, stack, data)
        );
        Ok(())
    }

    /// Checks the invariants V3 and H1, and that every page-table entry is inside a VMA.
    fn check_pages(&self) -> Result<(), Violation> {
        let mut entries = Vec::new();
        let all = VmRange::new(0, u64::MAX);
        self.mm.pages.for_each(all, |addr, entry| {
            entries.push((addr, entry));
            ControlFlow::Continue(())
        });
        entries
            .into_iter()
            .try_for_each(|(addr, entry)| self.check_entry(addr, entry))
    }

    fn check_entry(&self, addr: u64, entry: Pte) -> Result<(), Violation> {
        let found = self.index().get(addr);
        let vma = found.and_then(|e| VmaId::from_bits(e.value));
        let Some(v) = vma.map(|id| self.view(id)) else {
            return Err(Violation(format!(
                "entry {entry:?} at {addr:x} outside of every VMA"
            )));
        };
        let anonymous = entry.frame().is_some() || matches!(entry, Pte::Swap { .. });
        ensure!(
            v.anon_vma.is_some() || !anonymous,
            "V3: {v:x?} has a page at {addr:x} and no anon_vma"
        );
        if addr.is_multiple_of(PMD_SIZE) && self.mm.pages.has_huge_at(addr) {
            let within = v.range.start <= addr && addr + PMD_SIZE <= v.range.end;
            ensure!(within, "H1: {v:x?} ends within the huge page at {addr:x}");
        }
        Ok(())
    }
}
