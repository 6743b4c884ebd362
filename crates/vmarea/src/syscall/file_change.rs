//! Updates mappings when their file is truncated or gets a hole.
//!
//! The mapping process need not be involved: any process may call `truncate`, `fallocate` or
//! `MADV_REMOVE`. The embedder changes the file and calls [`Space::unmap_mapping`], which removes
//! the pages from every mapping, so that the next access faults.
//!
//! # Linux
//! `mm/memory.c` `unmap_mapping_pages`, `mm/truncate.c`, 6.18. Truncating a file removes private
//! copies as well; punching a hole keeps them.

use crate::Space;
use crate::mm::MmapReadGuard;
use crate::page::range::Zap;
use crate::types::platform::Environment;
use crate::types::{MmId, PAGE_SHIFT, VmRange};
use crate::vma::VmaView;

/// Treatment of private copies when pages of a file are removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copies {
    /// Private copies are removed (`even_cows`): the file was truncated.
    Go,
    /// Private copies are kept: the file got a hole.
    Stay,
}

impl<E: Environment> Space<E> {
    /// Removes pages `first` up to `end` (exclusive) of a changed file from every mapping.
    #[doc(alias = "unmap_mapping_pages")]
    pub fn unmap_mapping(&self, inode: u64, first: u64, end: u64, copies: Copies) {
        for mm in self.mms.keys().map(MmId) {
            if let Some(r) = self.mmap_read_lock(mm) {
                r.unmap_mapping(inode, first, end, copies);
            }
        }
    }
}

impl<E: Environment> MmapReadGuard<'_, E> {
    fn unmap_mapping(&self, inode: u64, first: u64, end: u64, copies: Copies) {
        let zap = match copies {
            Copies::Go => Zap::KeepGuards,
            Copies::Stay => Zap::FilePages,
        };
        let maps = |v: &VmaView| v.body.file.is_some_and(|f| f.inode == inode);
        for vma in self.vmas().filter(|v| maps(v) && !v.is_anonymous()) {
            if let Some(range) = part(&vma, first, end) {
                self.page_tables().zap(range, zap);
            }
        }
    }
}

/// Returns the addresses at which a VMA maps the file's pages `first` up to `end` (exclusive).
fn part(vma: &VmaView, first: u64, end: u64) -> Option<VmRange> {
    let begin = vma.pgoff.0;
    let last = begin.saturating_add(vma.range.pages());
    let (from, to) = (first.max(begin), end.min(last));
    let addr = |index: u64| vma.range.start + ((index - begin) << PAGE_SHIFT);
    (from < to).then(|| VmRange::new(addr(from), addr(to)))
}
