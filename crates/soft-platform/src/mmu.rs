//! Processors with TLBs, which execute every access of a [`Machine`](crate::Machine).
//!
//! Each processor caches the translations that it uses, and drops them only when the core flushes
//! them, as real hardware does. The module checks the rules on which an MMU without coherent TLBs
//! relies, and panics at the first violation.
//!
//! # Invariants
//! T1  a frame is freed only if no processor has a translation to it
//! T2  a frame is writable through one entry only if no other entry maps it
//! T3  without a flush, an entry is never replaced by a translation to another page or by one with
//!     fewer permissions
//! T4  a frame is not copied or compared while a processor can write to it
//! T5  between two calls, every translation is one that the core's page table allows

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use vmarea::fault::Access;
use vmarea::page::Pte;
use vmarea::types::mmu::{MappedPage, Mmu, Translation};
use vmarea::types::{Errno, FrameId, MmId, VmFlags, VmRange};
use vmarea_sync::SpinLock;

/// Number of processors.
pub const CPUS: usize = 4;

/// Translations by address space and page address.
type Table = BTreeMap<(MmId, u64), Translation>;

/// The hardware page tables of all address spaces, and the processors' TLBs.
#[derive(Debug, Default)]
pub struct Processors(SpinLock<State>);

#[derive(Debug, Default)]
struct State {
    tables: Table,
    tlbs: [Table; CPUS],
    /// Accessed bits: the entries of `tables` that a processor has read into its TLB.
    accessed: BTreeSet<(MmId, u64)>,
    /// The processor that made the last access.
    turn: usize,
}

impl State {
    fn all(&self) -> impl Iterator<Item = &Table> {
        self.tlbs.iter().chain([&self.tables])
    }

    /// Returns the translation that the processor uses: its TLB entry, or else that in the page
    /// table.
    fn walk(&mut self, cpu: usize, at: (MmId, u64)) -> Option<Translation> {
        if let Some(cached) = self.tlbs[cpu].get(&at) {
            return Some(*cached);
        }
        let found = *self.tables.get(&at)?;
        self.accessed.insert(at);
        self.tlbs[cpu].insert(at, found);
        Some(found)
    }

    /// Sets an entry of the page tables, and checks T2 and T3.
    fn set(&mut self, at: (MmId, u64), to: Translation) {
        let addr = at.1;
        for table in self.all() {
            if let Some(old) = table.get(&at) {
                let fits = old.page == to.page && (to.writable || !old.writable);
                assert!(fits, "{addr:x}: {old:x?} becomes {to:x?} without a flush");
            }
            if to.writable && matches!(to.page, MappedPage::Frame(_)) {
                let other = |e: &(&(MmId, u64), &Translation)| e.1.page == to.page && *e.0 != at;
                let other = table.iter().find(other);
                assert!(
                    other.is_none(),
                    "{addr:x} becomes writable beside {other:x?}"
                );
            }
        }
        self.tables.insert(at, to);
    }
}

impl Processors {
    /// Calls `f` with the page at `addr` if the processor can access the page without a fault.
    pub(crate) fn access<R>(
        &self,
        cpu: usize,
        (mm, addr): (MmId, u64),
        access: Access,
        f: impl FnOnce(MappedPage) -> R,
    ) -> Option<R> {
        let mut state = self.0.lock();
        match state.walk(cpu, (mm, addr)) {
            Some(found) if permits(found, access) => Some(f(found.page)),
            Some(_) => {
                // A fault removes the processor's own TLB entry for the address.
                state.tlbs[cpu].remove(&(mm, addr));
                None
            }
            None => None,
        }
    }

    /// Checks that no processor can access `frame`, which is being freed (T1).
    pub(crate) fn assert_unreachable(&self, frame: FrameId) {
        let state = self.0.lock();
        let to_frame = |t: &Translation| t.page == MappedPage::Frame(frame);
        let stale = state.all().flat_map(BTreeMap::iter).find(|e| to_frame(e.1));
        assert!(
            stale.is_none(),
            "freed while a processor uses it: {stale:x?}"
        );
    }

    /// Checks that no processor can write to `frame`, which is being copied or compared (T4).
    pub(crate) fn assert_unwritable(&self, frame: FrameId) {
        let state = self.0.lock();
        let writes = |t: &Translation| t.page == MappedPage::Frame(frame) && t.writable;
        let writer = state.all().flat_map(BTreeMap::iter).find(|e| writes(e.1));
        assert!(writer.is_none(), "copied while it is written: {writer:x?}");
    }

    /// Selects the processor for the next access, and returns the processor's number, from 0.
    pub(crate) fn next(&self) -> usize {
        let mut state = self.0.lock();
        state.turn = (state.turn + 1) % CPUS;
        state.turn
    }

    /// Checks that the core permits every translation (T5). `allowed` returns the core's
    /// page-table entry for an address and the flags of the VMA there.
    pub(crate) fn check_allowed(
        &self,
        allowed: impl Fn(MmId, u64) -> Option<(Pte, VmFlags)>,
    ) -> Result<(), String> {
        let translations: Vec<_> = {
            let state = self.0.lock();
            let all = state.all().flat_map(BTreeMap::iter);
            all.map(|(at, to)| (*at, *to)).collect()
        };
        for ((mm, addr), to) in translations {
            let entry = allowed(mm, addr);
            if !entry.is_some_and(|(entry, flags)| is_allowed(to, entry, flags)) {
                return Err(format!(
                    "{addr:x} has {entry:x?} and the translation {to:x?}"
                ));
            }
        }
        Ok(())
    }
}

/// Implements `Mmu` with a machine's processors.
#[derive(Debug)]
pub struct SharedProcessors(pub(crate) Arc<Processors>);

/// True if a translation grants the access.
fn permits(to: Translation, access: Access) -> bool {
    match access {
        Access::Read => to.flags.is_accessible(),
        Access::Write => to.writable,
        Access::Exec => to.flags.contains(VmFlags::EXEC),
    }
}

fn is_allowed(to: Translation, entry: Pte, flags: VmFlags) -> bool {
    let (same, writable) = match (entry, to.page) {
        (Pte::Anon { frame, writable }, MappedPage::Frame(mapped)) => (frame == mapped, writable),
        (Pte::Ksm { frame }, MappedPage::Frame(mapped)) => (frame == mapped, false),
        (Pte::Zero, MappedPage::Zero) => (true, false),
        (Pte::File { writable }, MappedPage::File { .. }) => (true, writable),
        _ => (false, false),
    };
    let writable = writable && flags.contains(VmFlags::WRITE);
    let extra = to.flags & ((VmFlags::READ | VmFlags::EXEC) - flags);
    same && (writable || !to.writable) && extra.is_empty()
}

impl Mmu for SharedProcessors {
    fn mm_created(&self, _: MmId) -> Result<(), Errno> {
        Ok(())
    }

    fn mm_gone(&self, mm: MmId) {
        let state = self.0.0.lock();
        let left = state
            .all()
            .find_map(|table| table.keys().find(|at| at.0 == mm));
        assert!(left.is_none(), "the address space ends with {left:x?}");
    }

    fn set_entry(&self, mm: MmId, addr: u64, to: Translation) -> Result<(), Errno> {
        self.0.0.lock().set((mm, addr), to);
        Ok(())
    }

    fn clear(&self, mm: MmId, range: VmRange) {
        let mut state = self.0.0.lock();
        let range = (mm, range.start)..(mm, range.end);
        state
            .accessed
            .extract_if(range.clone(), |_| true)
            .for_each(drop);
        state.tables.extract_if(range, |_, _| true).for_each(drop);
    }

    fn restrict(&self, mm: MmId, range: VmRange, allowed: VmFlags) {
        let mut state = self.0.0.lock();
        for (_, to) in state.tables.range_mut((mm, range.start)..(mm, range.end)) {
            to.writable &= allowed.contains(VmFlags::WRITE);
            to.flags -= VmFlags::ACCESS - allowed;
        }
    }

    fn allow_writes(&self, mm: MmId, range: VmRange) {
        let mut state = self.0.0.lock();
        let there = state.tables.range((mm, range.start)..(mm, range.end));
        let there: Vec<_> = there.map(|(at, to)| (*at, *to)).collect();
        for (at, to) in there {
            let writable = true;
            let flags = to.flags | VmFlags::WRITE;
            state.set(
                at,
                Translation {
                    writable,
                    flags,
                    ..to
                },
            );
        }
    }

    fn move_entries(&self, mm: MmId, range: VmRange, to: u64) {
        let mut state = self.0.0.lock();
        let place = (mm, to)..(mm, to + range.len_bytes());
        let used = state
            .all()
            .find_map(|table| table.range(place.clone()).next());
        assert!(used.is_none(), "entries move to {used:x?}");
        let range = (mm, range.start)..(mm, range.end);
        let moved = |(mm, addr): (MmId, u64)| (mm, addr - range.start.1 + to);
        let State {
            tables, accessed, ..
        } = &mut *state;
        let entries: Vec<_> = tables.extract_if(range.clone(), |_, _| true).collect();
        tables.extend(entries.into_iter().map(|(at, entry)| (moved(at), entry)));
        let bits: Vec<_> = accessed.extract_if(range.clone(), |_| true).collect();
        accessed.extend(bits.into_iter().map(moved));
    }

    fn accessed(&self, mm: MmId, range: VmRange) -> bool {
        let mut state = self.0.0.lock();
        let range = (mm, range.start)..(mm, range.end);
        state.accessed.extract_if(range, |_| true).count() != 0
    }

    fn flush(&self, mm: MmId, range: VmRange) {
        let mut state = self.0.0.lock();
        for tlb in &mut state.tlbs {
            let range = (mm, range.start)..(mm, range.end);
            tlb.extract_if(range, |_, _| true).for_each(drop);
        }
    }
}
