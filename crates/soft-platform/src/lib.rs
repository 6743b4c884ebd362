//! The software platform: real bytes in page frames, and accesses that fault as on a processor.
//!
//! A [`Machine`] is a [`Space`] together with the memory behind its pages. Data written through the
//! machine can be read back after any call, so that tests can check data as well as mappings. Files
//! are stored as pages by inode, like in a page cache. Write-back and a limit on the amount of
//! memory are deliberately not implemented.
//!
//! # Locking
//! The memory's lock is the innermost one: a thread that holds the page-table lock may take it, but
//! not vice versa.

#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod failure;
mod files;
mod memory;
mod mmu;
mod page;

pub use failure::Failure;
pub use memory::{Memory, SharedMemory};
pub use mmu::{CPUS, SharedProcessors};

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use mmu::Processors;
use page::Page;
use vmarea::System;
use vmarea::changes;
use vmarea::fault::{Access, Faulted};
use vmarea::page::Pte;
use vmarea::policy::Policy;
use vmarea::syscall::file_change::Copies;
use vmarea::types::platform::{Environment, Spin};
use vmarea::types::{Errno, MmId, PAGE_MASK, VmFlags};
use vmarea::vma::lock::VmaLock;
use vmarea::vma::merge::Observer;

/// The environment of a [`Machine`]'s address spaces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Emulated;

impl Environment for Emulated {
    type VmaLock = VmaLock;
    type Platform = SharedMemory;
    type Mmu = SharedProcessors;
    type Wait = Spin;
    type Writers = vmarea::types::writers::DefaultWriters;
}

/// A machine's address spaces.
pub type Space = vmarea::Space<Emulated>;

/// A [`Space`] whose pages have real contents, with processors that access the pages.
#[derive(Debug)]
pub struct Machine {
    space: Space,
    memory: Arc<Memory>,
    processors: Arc<Processors>,
}

impl Machine {
    /// Creates a machine without processes.
    pub fn new(policy: Policy, system: System) -> Self {
        let memory = Arc::new(Memory::default());
        let processors = Arc::new(Processors::default());
        let platform = SharedMemory {
            memory: Arc::clone(&memory),
            processors: Arc::clone(&processors),
        };
        let mmu = SharedProcessors(Arc::clone(&processors));
        Self {
            space: Space::with_mmu(policy, system, platform, mmu),
            memory,
            processors,
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

    /// Sets the observer that is notified of every change of a mapping.
    pub fn set_change_observer(&mut self, observer: Box<dyn changes::Observer>) {
        self.space.set_change_observer(observer);
    }

    /// Returns the machine's frames and files.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Loads `to.len()` bytes from `addr`, on the processor `cpu`; the bytes must be within one
    /// page. `to` is filled if the result is [`Faulted::Done`] or [`Faulted::Spurious`].
    ///
    /// # Errors
    /// ESRCH if the address space does not exist.
    pub fn load_on(
        &self,
        cpu: usize,
        mm: MmId,
        addr: u64,
        to: &mut [u8],
    ) -> Result<Faulted, Errno> {
        self.access((cpu, mm, addr), Access::Read, |page| {
            let at = (addr & !PAGE_MASK) as usize;
            match page {
                Some(bytes) => to.copy_from_slice(&bytes[at..at + to.len()]),
                None => to.fill(0),
            }
        })
    }

    /// Stores `from` at `addr`, on the processor `cpu`; the bytes must be within one page.
    ///
    /// # Errors
    /// ESRCH if the address space does not exist.
    pub fn store_on(&self, cpu: usize, mm: MmId, addr: u64, from: &[u8]) -> Result<Faulted, Errno> {
        self.access((cpu, mm, addr), Access::Write, |page| {
            if let Some(bytes) = page {
                let at = (addr & !PAGE_MASK) as usize;
                bytes[at..at + from.len()].copy_from_slice(from);
            }
        })
    }

    /// Loads like [`load_on`](Self::load_on), on the next processor in cyclic order.
    pub fn load(&self, mm: MmId, addr: u64, to: &mut [u8]) -> Result<Faulted, Errno> {
        self.load_on(self.processors.next(), mm, addr, to)
    }

    /// Stores like [`store_on`](Self::store_on), on the next processor in cyclic order.
    pub fn store(&self, mm: MmId, addr: u64, from: &[u8]) -> Result<Faulted, Errno> {
        self.store_on(self.processors.next(), mm, addr, from)
    }

    /// Faults until the processor can access the page, then calls `f` with the page.
    fn access(
        &self,
        (cpu, mm, addr): (usize, MmId, u64),
        access: Access,
        f: impl FnOnce(Option<&mut Page>),
    ) -> Result<Faulted, Errno> {
        let mut f = Some(f);
        let mut faulted = Faulted::Spurious;
        loop {
            let done = self
                .processors
                .access(cpu, (mm, addr & PAGE_MASK), access, |page| {
                    let f = f.take().expect("called once");
                    self.memory.with_page(page, f);
                });
            if done.is_some() {
                return Ok(faulted);
            }
            faulted = self.space.fault(mm, addr, access)?;
            let mapped = matches!(faulted, Faulted::Done | Faulted::Spurious);
            if !mapped || self.is_device(mm, addr) {
                return Ok(faulted);
            }
        }
    }

    /// True if a VMA without page-table entries contains the address.
    fn is_device(&self, mm: MmId, addr: u64) -> bool {
        let device = VmFlags::PFNMAP | VmFlags::IO;
        let r = self.space.mmap_read_lock(mm);
        let vma = r.and_then(|r| r.vma_lookup(addr));
        vma.is_some_and(|vma| vma.body.flags.intersects(device))
    }

    /// Checks all invariants of the space, and each processor's translations against the page
    /// tables. No other thread may use the machine during the check.
    ///
    /// # Errors
    /// The first violation.
    pub fn validate(&self) -> Result<(), String> {
        self.space.validate_all().map_err(|violation| violation.0)?;
        self.processors.check_allowed(|mm, addr| {
            let r = self.space.mmap_read_lock(mm)?;
            let flags = r.vma_lookup(addr)?.body.flags;
            Some((r.pages().get(addr), flags))
        })
    }

    /// Sets the size of a file to `pages` pages. Added pages contain zeros.
    pub fn truncate(&self, inode: u64, pages: u64) {
        self.memory.with_files(|files| files.resize(inode, pages));
        self.space.unmap_mapping(inode, pages, u64::MAX, Copies::Go);
    }

    /// Copies the bytes of the page at `addr` to `to`, without emulating an access. Returns false
    /// if no page is mapped there.
    pub fn peek(&self, mm: MmId, addr: u64, to: &mut Page) -> bool {
        let memory = &self.memory;
        let looked = self.space.with_mapped(mm, addr & PAGE_MASK, |page| {
            to.fill(0);
            let copy = |from: &mut Page| *to = *from;
            match (page.entry, page.file) {
                (Pte::None | Pte::Guard, _) | (Pte::File { .. }, None) => return false,
                (Pte::Zero, _) => {}
                (
                    Pte::Anon { frame, .. } | Pte::Ksm { frame } | Pte::Migration { frame, .. },
                    _,
                ) => memory.with_frame(frame, copy),
                (Pte::Swap { slot }, _) => memory.with_slot(slot, copy),
                (Pte::File { .. }, Some((inode, index))) => {
                    memory.with_file_page(inode, index, copy);
                }
            }
            true
        });
        looked == Ok(true)
    }
}
