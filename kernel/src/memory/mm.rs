//! `Mm`: an address space of the core, shared by the threads of a process.

use super::{frames, heap, mmu, oom, platform};
use crate::files::mapped;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use spin::{Mutex, Once};
use vmarea::fault::{Access, Faulted};
use vmarea::mm::mapped::Mapped;
use vmarea::mm::{Layout, Limits};
use vmarea::page::Pte;
use vmarea::policy::Policy;
use vmarea::syscall::Syscall;
use vmarea::types::{Errno, MmId};
use vmarea::vma::VmaView;
use vmarea::{HugePages, Overcommit, Space, System};

use super::platform::{Machine, Memory};

static SPACE: Once<Space<Machine>> = Once::new();

/// Ids of all address spaces.
static ALL: Mutex<BTreeSet<MmId>> = Mutex::new(BTreeSet::new());

/// First address above user memory.
pub const TASK_SIZE: u64 = 0x7fff_ffff_f000;

/// Creates the core's `Space`; called once.
pub fn start(policy: Policy) {
    platform::start();
    let system = System {
        task_size: TASK_SIZE,
        huge_pages: HugePages::Never,
        overcommit: Overcommit::Guess(super::frames::total_frames() as u64),
        ..System::default()
    };
    SPACE.call_once(|| Space::in_environment(policy, system, Memory));
}

/// Returns the core's `Space`.
pub fn space() -> &'static Space<Machine> {
    SPACE.get().expect("the core has started")
}

/// Returns the ids of all address spaces.
pub fn all() -> Vec<MmId> {
    ALL.lock().iter().copied().collect()
}

/// An address space. Its mappings and frames are freed when the last reference is dropped.
#[derive(Debug)]
pub struct Mm(MmId);

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
    /// Memory is full, and the current process has to end.
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
        let _gate = mapped::forking();
        space().fork(self.0).map(Mm::of)
    }

    /// Returns the core's id of the address space.
    pub fn id(&self) -> MmId {
        self.0
    }

    /// Performs a memory call.
    ///
    /// # Errors
    /// Those of the call; ENOMEM if the kernel's own memory is nearly full.
    pub fn call(&self, call: &Syscall) -> Result<u64, Errno> {
        check_memory()?;
        space().syscall(self.0, call)
    }

    /// Handles a page fault, or an access by the kernel for the program.
    ///
    /// # Errors
    /// The reason why the access is impossible, which tells the signal to send.
    pub fn fault(&self, addr: u64, access: Access) -> Result<(), BadAccess> {
        complete(|| {
            let faulted = space().fault(self.0, addr, access);
            let faulted = faulted.unwrap_or(Faulted::NoMapping);
            faulted.result().map_err(|_| faulted)
        })
    }

    /// Calls `f` with the VMA and the page-table entry of an address, while the entry is locked.
    /// `None` if there is no VMA.
    pub fn with_entry<R>(&self, addr: u64, f: impl FnOnce(&VmaView, Pte) -> R) -> Option<R> {
        let r = space().mmap_read_lock(self.0)?;
        let vma = r.vma_lookup(addr)?;
        Some(r.pages().peek(addr, |entry| f(&vma, entry)))
    }
}

/// Repeats an access to a program's memory until it is complete or impossible.
///
/// # Errors
/// The reason why the access is impossible.
pub fn complete<T>(mut access: impl FnMut() -> Result<T, Faulted>) -> Result<T, BadAccess> {
    loop {
        if heap::is_exhausted() || frames::is_low() {
            oom::make_room()?;
        }
        return Err(match access() {
            Ok(done) => return Ok(done),
            Err(Faulted::NoAccess) => BadAccess::NoAccess,
            Err(Faulted::NoPage | Faulted::Userfault) => BadAccess::NoPage,
            // A page could not be allocated.
            Err(Faulted::OutOfMemory) => oom::end_current(),
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
        let _ = space().mm_exit(self.0);
        mapped::sweep();
    }
}

/// Returns ENOMEM if the kernel's own memory or the frames are nearly used up.
fn check_memory() -> Result<(), Errno> {
    match heap::is_low() || frames::is_low() {
        true => Err(Errno::ENOMEM),
        false => Ok(()),
    }
}

/// Returns the physical address of the page that an entry maps; 0 if the entry maps no page.
pub fn address_of_page(vma: &VmaView, addr: u64, entry: Pte) -> u64 {
    let to = Mapped::of(vma, addr, entry).translation();
    to.map_or(0, |to| mmu::address_of(to.page))
}
