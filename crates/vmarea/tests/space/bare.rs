//! A machine with one empty process, without a model of the process's memory contents.

use vmarea::System;
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::types::arch::{Arch, Native};
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::{File, FileId, FileKind, MmId, PAGE_SIZE};
use vmarea::vma::VmaView;
use vmarea_soft_platform::{Machine, Space};

/// Address at which the tests create mappings.
pub const BASE: u64 = 0x10_0000_0000;
/// Start of the heap.
pub const HEAP: u64 = 0x20_0000_0000;
/// End of the user address space.
pub const TASK_SIZE: u64 = Native::TASK_SIZE;
/// Upper limit of the search for free addresses (`mmap_base`).
pub const TOP: u64 = 0x7f00_0000_0000;
/// Readable and writable.
pub const RW: Prot = Prot::READ.union(Prot::WRITE);
/// Private and anonymous.
pub const PRIVATE: MapFlags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS);

/// Creates an empty process.
pub fn process(machine: &Machine) -> MmId {
    let layout = Layout {
        mmap_base: TOP,
        legacy_base: 0x2aaa_aaaa_0000,
        start_brk: HEAP,
        brk: HEAP,
        ..Layout::default()
    };
    machine
        .space()
        .mm_create(layout, Limits::default())
        .unwrap()
}

/// Creates a machine with one empty process.
pub fn machine(policy: Policy) -> (Machine, MmId) {
    let machine = Machine::new(policy, System::default());
    let mm = process(&machine);
    (machine, mm)
}

/// Returns the VMAs of a process.
pub fn vmas(space: &Space, mm: MmId) -> Vec<VmaView> {
    space.mmap_read_lock(mm).unwrap().vmas().collect()
}

/// Returns a readable and writable file of the given kind.
pub fn file(kind: FileKind) -> File {
    File::read_write(FileId(7), 7, kind)
}

/// Maps private anonymous memory at `addr`.
pub fn map_at(space: &Space, mm: MmId, addr: u64, pages: u64) {
    let request = MmapRequest {
        addr,
        len: pages * PAGE_SIZE,
        prot: RW,
        flags: PRIVATE | MapFlags::FIXED,
        ..MmapRequest::default()
    };
    space.mmap(mm, &request).unwrap();
}
