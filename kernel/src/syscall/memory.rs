//! Memory system calls: conversion of their arguments to the core's `Syscall`.

use super::{Call, Outcome};
use crate::failure::{Failure, Value};
use crate::files::inode::Device;
use crate::files::{Inode, OpenFile};
use crate::memory::mapped;
use crate::process::find;
use crate::space::TASK_SIZE;
use crate::space::file::InUse;
use crate::space::{Mm, space};
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::errno::{EACCES, EBADF, EINVAL, ENODEV, ENOMEM, EPERM, ESRCH};
use linux_raw_sys::general::*;
use vmarea::page::{Pte, SwapMap};
use vmarea::syscall::file_change::Copies;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::process_madvise::Advised;
use vmarea::syscall::{Syscall, registers};
use vmarea::types::call_flags::*;
use vmarea::types::prctl::PrctlOption;
use vmarea::types::{PAGE_SIZE, VmFlags, page_align};

/// Performs a memory call.
pub fn call(call: &Call<'_>) -> Outcome {
    let [a, b, c, ..] = call.args;
    let mm = call.mm;
    match call.number {
        __NR_mmap => Some(mmap(call)),
        __NR_mincore => Some(mincore(mm, a, b, c)),
        __NR_process_madvise => Some(process_madvise(call)),
        __NR_process_mrelease => Some(process_mrelease(call)),
        __NR_msync => Some(msync(mm, a, b, c)),
        // Linux's `brk` returns no error: it returns the break that is in effect.
        __NR_brk => {
            let moved = mm.call(&Syscall::Brk { addr: a });
            let left = moved.or_else(|_| mm.call(&Syscall::Brk { addr: 0 }));
            Some(left.map_err(Failure::from))
        }
        _ => Some(mm.call(&of_registers(call)?).map_err(Failure::from)),
    }
}

/// Converts a call to the core's form if its arguments alone determine it.
fn of_registers(call: &Call<'_>) -> Option<Syscall> {
    let [a, b, c, d, e, _] = call.args;
    let option = PrctlOption(u64::from(a as u32));
    match call.number {
        __NR_personality => Some(Syscall::Personality { bits: a as u32 }),
        __NR_prctl if is_of_memory(option) => Some(Syscall::Prctl {
            option,
            args: [b, c, d, e],
        }),
        number => registers::syscall(number, call.args),
    }
}

fn is_of_memory(option: PrctlOption) -> bool {
    const PR_SET_VMA: PrctlOption = PrctlOption(0x5356_4d41);
    const GETTERS: [PrctlOption; 2] = [PrctlOption(42), PrctlOption(68)];
    let settings = [
        PrctlOption::SET_MM,
        PrctlOption::SET_THP_DISABLE,
        PrctlOption::SET_MDWE,
        PrctlOption::GET_MDWE,
        PrctlOption::SET_MEMORY_MERGE,
        PR_SET_VMA,
    ];
    settings.contains(&option) || GETTERS.contains(&option)
}

fn mmap(call: &Call<'_>) -> Result<Value, Failure> {
    let [addr, len, prot, flags, fd, offset] = call.args;
    let flags = MapFlags::from_bits_retain(flags as u32);
    let file = match flags.contains(MapFlags::ANONYMOUS) {
        true => None,
        false => Some(call.thread.process.files.get(fd as u32)?),
    };
    if offset % PAGE_SIZE != 0 || flags.contains(MapFlags::HUGETLB) && file.is_none() {
        return Err(EINVAL.into());
    }
    let described = file.as_deref().map(describe).transpose()?;
    let request = MmapRequest {
        addr,
        len,
        prot: Prot::from_bits_retain(from_register(prot)),
        flags,
        file: described.as_ref().map(|(file, _)| *file),
        offset,
        ..MmapRequest::default()
    };
    Ok(call.mm.call(&Syscall::Mmap(request))?)
}

/// Returns the core's description of an open file, which is in use until the call ends.
fn describe(file: &OpenFile) -> Result<(vmarea::types::File, InUse), Failure> {
    let access = (file.is_readable(), file.is_writable());
    if access == (false, false) {
        return Err(EBADF.into());
    }
    let can_map = |inode: &&Arc<Inode>| inode.is_file() || inode.as_device() == Some(Device::Zero);
    let inode = file.inode().filter(can_map).ok_or(ENODEV)?;
    Ok(inode.describe(&file.path, file.id, access)?)
}

/// `mincore`: writes one byte per page, which tells whether the page is in memory.
fn mincore(mm: &Mm, addr: u64, len: u64, to: u64) -> Result<Value, Failure> {
    if !addr.is_multiple_of(PAGE_SIZE) {
        return Err(EINVAL.into());
    }
    let end = addr
        .checked_add(len)
        .filter(|&end| end <= TASK_SIZE)
        .ok_or(ENOMEM)?;
    let mut at = addr;
    while at < end {
        let is_resident = mm.with_entry(at, |vma, entry| match entry {
            Pte::None | Pte::Guard => vma.body.file.is_some_and(|file| {
                let inode = file.inode;
                mapped::file(inode).is_some_and(|file| file.is_cached(vma.pgoff_at(at).0))
            }),
            Pte::Swap { slot } => space().swap_map(slot).0 & SwapMap::HAS_CACHE != 0,
            _ => true,
        });
        let is_resident = is_resident.ok_or(ENOMEM)?;
        mm.write_values(to + (at - addr) / PAGE_SIZE, &[u8::from(is_resident)])?;
        at += PAGE_SIZE;
    }
    Ok(0)
}

/// `msync`: only checks the range, because there is nothing to write back.
fn msync(mm: &Mm, addr: u64, len: u64, flags: u64) -> Result<Value, Failure> {
    const ALL: u32 = MS_ASYNC | MS_INVALIDATE | MS_SYNC;
    let both = flags as u32 & (MS_ASYNC | MS_SYNC) == MS_ASYNC | MS_SYNC;
    if flags as u32 & !ALL != 0 || !addr.is_multiple_of(PAGE_SIZE) || both {
        return Err(EINVAL.into());
    }
    let end = addr
        .checked_add(page_align(len).unwrap_or(0))
        .ok_or(ENOMEM)?;
    let holes = (addr..end).step_by(PAGE_SIZE as usize);
    match holes
        .into_iter()
        .all(|at| mm.with_entry(at, |_, _| ()).is_some())
    {
        true => Ok(0),
        false => Err(ENOMEM.into()),
    }
}

/// `process_madvise`, applied to the process that a pidfd refers to.
fn process_madvise(call: &Call<'_>) -> Result<Value, Failure> {
    let [pidfd, vector, count, advice, flags, _] = call.args;
    if flags != 0 || count > 1024 {
        return Err(EINVAL.into());
    }
    let process = find(super::process::process_of_pidfd(call, pidfd as u32)?).ok_or(ESRCH)?;
    let mm = process.mm().ok_or(ESRCH)?;
    let mut ranges = Vec::new();
    for at in 0..count {
        let [addr, len] = call.mm.read_array(vector + at * 16)?;
        ranges.push((addr, len));
    }
    let advised = match process.pid == call.thread.process.pid {
        true => Advised::Own,
        false => Advised::Other,
    };
    Ok(mm.call(&Syscall::ProcessMadvise {
        ranges,
        advice: Advice::from_number(advice as i32),
        advised,
    })?)
}

/// `process_mrelease`: frees the private memory of a process that is already ending.
fn process_mrelease(call: &Call<'_>) -> Result<Value, Failure> {
    let [pidfd, flags, ..] = call.args;
    if flags != 0 {
        return Err(EINVAL.into());
    }
    let process = find(super::process::process_of_pidfd(call, pidfd as u32)?).ok_or(ESRCH)?;
    if !process.is_dying() {
        return Err(EINVAL.into());
    }
    let mm = process.mm().ok_or(ESRCH)?;
    let private: Vec<_> = space()
        .maps(mm.id())
        .filter(|vma| !vma.body.flags.intersects(VmFlags::SHARED | VmFlags::LOCKED))
        .map(|vma| vma.range)
        .collect();
    for range in private {
        // The process may have unmapped the range in the meantime.
        let _ = mm.call(&Syscall::Madvise {
            addr: range.start,
            len: range.end - range.start,
            advice: Advice::DontNeed,
        });
    }
    Ok(0)
}

/// Changes a file's size, and removes the pages beyond the new size from all mappings.
///
/// # Errors
/// EINVAL if this is not a file or the size is negative; EACCES; EPERM.
pub fn truncate(file: &Inode, size: u64) -> Result<Value, Failure> {
    let pages = file
        .file_pages()
        .filter(|_| size >> 63 == 0)
        .ok_or(EINVAL)?;
    if file.mode() & 0o222 == 0 && file.mode() & 0o444 == 0 {
        return Err(EACCES.into());
    }
    let gone = pages.resize(size)?;
    let first = size.div_ceil(PAGE_SIZE);
    space().unmap_mapping(file.number, first, u64::MAX, Copies::Go);
    // The pages are freed only now that no TLB maps them any more.
    drop(gone);
    Ok(0)
}

/// `fallocate`: enlarges a file, or punches a hole in it.
///
/// # Errors
/// EOPNOTSUPP for other modes; EPERM, ENODEV, EINVAL.
pub fn fallocate(file: &OpenFile, mode: u32, offset: u64, len: u64) -> Result<Value, Failure> {
    const KEEP_SIZE: u32 = 1;
    const PUNCH_HOLE: u32 = 2;
    let inode = file.inode().ok_or(ENODEV)?;
    let pages = inode.file_pages().ok_or(ENODEV)?;
    let end = offset
        .checked_add(len)
        .filter(|&end| len != 0 && end >> 63 == 0)
        .ok_or(EINVAL)?;
    match mode {
        0 | KEEP_SIZE => {
            if mode == 0 && end > pages.size() {
                pages.resize(end)?;
            }
            Ok(0)
        }
        mode if mode == KEEP_SIZE | PUNCH_HOLE => {
            if pages.has_seal(F_SEAL_WRITE | F_SEAL_FUTURE_WRITE) {
                return Err(EPERM.into());
            }
            let (first, last) = (offset.div_ceil(PAGE_SIZE), end / PAGE_SIZE);
            if first < last {
                space().unmap_mapping(inode.number, first, last, Copies::Stay);
                pages.punch_hole(first, last);
            }
            Ok(0)
        }
        _ => Err(linux_raw_sys::errno::EOPNOTSUPP.into()),
    }
}
