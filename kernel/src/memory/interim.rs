//! Keeps the hardware's page tables in step with a core that does not report its changes.
//!
//! After a fault, the entry is looked up under its lock and installed; after a call, the hardware
//! forgets the range that the call may have changed. Between the core's change and the flush a
//! frame may already be in use elsewhere, so this cannot isolate processes.

use super::mm::{Mm, page_of, space};
use super::mmu;
use vmarea::fault::Access;
use vmarea::types::{Errno, MmId, VmRange};

/// Installs the entry that a fault has brought.
///
/// # Errors
/// EAGAIN if the entry does not allow the access any more; ENOMEM.
pub fn install(mm: &Mm, addr: u64, access: Access) -> Result<(), Errno> {
    let addr = addr & !4095;
    let page = VmRange::new(addr, addr + 4096);
    let r = space().mmap_read_lock(mm.id()).ok_or(Errno::ESRCH)?;
    let vma = r.vma_lookup(addr).ok_or(Errno::EAGAIN)?;
    r.pages().peek(addr, |entry| {
        let to = page_of(&vma, addr, entry).ok_or(Errno::EAGAIN)?;
        if access == Access::Write && !to.writable {
            return Err(Errno::EAGAIN);
        }
        mmu::clear(mm.id(), page);
        mmu::flush(mm.id(), page);
        mmu::set_entry(mm.id(), addr, to)
    })
}

/// Forgets a range of which a call may have changed entries.
pub fn changed(mm: MmId, range: VmRange) {
    mmu::clear(mm, range);
    mmu::flush(mm, range);
}
