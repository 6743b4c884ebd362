//! The software platform: real bytes in real frames, and accesses that fault like a processor's.
//!
//! A [`Machine`] is a [`Space`] together with the memory behind its pages. What is written through
//! it can be read back after any call, so that not only mappings but data can be checked. Files are
//! kept as pages by inode, as a page cache keeps them. Deliberately absent: write-back, and any
//! limit on how much memory there is.
//!
//! # Locking
//! The memory's own lock is innermost: it is taken under the page-table lock, never around it.

mod files;
mod memory;

pub use memory::Memory;

use crate::fault::{Access, Faulted};
use crate::page::Pte;
use crate::policy::Policy;
use crate::space::{Space, System};
use crate::syscall::file_change::Copies;
use crate::types::{Errno, MmId, PAGE_MASK, PAGE_SIZE, Platform};
use crate::vma::VmaView;
use crate::vma::merge::Observer;
use alloc::boxed::Box;
use alloc::sync::Arc;

/// A space with bytes in its pages.
#[derive(Debug)]
pub struct Machine {
    space: Space,
    memory: Arc<Memory>,
}

impl Machine {
    /// A machine without processes.
    pub fn new(policy: Policy, system: System) -> Self {
        let memory = Arc::new(Memory::default());
        let platform: Box<dyn Platform> = Box::new(Arc::clone(&memory));
        Self {
            space: Space::with_platform(policy, system, platform),
            memory,
        }
    }

    /// Its address spaces.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Whoever is told of every attempt to merge.
    pub fn set_observer(&mut self, observer: Box<dyn Observer>) {
        self.space.set_observer(observer);
    }

    /// Its frames and files.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// A load of `to.len()` bytes, which lie within one page. `to` is filled where the answer is
    /// [`Faulted::Done`] or [`Faulted::Spurious`].
    ///
    /// # Errors
    /// ESRCH where there is no such address space.
    pub fn load(&self, mm: MmId, addr: u64, to: &mut [u8]) -> Result<Faulted, Errno> {
        self.access(mm, addr, Access::Read, |page| copy_out(page, addr, to))
    }

    /// A store of `from`, which lies within one page.
    ///
    /// # Errors
    /// ESRCH where there is no such address space.
    pub fn store(&self, mm: MmId, addr: u64, from: &[u8]) -> Result<Faulted, Errno> {
        self.access(mm, addr, Access::Write, |page| {
            if let Where::Frame(bytes) = page {
                let at = (addr & !PAGE_MASK) as usize;
                bytes[at..at + from.len()].copy_from_slice(from);
            }
        })
    }

    /// Faults until the entry allows the access, and does it while the entry is locked.
    fn access(
        &self,
        mm: MmId,
        addr: u64,
        access: Access,
        f: impl FnOnce(Where<'_>),
    ) -> Result<Faulted, Errno> {
        let mut f = Some(f);
        loop {
            let faulted = self.space.fault(mm, addr, access)?;
            if !matches!(faulted, Faulted::Done | Faulted::Spurious) {
                return Ok(faulted);
            }
            let accessed = self.with_page(mm, addr, |entry, page| {
                let allowed = allows(entry, access);
                if allowed && let Some(f) = f.take() {
                    f(page);
                }
                allowed
            })?;
            if accessed {
                return Ok(faulted);
            }
        }
    }

    /// A file has this many pages from now on; new ones are zeros.
    pub fn truncate(&self, inode: u64, pages: u64) {
        self.memory.with_files(|files| files.resize(inode, pages));
        self.space.unmap_mapping(inode, pages, u64::MAX, Copies::Go);
    }

    /// The bytes of the page at `addr` as they are, without an access; false where no page is
    /// mapped.
    pub fn peek(&self, mm: MmId, addr: u64, to: &mut [u8; PAGE_SIZE as usize]) -> bool {
        let mut found = false;
        let looked = self.with_page(mm, addr & PAGE_MASK, |_, page| {
            found = !matches!(page, Where::Nowhere);
            copy_out(page, 0, to);
        });
        looked.is_ok() && found
    }

    fn with_page<R>(
        &self,
        mm: MmId,
        addr: u64,
        f: impl FnOnce(Pte, Where<'_>) -> R,
    ) -> Result<R, Errno> {
        let r = self.space.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
        let vma = r.vma_lookup(addr);
        let memory = &self.memory;
        Ok(r.pages().peek(addr, |entry| match entry {
            Pte::None | Pte::Guard => f(entry, Where::Nowhere),
            Pte::Zero => f(entry, Where::Zeros),
            Pte::Anon { frame, .. } | Pte::Ksm { frame } | Pte::Migration { frame, .. } => {
                memory.with_frame(frame, |p| f(entry, Where::Frame(p)))
            }
            Pte::Swap { slot } => memory.with_slot(slot, |p| f(entry, Where::Frame(p))),
            Pte::File { .. } => match vma.and_then(|v| file_page(&v, addr)) {
                Some((inode, index)) => {
                    memory.with_file_page(inode, index, |p| f(entry, Where::Frame(p)))
                }
                None => f(entry, Where::Nowhere),
            },
        }))
    }
}

/// Would the processor go on with this entry? Device memory has none.
fn allows(entry: Pte, access: Access) -> bool {
    match entry {
        Pte::None => true,
        Pte::Anon { writable, .. } | Pte::File { writable } => writable || access != Access::Write,
        Pte::Zero | Pte::Ksm { .. } => access != Access::Write,
        Pte::Guard | Pte::Swap { .. } | Pte::Migration { .. } => false,
    }
}

/// What lies behind an address.
enum Where<'a> {
    Nowhere,
    Zeros,
    Frame(&'a mut [u8; PAGE_SIZE as usize]),
}

fn copy_out(page: Where<'_>, addr: u64, to: &mut [u8]) {
    let at = (addr & !PAGE_MASK) as usize;
    match page {
        Where::Frame(bytes) => to.copy_from_slice(&bytes[at..at + to.len()]),
        Where::Nowhere | Where::Zeros => to.fill(0),
    }
}

fn file_page(vma: &VmaView, addr: u64) -> Option<(u64, u64)> {
    vma.body.file.map(|file| (file.inode, vma.pgoff_at(addr).0))
}
