//! The software platform: real bytes in page frames, and accesses that fault as on a processor.
//!
//! A [`Machine`] is a [`Space`] together with the memory behind its pages. Data written through it
//! can be read back after any call, so that tests can check data as well as mappings. Files are
//! stored as pages by inode, like in a page cache. Deliberately absent: write-back, and a limit on
//! the amount of memory.
//!
//! # Locking
//! The lock of the memory is innermost: it is taken while the page-table lock is held, never the
//! other way round.

#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod files;
mod memory;
mod page;

pub use memory::Memory;

use alloc::boxed::Box;
use alloc::sync::Arc;
use memory::SharedMemory;
use page::Page;
use vmarea::fault::{Access, Faulted};
use vmarea::page::Pte;
use vmarea::policy::Policy;
use vmarea::syscall::file_change::Copies;
use vmarea::types::{Errno, MmId, PAGE_MASK, Platform};
use vmarea::vma::VmaView;
use vmarea::vma::merge::Observer;
use vmarea::{Space, System};

/// A [`Space`] whose pages have real contents.
#[derive(Debug)]
pub struct Machine {
    space: Space,
    memory: Arc<Memory>,
}

impl Machine {
    /// Creates a machine without processes.
    pub fn new(policy: Policy, system: System) -> Self {
        let memory = Arc::new(Memory::default());
        let platform: Box<dyn Platform> = Box::new(SharedMemory(Arc::clone(&memory)));
        Self {
            space: Space::with_platform(policy, system, platform),
            memory,
        }
    }

    /// Returns the space with the machine's address spaces.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Sets the observer that is notified of every merge attempt.
    pub fn set_observer(&mut self, observer: Box<dyn Observer>) {
        self.space.set_observer(observer);
    }

    /// Returns the machine's frames and files.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Loads `to.len()` bytes from `addr`; they must be within one page. `to` is filled if the
    /// result is [`Faulted::Done`] or [`Faulted::Spurious`].
    ///
    /// # Errors
    /// ESRCH if the address space does not exist.
    pub fn load(&self, mm: MmId, addr: u64, to: &mut [u8]) -> Result<Faulted, Errno> {
        self.access(mm, addr, Access::Read, |page| copy_out(page, addr, to))
    }

    /// Stores `from` at `addr`; the bytes must be within one page.
    ///
    /// # Errors
    /// ESRCH if the address space does not exist.
    pub fn store(&self, mm: MmId, addr: u64, from: &[u8]) -> Result<Faulted, Errno> {
        self.access(mm, addr, Access::Write, |page| {
            if let Where::Frame(bytes) = page {
                let at = (addr & !PAGE_MASK) as usize;
                bytes[at..at + from.len()].copy_from_slice(from);
            }
        })
    }

    /// Faults until the page-table entry allows the access. Then calls `f` while the entry is
    /// locked.
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

    /// Sets the size of a file to `pages` pages. Pages that are added contain zeros.
    pub fn truncate(&self, inode: u64, pages: u64) {
        self.memory.with_files(|files| files.resize(inode, pages));
        self.space.unmap_mapping(inode, pages, u64::MAX, Copies::Go);
    }

    /// Copies the bytes of the page at `addr` to `to`, without an access. Returns false if no page
    /// is mapped.
    pub fn peek(&self, mm: MmId, addr: u64, to: &mut Page) -> bool {
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

/// Checks whether the processor would allow the access with this entry. Device memory has no entry.
fn allows(entry: Pte, access: Access) -> bool {
    match entry {
        Pte::None => true,
        Pte::Anon { writable, .. } | Pte::File { writable } => writable || access != Access::Write,
        Pte::Zero | Pte::Ksm { .. } => access != Access::Write,
        Pte::Guard | Pte::Swap { .. } | Pte::Migration { .. } => false,
    }
}

/// Memory at an address: none, zeros, or the bytes of a page.
enum Where<'a> {
    Nowhere,
    Zeros,
    Frame(&'a mut Page),
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
