//! `Mm`: an address space in the core, shared by the threads of a process.

use super::shortage::{self, Short};
use super::{ALL, TASK_SIZE, reclaim, shrinker, space};
use crate::memory::{frame_numbers, heap, mmu};
use alloc::sync::Arc;
use core::ops::ControlFlow;
use vmarea::fault::{Access, Faulted};
use vmarea::mm::mapped::Mapped;
use vmarea::mm::{Layout, Limits};
use vmarea::page::Pte;
use vmarea::syscall::Syscall;
use vmarea::syscall::madvise::Advice;
use vmarea::types::call_flags::MapFlags;
use vmarea::types::{Errno, MmId, PAGE_SIZE, VmRange};
use vmarea::vma::VmaView;

/// Maximum number of times that a page fault is repeated because a page could not be allocated.
const MAX_SHORTAGES: u32 = 16;

/// An address space. Its mappings and frames are freed when the last reference is dropped.
#[derive(Debug)]
pub struct Mm(MmId);

/// Page counts of an address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Number of anonymous pages in memory.
    pub anonymous: u64,
    /// Number of file pages, which are all in memory.
    pub shmem: u64,
    /// Number of pages on the swap device.
    pub swapped: u64,
    /// Number of frames used by the hardware page tables.
    pub tables: u64,
}

impl Usage {
    /// Returns the number of pages in memory, excluding page tables.
    pub fn resident(&self) -> u64 {
        self.anonymous + self.shmem
    }
}

/// Why an access cannot be completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(
    clippy::enum_variant_names,
    reason = "each is something that is missing"
)]
pub enum BadAccess {
    /// SIGSEGV, `SEGV_MAPERR`.
    NoMapping,
    /// SIGSEGV, `SEGV_ACCERR`.
    NoAccess,
    /// SIGBUS, `BUS_ADRERR`.
    NoPage,
    /// Memory is full, and the current process must end.
    NoMemory,
}

impl Mm {
    /// Creates an empty address space.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(layout: Layout, limits: Limits) -> Result<Arc<Mm>, Errno> {
        check_memory()?;
        space().mm_create(layout, limits).map(Mm::of)
    }

    fn of(id: MmId) -> Arc<Mm> {
        ALL.lock().insert(id);
        Arc::new(Mm(id))
    }

    /// Copies the address space for a new process.
    ///
    /// # Errors
    /// Those of the core's `fork`; ENOMEM.
    pub fn fork(&self) -> Result<Arc<Mm>, Errno> {
        check_memory()?;
        let fork = || space().fork(self.0);
        let child = fork().or_else(|why| match why {
            Errno::ENOMEM => {
                shrinker::shrink();
                fork()
            }
            why => Err(why),
        });
        child.map(Mm::of)
    }

    /// Returns the core's id of the address space.
    pub fn id(&self) -> MmId {
        self.0
    }

    /// Performs a memory call.
    ///
    /// # Errors
    /// Those of the call; ENOMEM if memory is nearly full.
    pub fn call(&self, call: &Syscall) -> Result<u64, Errno> {
        // The core cannot wait for reclaim while it faults in the pages of a call.
        if !reclaim::free_frames(reclaim::MIN + pages_brought(call)) {
            check_memory()?;
        } else if !shrinker::has_heap() {
            return Err(Errno::ENOMEM);
        }
        space().syscall(self.0, call)
    }

    /// Handles a page fault, or an access that the kernel makes on behalf of the program.
    ///
    /// # Errors
    /// The reason why the access is impossible, which determines the signal to send.
    pub fn fault(&self, addr: u64, access: Access) -> Result<(), BadAccess> {
        complete(|| {
            let faulted = space().fault(self.0, addr, access);
            let faulted = faulted.unwrap_or(Faulted::NoMapping);
            faulted.result().map_err(|_| faulted)
        })
    }

    /// Calls `f` with an address's VMA and locked page-table entry; `None` if there is no VMA.
    pub fn with_entry<R>(&self, addr: u64, f: impl FnOnce(&VmaView, Pte) -> R) -> Option<R> {
        let r = space().mmap_read_lock(self.0)?;
        let vma = r.vma_lookup(addr)?;
        Some(r.pages().peek(addr, |entry| f(&vma, entry)))
    }

    /// Counts the pages of the address space by kind.
    pub fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        let Some(r) = space().mmap_read_lock(self.0) else {
            return sum;
        };
        r.pages().for_each(VmRange::new(0, TASK_SIZE), |_, entry| {
            match entry {
                Pte::Anon { .. } | Pte::Ksm { .. } => sum.anonymous += 1,
                Pte::File { .. } => sum.shmem += 1,
                Pte::Swap { .. } => sum.swapped += 1,
                Pte::None | Pte::Zero | Pte::Guard | Pte::Migration { .. } => {}
            }
            ControlFlow::Continue(())
        });
        sum.tables = mmu::table_frames(self.0) as u64;
        sum
    }
}

/// Retries an access to a program's memory until it succeeds or turns out to be impossible.
///
/// # Errors
/// The reason why the access is impossible.
pub fn complete<T>(mut access: impl FnMut() -> Result<T, Faulted>) -> Result<T, BadAccess> {
    let mut shortages = 0;
    loop {
        reclaim::check();
        let has_room = match heap::is_exhausted() {
            true => shortage::make_room(Short::Heap),
            false => reclaim::free_frames(reclaim::MIN) || shortage::make_room(Short::Frames),
        };
        if !has_room {
            return Err(BadAccess::NoMemory);
        }
        return Err(match access() {
            Ok(done) => return Ok(done),
            Err(Faulted::NoAccess) => BadAccess::NoAccess,
            Err(Faulted::NoPage | Faulted::Userfault) => BadAccess::NoPage,
            // Other CPUs took the frames that were free, or the core has no heap.
            Err(Faulted::OutOfMemory) if shortages < MAX_SHORTAGES => {
                shortages += 1;
                shrinker::shrink();
                continue;
            }
            Err(Faulted::OutOfMemory) => {
                shortage::end_current();
                BadAccess::NoMemory
            }
            Err(Faulted::Retry | Faulted::NeedPage) => {
                core::hint::spin_loop();
                continue;
            }
            Err(Faulted::NoMapping | Faulted::Done | Faulted::Spurious) => BadAccess::NoMapping,
        });
    }
}

impl Drop for Mm {
    fn drop(&mut self) {
        ALL.lock().remove(&self.0);
        let state = space().mmap_read_lock(self.0);
        let vmas = state.map_or(0, |r| r.state().peak_map_count);
        let _ = space().mm_exit(self.0);
        shrinker::process_ended(vmas);
    }
}

/// Returns the maximum number of pages that a call faults in at once.
fn pages_brought(call: &Syscall) -> usize {
    let len = match call {
        Syscall::Mlock { len, flags, .. } if flags.is_empty() => *len,
        Syscall::Madvise {
            len,
            advice: Advice::PopulateRead | Advice::PopulateWrite,
            ..
        } => *len,
        Syscall::Mmap(request) if request.flags.contains(MapFlags::POPULATE) => request.len,
        _ => 0,
    };
    (len.min(TASK_SIZE) / PAGE_SIZE) as usize
}

/// Checks that neither the kernel's heap nor the page frames are nearly used up, if necessary after
/// shrinking.
///
/// # Errors
/// ENOMEM.
pub fn check_memory() -> Result<(), Errno> {
    let has_memory = || !heap::is_low() && reclaim::free_frames(reclaim::MIN);
    if has_memory() {
        return Ok(());
    }
    shrinker::shrink();
    has_memory().then_some(()).ok_or(Errno::ENOMEM)
}

/// Returns the physical address of the page that an entry maps, or 0 if the entry maps no page.
pub fn address_of_page(vma: &VmaView, addr: u64, entry: Pte) -> u64 {
    let to = Mapped::of(vma, addr, entry).translation();
    to.map_or(0, |to| frame_numbers::address_of(to.page))
}
