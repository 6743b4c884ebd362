//! System calls on our side.

use super::super::arena;
use super::super::op::{Call, UFFDIO_REGISTER, UFFDIO_UNREGISTER};
use super::{Model, NAMELESS};
use std::num::NonZeroU32;
use vmarea::Space;
use vmarea::call::mlock::LockPages;
use vmarea::call::mmap::MmapRequest;
use vmarea::call::mremap::MremapRequest;
use vmarea::call::process_madvise::Advised;
use vmarea::call::shm::{ShmFlags, ShmatRequest};
use vmarea::call::userfaultfd::WatchMode;
use vmarea::values::call_flags::{MapFlags, MclFlags, MremapFlags, from_register};
use vmarea::values::{Errno, MmId, PAGE_SIZE};
use vmarea_trace::sysno;

impl Model {
    pub(super) fn call(&mut self, mm: MmId, call: &Call) -> Result<u64, Errno> {
        let space = self.machine.space();
        let [a, b, c, d, e, f] = call.placed(self.places);
        let none = |()| 0;
        match call.nr {
            sysno::MMAP => self.mmap(mm, call),
            sysno::MUNMAP => space.munmap(mm, a, b).map(none),
            sysno::MPROTECT => space.mprotect(mm, a, b, from_register(c), -1).map(none),
            sysno::PKEY_MPROTECT => space
                .mprotect(mm, a, b, from_register(c), d as i32)
                .map(none),
            sysno::PKEY_ALLOC => space.pkey_alloc(mm, a, b).map(u64::from),
            sysno::PKEY_FREE => space.pkey_free(mm, a as i32).map(none),
            sysno::MREMAP => space.mremap(
                mm,
                &MremapRequest {
                    addr: a,
                    old_len: b,
                    new_len: c,
                    flags: MremapFlags::from_bits_retain(from_register(d)),
                    new_addr: e,
                    ..MremapRequest::default()
                },
            ),
            sysno::MADVISE => space.madvise(mm, a, b, c as i32).map(none),
            sysno::MLOCK => space.mlock(mm, a, b, LockPages::Now).map(none),
            // An `int`.
            sysno::MLOCK2 => match c as u32 {
                0 => space.mlock(mm, a, b, LockPages::Now).map(none),
                1 => space.mlock(mm, a, b, LockPages::OnFault).map(none),
                _ => Err(Errno::EINVAL),
            },
            sysno::MUNLOCK => space.munlock(mm, a, b).map(none),
            sysno::MLOCKALL => space
                .mlockall(mm, MclFlags::from_bits_retain(a as u32))
                .map(none),
            sysno::MUNLOCKALL => space.munlockall(mm).map(none),
            sysno::MSEAL => space.mseal(mm, a, b, c).map(none),
            sysno::BRK => space.brk(mm, a),
            sysno::MBIND => {
                let nodes = call.data.first().copied().unwrap_or(0);
                space.mbind(mm, a, b, (c as u32, nodes), f as u32).map(none)
            }
            sysno::SET_MEMPOLICY => {
                let nodes = call.data.first().copied().unwrap_or(0);
                space.set_mempolicy(a as u32, nodes).map(none)
            }
            sysno::REMAP_FILE_PAGES => space
                .remap_file_pages(mm, a, b, from_register(c), d, e as u32)
                .map(none),
            sysno::PROCESS_MADVISE => {
                let data = call.placed_data(self.places);
                let ranges: Vec<_> = data.chunks_exact(2).map(|r| (r[0], r[1])).collect();
                space.process_madvise(mm, &ranges, d as i32, Advised::Own)
            }
            sysno::PRLIMIT64 => limit(space, mm, b, &call.data).map(none),
            sysno::CAPSET => space
                .set_limits(mm, |limits| {
                    limits.ipc_lock = false;
                    limits.raw_io = false;
                    limits.sys_resource = false;
                    limits.sys_nice = false;
                })
                .map(none),
            sysno::PRCTL => space.prctl(mm, [a, b, c, d, e]),
            sysno::PERSONALITY => space.personality(mm, a as u32),
            sysno::IOCTL => self.userfaultfd(call).map(none),
            sysno::SHMAT => self.shmat(mm, call),
            sysno::SHMDT => space.shmdt(mm, a, arena::segment_len).map(none),
            sysno::FTRUNCATE => match arena::file(a) {
                Some(file) if b.is_multiple_of(PAGE_SIZE) => {
                    self.machine.truncate(file.inode, b / PAGE_SIZE);
                    Ok(0)
                }
                _ => Err(Errno::EINVAL),
            },
            _ => Err(Errno::ENOSYS),
        }
    }

    /// Registers and unregisters in the address space that the descriptor was opened for, whoever
    /// calls.
    fn userfaultfd(&self, call: &Call) -> Result<(), Errno> {
        let [fd, request, ..] = call.args;
        let data = call.placed_data(self.places);
        let (space, context) = (self.machine.space(), NonZeroU32::MIN);
        match (fd, request, data.as_slice()) {
            (arena::USERFAULTFD, UFFDIO_REGISTER, &[start, len, mode, ..]) => {
                let mode = WatchMode::from_bits_retain(mode);
                space.userfaultfd_register(self.watched, context, (start, len), mode)
            }
            (arena::USERFAULTFD, UFFDIO_UNREGISTER, &[start, len, ..]) => {
                space.userfaultfd_unregister(self.watched, context, (start, len))
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Each attachment is a file of its own.
    fn shmat(&mut self, mm: MmId, call: &Call) -> Result<u64, Errno> {
        let [number, addr, flags, ..] = call.placed(self.places);
        let number = number as usize;
        let len = *arena::SEGMENTS.get(number).ok_or(Errno::EINVAL)?;
        self.nameless += 1;
        let request = ShmatRequest {
            segment: &arena::segment(number, NAMELESS + self.nameless),
            len,
            addr,
            flags: ShmFlags::from_bits_truncate(flags as u32),
        };
        self.machine.space().shmat(mm, &request)
    }

    fn mmap(&mut self, mm: MmId, call: &Call) -> Result<u64, Errno> {
        let [addr, len, prot, flags, fd, offset] = call.placed(self.places);
        let anonymous = flags & u64::from(MapFlags::ANONYMOUS.bits()) != 0;
        let mut file = if anonymous { None } else { arena::file(fd) };
        if anonymous && flags & u64::from(MapFlags::HUGETLB.bits()) != 0 {
            self.nameless += 1;
            file = Some(arena::hugetlb(NAMELESS + self.nameless));
        }
        if !anonymous && file.is_none() {
            return Err(Errno::EBADF);
        }
        self.machine.space().mmap(
            mm,
            &MmapRequest {
                addr,
                len,
                prot: from_register(prot),
                flags: from_register(flags),
                file: file.as_ref(),
                offset,
                ..MmapRequest::default()
            },
        )
    }
}

/// The soft limit; the hard one stays, because it could not be raised again.
fn limit(space: &Space, mm: MmId, resource: u64, data: &[u64]) -> Result<(), Errno> {
    const DATA: u64 = 2;
    const STACK: u64 = 3;
    const MEMLOCK: u64 = 8;
    const AS: u64 = 9;
    let &[soft, hard] = data else {
        return Err(Errno::EINVAL);
    };
    if soft > hard {
        return Err(Errno::EINVAL);
    }
    space.set_limits(mm, |limits| match resource {
        DATA => limits.data = soft,
        STACK => limits.stack = soft,
        MEMLOCK => limits.memlock = soft,
        AS => limits.address_space = soft,
        _ => {}
    })
}
