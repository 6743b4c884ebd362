//! The model's background work on pages: swapping, migrating, merging equal pages.
//!
//! The work must not change the result of any call or access, nor any mapping. A page on which the
//! work is impossible is skipped.

use super::super::op::Work;
use super::Model;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use vmarea::page::Pte;
use vmarea::types::{MmId, PAGE_MASK, VmFlags};

/// The address of a page.
type Page = (MmId, u64);

impl Model {
    /// Performs background work.
    pub(super) fn background(&self, mm: MmId, work: Work) {
        match work {
            Work::SwapOut(addr) => {
                // A page that is locked or not present is not swapped out.
                let _ = self.machine.space().swap_out(mm, self.places.placed(addr));
            }
            Work::Migrate(addr) => self.migrate(mm, self.places.placed(addr) & PAGE_MASK),
            Work::MergeEqual => self.merge_equal(),
        }
    }

    fn migrate(&self, mm: MmId, addr: u64) {
        let space = self.machine.space();
        let frame = space
            .mmap_read_lock(mm)
            .and_then(|r| r.pages().get(addr).frame());
        if let Some(Ok(migrating)) = frame.map(|frame| space.migrate_begin(frame)) {
            // If memory is short, the page is not migrated.
            let _ = space.migrate_end(migrating);
        }
    }

    /// Scans all address spaces once and merges equal pages, as `ksmd` does.
    fn merge_equal(&self) {
        let mut first: HashMap<Vec<u8>, Page> = HashMap::new();
        for (process, mm) in self.mms.iter().enumerate() {
            let Some(mm) = *mm else { continue };
            for addr in self.mergeable(mm) {
                match first.entry(self.page(process, addr).to_vec()) {
                    Entry::Vacant(place) => {
                        place.insert((mm, addr));
                    }
                    Entry::Occupied(other) => {
                        // The two addresses may already map the same page, or one of the pages was
                        // just swapped out.
                        let _ = self.machine.space().ksm_merge(*other.get(), (mm, addr));
                    }
                }
            }
        }
    }

    fn mergeable(&self, mm: MmId) -> Vec<u64> {
        let mut pages = Vec::new();
        let Some(r) = self.machine.space().mmap_read_lock(mm) else {
            return pages;
        };
        for vma in r
            .vmas()
            .filter(|v| v.body.flags.contains(VmFlags::MERGEABLE))
        {
            r.pages().for_each_ordered(vma.range, |addr, entry| {
                if matches!(entry, Pte::Anon { .. } | Pte::Ksm { .. }) {
                    pages.push(addr);
                }
            });
        }
        pages
    }
}
