//! What happens to mappings when the file behind them shrinks or gets a hole.
//!
//! Not a call of the process that maps: `truncate`, `fallocate` and `MADV_REMOVE` by anybody. The
//! embedder changes the file and tells the space, which takes the pages out of every mapping, so
//! that the next access asks for them again.
//!
//! # Linux
//! `mm/memory.c` `unmap_mapping_pages`, `mm/truncate.c`, 6.18. Shrinking takes private copies away as
//! well, a hole leaves them.

use crate::mm::MmapReadGuard;
use crate::page::range::Zap;
use crate::space::Space;
use crate::types::platform::Environment;
use crate::types::{MmId, PAGE_SHIFT, VmRange};
use crate::vma::VmaView;
use alloc::vec::Vec;

/// What becomes of private copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copies {
    /// They go (`even_cows`): the file has become shorter.
    Go,
    /// They stay.
    Stay,
}

impl<E: Environment> Space<E> {
    /// The pages from `first` to before `end` are no longer what the file holds.
    #[doc(alias = "unmap_mapping_pages")]
    pub fn unmap_mapping(&self, inode: u64, first: u64, end: u64, copies: Copies) {
        for mm in self.mms.keys().map(MmId).collect::<Vec<_>>() {
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

/// Where the pages of a file from `first` to before `end` lie in a VMA.
fn part(vma: &VmaView, first: u64, end: u64) -> Option<VmRange> {
    let begin = vma.pgoff.0;
    let last = begin.saturating_add(vma.range.pages());
    let (from, to) = (first.max(begin), end.min(last));
    let addr = |index: u64| vma.range.start + ((index - begin) << PAGE_SHIFT);
    (from < to).then(|| VmRange::new(addr(from), addr(to)))
}
