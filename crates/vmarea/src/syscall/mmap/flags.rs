//! Converts an `mmap` request to VMA flags and rejects invalid combinations.
//!
//! The flags depend on the request, the mapped file and the mapping type.
//!
//! # Errors
//! EINVAL for a type that is unknown or contradicts a flag; EOPNOTSUPP for an unknown flag with
//! SHARED_VALIDATE; EACCES and EPERM for access that the file or its mount forbids; ENODEV for a
//! file that cannot be mapped; EOVERFLOW beyond the last page of a file.
//!
//! # Linux
//! The middle of `do_mmap` in `mm/mmap.c`, 6.18.

use super::request::MmapRequest;
use crate::Space;
use crate::refused::Rule;
use crate::syscall::unmapped_area::pages_of;
use crate::types::call_flags::{MapFlags, MapType, Prot};
use crate::types::platform::Environment;
use crate::types::{Errno, File, FileKind, Pgoff, VmFlags};

/// Flags that every mapping type accepts: `LEGACY_MAP_MASK` and the mapping type bits.
const KNOWN_FLAGS: u32 = 0x7c07_f9ff;

/// `MAP_ABOVE4G`.
const ABOVE_4G: u32 = 0x80;

/// Returns the VMA flags for mapping `len` bytes of a file; `len` is a multiple of the page size.
pub(super) fn file_flags<E: Environment>(
    space: &Space<E>,
    file: &File,
    (request, len): (&MmapRequest, u64),
    mut vm_flags: VmFlags,
) -> Result<VmFlags, Errno> {
    let last = file.kind.max_bytes().checked_sub(len).map(pages_of);
    if last.is_none_or(|last| pages_of(request.offset) > last) {
        return Err(space.refuse(Errno::EOVERFLOW, Rule::OffsetFits));
    }
    let flags = request.flags;
    match flags.map_type() {
        Some(kind @ (MapType::Shared | MapType::SharedValidate)) => {
            let mut known = KNOWN_FLAGS;
            if file.kind == FileKind::RegularHugeAligned {
                known |= MapFlags::SYNC.bits();
            }
            if !space.policy.rules.map_above_4g {
                known &= !ABOVE_4G;
            }
            if kind == MapType::SharedValidate && flags.bits() & !known != 0 {
                return Err(space.refuse(Errno::EOPNOTSUPP, Rule::KnownMapFlags));
            }
            if request.prot.contains(Prot::WRITE) && !file.writable
                || file.append_only && file.writable
            {
                return Err(space.refuse(Errno::EACCES, Rule::OpenForWriting));
            }
            vm_flags |= VmFlags::SHARED | VmFlags::MAYSHARE;
            if !file.writable {
                vm_flags -= VmFlags::MAYWRITE | VmFlags::SHARED;
            }
        }
        Some(MapType::Private) => {}
        _ => return Err(space.refuse(Errno::EINVAL, Rule::MapType)),
    }
    if !file.readable {
        return Err(space.refuse(Errno::EACCES, Rule::OpenForReading));
    }
    if file.is_noexec() {
        if vm_flags.contains(VmFlags::EXEC) {
            return Err(space.refuse(Errno::EPERM, Rule::NoExec));
        }
        vm_flags -= VmFlags::MAYEXEC;
    }
    // The file has no `mmap` operation.
    if request.refused == Some(Errno::ENODEV) {
        return Err(space.refuse(Errno::ENODEV, Rule::FileMaps));
    }
    if flags.contains(MapFlags::GROWSDOWN) {
        return Err(space.refuse(Errno::EINVAL, Rule::GrowsDownPrivate));
    }
    if file.write_sealed && vm_flags.contains(VmFlags::SHARED) {
        if vm_flags.contains(VmFlags::WRITE) {
            return Err(space.refuse(Errno::EPERM, Rule::WriteSeal));
        }
        vm_flags -= VmFlags::MAYWRITE;
    }
    Ok(vm_flags)
}

/// Returns the VMA flags and the page offset of an anonymous mapping.
pub(super) fn anonymous_flags<E: Environment>(
    space: &Space<E>,
    flags: MapFlags,
    mut vm_flags: VmFlags,
    addr: u64,
) -> Result<(VmFlags, Pgoff), Errno> {
    match flags.map_type() {
        Some(MapType::Shared) => {
            if vm_flags.contains(VmFlags::GROWSDOWN) {
                return Err(space.refuse(Errno::EINVAL, Rule::GrowsDownPrivate));
            }
            vm_flags |= VmFlags::SHARED | VmFlags::MAYSHARE;
            Ok((vm_flags, Pgoff(0)))
        }
        Some(MapType::Droppable) => {
            if flags.intersects(MapFlags::LOCKED | MapFlags::HUGETLB)
                || vm_flags.contains(VmFlags::GROWSDOWN)
            {
                return Err(space.refuse(Errno::EINVAL, Rule::Droppable));
            }
            vm_flags |=
                VmFlags::DROPPABLE | VmFlags::NORESERVE | VmFlags::WIPEONFORK | VmFlags::DONTDUMP;
            Ok((vm_flags, Pgoff::of_addr(addr)))
        }
        Some(MapType::Private) => Ok((vm_flags, Pgoff::of_addr(addr))),
        _ => Err(space.refuse(Errno::EINVAL, Rule::MapType)),
    }
}
