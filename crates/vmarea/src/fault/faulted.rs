//! The outcome of a page fault.

use super::Access;
use crate::Space;
use crate::types::platform::Environment;
use crate::types::{Errno, MmId, VmaId};
use vmarea_sync::VmaLockKind;

/// The outcome of a page fault.
///
/// ```
/// # use vmarea::prelude::*;
/// # let space = Space::new(Policy::LINUX, System::default());
/// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
/// # let mm = space.mm_create(layout, Limits::default())?;
/// let text = MmapRequest { prot: Prot::READ, ..MmapRequest::anonymous(PAGE_SIZE) };
/// let at = space.mmap(mm, &text)?;
/// // A trap handler repeats the instruction, or delivers a signal.
/// let signal = |addr, access| match space.fault(mm, addr, access)? {
///     Faulted::Done | Faulted::Spurious => Ok(None),
///     Faulted::NoMapping => Ok(Some("SEGV_MAPERR")),
///     Faulted::NoAccess => Ok(Some("SEGV_ACCERR")),
///     Faulted::NoPage => Ok(Some("BUS_ADRERR")),
///     other => other.result().map(|()| None),
/// };
/// assert_eq!(signal(at, Access::Read)?, None);
/// assert_eq!(signal(at, Access::Write)?, Some("SEGV_ACCERR"));
/// assert_eq!(signal(at - 1, Access::Read)?, Some("SEGV_MAPERR"));
/// # Ok::<(), Errno>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Faulted {
    /// The fault mapped a page or made a page writable.
    Done,
    /// The page-table entry already allowed the access: the TLB was stale, or another fault mapped
    /// the page.
    Spurious,
    /// SIGSEGV: nothing is mapped at the address, or it is a guard page (`SEGV_MAPERR`).
    NoMapping,
    /// SIGSEGV: the mapping does not permit the access (`SEGV_ACCERR`).
    NoAccess,
    /// SIGBUS: the page is beyond the end of the file, or reading it failed (`BUS_ADRERR`).
    NoPage,
    /// Memory allocation failed.
    OutOfMemory,
    /// A userfaultfd context watches the page.
    ///
    /// The embedder decides how to continue; Linux waits or sends SIGBUS.
    Userfault,
    /// The page has to be read from its file first. [`needed_page`](Space::needed_page) returns
    /// which page; read it into the page cache, then continue the fault with
    /// [`fault_again`](Space::fault_again).
    NeedPage,
    /// Nothing has changed, and the access has to be retried later: the page is being migrated and
    /// the platform does not wait for migrations, or the platform returned EAGAIN.
    #[doc(alias = "VM_FAULT_RETRY")]
    Retry,
}

impl Faulted {
    /// Returns the outcome of a fault for which the platform or an allocation returned `error`.
    #[cold]
    #[doc(alias = "vmf_error")]
    pub(super) fn failed(error: Errno) -> Faulted {
        match error {
            Errno::ENOMEM => Faulted::OutOfMemory,
            Errno::EAGAIN => Faulted::Retry,
            _ => Faulted::NoPage,
        }
    }

    /// Converts a fault's outcome to the result of the call on whose behalf the fault was handled.
    ///
    /// # Errors
    /// ENOMEM; EAGAIN if the access has to be retried, or the page has to be read first; EFAULT if
    /// a program would get a signal or wait for a userfaultfd.
    ///
    /// ```
    /// use vmarea::prelude::*;
    ///
    /// assert_eq!(Faulted::Spurious.result(), Ok(()));
    /// assert_eq!(Faulted::NoAccess.result(), Err(Errno::EFAULT));
    /// ```
    #[doc(alias = "vm_fault_to_errno")]
    pub fn result(self) -> Result<(), Errno> {
        match self {
            Faulted::Done | Faulted::Spurious => Ok(()),
            Faulted::OutOfMemory => Err(Errno::ENOMEM),
            Faulted::Retry | Faulted::NeedPage => Err(Errno::EAGAIN),
            Faulted::NoMapping | Faulted::NoAccess | Faulted::NoPage | Faulted::Userfault => {
                Err(Errno::EFAULT)
            }
        }
    }
}

/// A file page that a fault needs in the page cache. Not stored in [`Faulted`], which fits into one
/// byte: a larger `Faulted` would cost every fault more instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeedPage {
    /// Inode number of the file.
    pub inode: u64,
    /// Index of the page in the file.
    pub index: u64,
    /// The ticket with which to resume the fault.
    pub ticket: Ticket,
}

/// The VMA in which a fault is resumed after its page has been brought into the page cache.
///
/// A VMA's id contains the generation of its slot, so a single comparison of ids shows whether the
/// VMA still exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(pub(super) VmaId);

impl Ticket {
    /// Returns the ticket as one nonzero number.
    pub fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// Converts a number from [`to_bits`](Self::to_bits) back to the ticket; returns `None` for 0.
    pub fn from_bits(bits: u64) -> Option<Self> {
        VmaId::from_bits(bits).map(Ticket)
    }
}

impl<E: Environment> Space<E> {
    /// Returns the file page that an access to `addr` needs, after a fault returned
    /// [`NeedPage`](Faulted::NeedPage). Returns `None` if no file is mapped at `addr` any more; the
    /// embedder then has to start the fault again.
    ///
    /// [`fault_again`](Self::fault_again) has an example.
    pub fn needed_page(&self, mm: MmId, addr: u64) -> Option<NeedPage> {
        let vma = self.mmap_read_lock(mm)?.find(addr)?;
        let file = vma
            .body
            .file
            .filter(|_| vma.range.start <= addr && !vma.is_anonymous())?;
        Some(NeedPage {
            inode: file.inode,
            index: vma.pgoff_at(addr).0,
            ticket: Ticket(vma.id),
        })
    }

    /// Resumes a fault that returned [`NeedPage`](Faulted::NeedPage), after the page has been
    /// brought into the page cache.
    ///
    /// If the ticket's VMA still exists, contains `addr` and permits the access, the VMA is not
    /// looked up again; otherwise the fault starts again and might need a different page. The fault
    /// can also need the same page again, if that page has been evicted from the page cache in the
    /// meantime.
    ///
    /// # Errors
    /// ESRCH if the address space does not exist.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use vmarea::prelude::*;
    /// use vmarea::types::{File, FileId, FileKind};
    ///
    /// /// A platform whose files have to be read from a disk first.
    /// #[derive(Default)]
    /// struct Disk {
    ///     is_read: AtomicBool,
    /// }
    ///
    /// impl Platform for &'static Disk {
    ///     fn file_bring(&self, _inode: u64, _index: u64) -> Result<(), Errno> {
    ///         match self.is_read.load(Ordering::Relaxed) {
    ///             true => Ok(()),
    ///             false => Err(Errno::EAGAIN),
    ///         }
    ///     }
    /// #     fn zero(&self, _: FrameId) -> Result<(), Errno> { Ok(()) }
    /// #     fn copy(&self, _: FrameId, _: FrameId) -> Result<(), Errno> { Ok(()) }
    /// #     fn copy_file(&self, _: FrameId, _: u64, _: u64) -> Result<(), Errno> { Ok(()) }
    /// #     fn free(&self, _: FrameId) {}
    /// }
    ///
    /// # let disk: &'static Disk = Box::leak(Box::default());
    /// # let space = Space::with_platform(Policy::LINUX, System::default(), Box::new(disk));
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let request = MmapRequest {
    ///     flags: MapFlags::SHARED,
    ///     file: Some(File::read_write(FileId(1), 7, FileKind::Regular)),
    ///     offset: 3 * PAGE_SIZE,
    ///     ..MmapRequest::anonymous(PAGE_SIZE)
    /// };
    /// let at = space.mmap(mm, &request)?;
    /// assert_eq!(space.fault(mm, at, Access::Read)?, Faulted::NeedPage);
    /// let need = space.needed_page(mm, at).expect("still mapped");
    /// assert_eq!((need.inode, need.index), (7, 3));
    /// // Read the page, and let other threads run in the meantime.
    /// disk.is_read.store(true, Ordering::Relaxed);
    /// let again = space.fault_again(mm, at, Access::Read, need.ticket)?;
    /// assert_eq!(again, Faulted::Done);
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn fault_again(
        &self,
        mm: MmId,
        addr: u64,
        access: Access,
        ticket: Ticket,
    ) -> Result<Faulted, Errno> {
        if E::VmaLock::HAS_READERS {
            let there = self.mms.find(mm.0).ok_or(Errno::ESRCH)?;
            if let Some(faulted) = self.fault_in(there, ticket.0, addr, access) {
                return Ok(faulted);
            }
        }
        self.fault(mm, addr, access)
    }
}
