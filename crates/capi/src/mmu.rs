//! The embedder's MMU, or a copy of the page tables such as an emulator's TLB.

use crate::boundary::{WithSize, done};
use crate::callbacks::call;
use crate::page::{Page, allowed_accesses};
use core::ffi::{c_int, c_void};
use vmarea::types::mmu::Translation;
use vmarea::types::{Errno, MmId, VmFlags, VmRange};

/// Hardware page tables and TLBs, or an emulator's translations. A callback may be NULL.
///
/// Addresses are page-aligned, and `end` is the first address after the range. The callbacks run
/// with a lock of the address space held. `mm_created` and `set_entry` return 0 or -ENOMEM; -ENOMEM
/// makes the system call or the fault fail.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Mmu {
    /// sizeof(struct vmarea_mmu).
    pub size: usize,
    /// Passed to every callback.
    pub context: *mut c_void,
    /// Creates the tables of an address space.
    pub mm_created: Option<unsafe extern "C" fn(context: *mut c_void, mm: u64) -> c_int>,
    /// Frees the tables of an address space, which no longer map anything.
    pub mm_gone: Option<unsafe extern "C" fn(context: *mut c_void, mm: u64)>,
    /// Maps the page `to` at an address, after a fault.
    pub set_entry: Option<
        unsafe extern "C" fn(context: *mut c_void, mm: u64, addr: u64, to: *const Page) -> c_int,
    >,
    /// Removes the entries in a range. TLBs may hold them until `flush`.
    pub clear: Option<unsafe extern "C" fn(context: *mut c_void, mm: u64, start: u64, end: u64)>,
    /// Removes from a range the permissions that `prot` lacks. TLBs may hold them until `flush`.
    pub protect: Option<
        unsafe extern "C" fn(context: *mut c_void, mm: u64, start: u64, end: u64, prot: u32),
    >,
    /// Returns once no TLB holds what `clear` or `protect` removed from a range.
    pub flush: Option<unsafe extern "C" fn(context: *mut c_void, mm: u64, start: u64, end: u64)>,
    /// Frees the tables that map nothing outside of the range.
    pub free_tables:
        Option<unsafe extern "C" fn(context: *mut c_void, mm: u64, start: u64, end: u64)>,
}

// SAFETY: `size` is the first member.
unsafe impl WithSize for Mmu {}

/// The embedder's MMU, or none.
#[derive(Debug)]
pub struct Tables(pub Mmu);

// SAFETY: the header says that any thread may run the callbacks with the context, at the same time.
unsafe impl Send for Tables {}
// SAFETY: as for `Send`.
unsafe impl Sync for Tables {}

impl Tables {
    /// No MMU.
    pub const NONE: Tables = Tables(Mmu {
        size: size_of::<Mmu>(),
        context: core::ptr::null_mut(),
        mm_created: None,
        mm_gone: None,
        set_entry: None,
        clear: None,
        protect: None,
        flush: None,
        free_tables: None,
    });
}

impl vmarea::types::mmu::Mmu for Tables {
    fn mm_created(&self, mm: MmId) -> Result<(), Errno> {
        done(call!(self.0, mm_created(mm.to_bits()), else 0))
    }
    fn mm_gone(&self, mm: MmId) {
        call!(self.0, mm_gone(mm.to_bits()), else ());
    }
    fn set_entry(&self, mm: MmId, addr: u64, to: Translation) -> Result<(), Errno> {
        let page = Page::from(to);
        done(call!(self.0, set_entry(mm.to_bits(), addr, &raw const page), else 0))
    }
    fn clear(&self, mm: MmId, range: VmRange) {
        call!(self.0, clear(mm.to_bits(), range.start, range.end), else ());
    }
    fn restrict(&self, mm: MmId, range: VmRange, allowed: VmFlags) {
        let prot = allowed_accesses(allowed).bits() as u32;
        call!(self.0, protect(mm.to_bits(), range.start, range.end, prot), else ());
    }
    fn flush(&self, mm: MmId, range: VmRange) {
        call!(self.0, flush(mm.to_bits(), range.start, range.end), else ());
    }
    fn free_tables(&self, mm: MmId, range: VmRange) {
        call!(self.0, free_tables(mm.to_bits(), range.start, range.end), else ());
    }
}
