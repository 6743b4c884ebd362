//! `Mm`: an address space of the core, as the threads of a process share it.

use super::{heap, interim, mmu, oom, platform};
use crate::files::mapped;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use spin::{Mutex, Once};
use vmarea::fault::{Access, Faulted};
use vmarea::mm::{Layout, Limits};
use vmarea::page::Pte;
use vmarea::policy::Policy;
use vmarea::syscall::Syscall;
use vmarea::syscall::file_change::Copies;
use vmarea::types::{Errno, MmId, VmFlags, VmRange};
use vmarea::vma::VmaView;
use vmarea::{HugePages, Overcommit, Space, System};

use super::mmu::Translation;
use super::platform::{Machine, Memory};

static SPACE: Once<Space<Machine>> = Once::new();

/// All address spaces.
static ALL: Mutex<BTreeSet<MmId>> = Mutex::new(BTreeSet::new());

/// First address above user memory.
pub const TASK_SIZE: u64 = 0x7fff_ffff_f000;

/// Creates the core's machine; called once.
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

/// Returns the core's machine.
pub fn space() -> &'static Space<Machine> {
    SPACE.get().expect("the core has started")
}

/// Returns the ids of all address spaces.
pub fn all() -> Vec<MmId> {
    ALL.lock().iter().copied().collect()
}

/// An address space. Its mappings and frames go when the last reference goes.
#[derive(Debug)]
pub struct Mm(MmId);

/// Why an access cannot be completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadAccess {
    /// SIGSEGV, `SEGV_MAPERR`.
    NoMapping,
    /// SIGSEGV, `SEGV_ACCERR`.
    NoAccess,
    /// SIGBUS, `BUS_ADRERR`.
    NoPage,
    /// Memory is full, and nobody else can be ended.
    NoMemory,
}

impl Mm {
    /// Creates an empty address space.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(layout: Layout, limits: Limits) -> Result<Arc<Mm>, Errno> {
        let id = space().mm_create(layout, limits)?;
        Mm::of(id)
    }

    fn of(id: MmId) -> Result<Arc<Mm>, Errno> {
        if let Err(error) = mmu::mm_created(id) {
            let _ = space().mm_exit(id);
            return Err(error);
        }
        ALL.lock().insert(id);
        Ok(Arc::new(Mm(id)))
    }

    /// Copies the address space for a new process.
    ///
    /// # Errors
    /// Those of the core's `fork`; ENOMEM.
    pub fn fork(&self) -> Result<Arc<Mm>, Errno> {
        self.check_memory()?;
        let _gate = mapped::forking();
        let child = Mm::of(space().fork(self.0)?);
        interim::changed(self.0, VmRange::new(0, TASK_SIZE));
        child
    }

    /// Returns the core's id.
    pub fn id(&self) -> MmId {
        self.0
    }

    /// Performs a memory call.
    ///
    /// # Errors
    /// Those of the call; ENOMEM if the kernel's own memory is nearly full.
    pub fn call(&self, call: &Syscall) -> Result<u64, Errno> {
        self.check_memory()?;
        let result = space().syscall(self.0, call);
        interim::changed(self.0, VmRange::new(0, TASK_SIZE));
        result
    }

    fn check_memory(&self) -> Result<(), Errno> {
        match heap::is_low() {
            true => Err(Errno::ENOMEM),
            false => Ok(()),
        }
    }

    /// Handles a page fault, or an access by the kernel for the program.
    ///
    /// # Errors
    /// The signal that the access deserves.
    pub fn fault(&self, addr: u64, access: Access) -> Result<(), BadAccess> {
        loop {
            if heap::is_low() {
                oom::make_room()?;
            }
            let faulted = space().fault(self.0, addr, access);
            match faulted.unwrap_or(Faulted::NoMapping) {
                Faulted::Done | Faulted::Spurious => match interim::install(self, addr, access) {
                    Ok(()) => return Ok(()),
                    Err(Errno::ENOMEM) => oom::make_room()?,
                    Err(_) => {}
                },
                Faulted::NoMapping => return Err(BadAccess::NoMapping),
                Faulted::NoAccess => return Err(BadAccess::NoAccess),
                Faulted::NoPage | Faulted::Userfault => return Err(BadAccess::NoPage),
                Faulted::OutOfMemory => oom::make_room()?,
                Faulted::MustWait => core::hint::spin_loop(),
            }
        }
    }

    /// Calls `f` with the VMA and the entry of an address, while the entry is locked. `None` if
    /// there is no VMA.
    pub fn with_entry<R>(&self, addr: u64, f: impl FnOnce(&VmaView, Pte) -> R) -> Option<R> {
        let r = space().mmap_read_lock(self.0)?;
        let vma = r.vma_lookup(addr)?;
        Some(r.pages().peek(addr, |entry| f(&vma, entry)))
    }
}

impl Drop for Mm {
    fn drop(&mut self) {
        ALL.lock().remove(&self.0);
        let _ = space().mm_exit(self.0);
        mmu::mm_gone(self.0);
        mapped::sweep();
    }
}

/// Returns the page that an entry maps, and what the hardware may do with it; `None` if the entry
/// maps no page.
pub fn page_of(vma: &VmaView, addr: u64, entry: Pte) -> Option<Translation> {
    let (page, writable) = match entry {
        Pte::Zero => (platform::zero_page(), false),
        Pte::Anon { frame, writable } => (platform::physical_address(frame), writable),
        Pte::Ksm { frame } => (platform::physical_address(frame), false),
        Pte::File { writable } => {
            let file = mapped::file(vma.body.file?.inode)?;
            (
                file.page_address(vma.pgoff_at(addr).0).unwrap_or(0),
                writable,
            )
        }
        Pte::None | Pte::Guard | Pte::Swap { .. } | Pte::Migration { .. } => return None,
    };
    Some(Translation {
        page,
        writable: writable && vma.body.flags.contains(VmFlags::WRITE),
        flags: vma.body.flags,
    })
}

/// Removes pages of a file from every mapping, and from the hardware.
pub fn unmap_file(inode: u64, first: u64, end: u64, copies: Copies) {
    space().unmap_mapping(inode, first, end, copies);
    for mm in all() {
        interim::changed(mm, VmRange::new(0, TASK_SIZE));
    }
}
