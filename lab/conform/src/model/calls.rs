//! Executes system calls on the model.

use super::super::arena;
use super::super::op::{Call, UFFDIO_REGISTER, UFFDIO_UNREGISTER};
use super::{Model, NAMELESS};
use std::num::NonZeroU32;
use vmarea::mm::Limits;
use vmarea::syscall::Syscall;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::{MmapRequest, Placement};
use vmarea::syscall::process_madvise::Advised;
use vmarea::syscall::registers;
use vmarea::syscall::shm::{ShmFlags, ShmatRequest};
use vmarea::syscall::userfaultfd::WatchMode;
use vmarea::types::call_flags::{MapFlags, MbindFlags, Prot, from_register};
use vmarea::types::mempolicy::MpolMode;
use vmarea::types::prctl::PrctlOption;
use vmarea::types::{Errno, MmId, PAGE_SIZE};
use vmarea_soft_platform::Space;
use vmarea_trace::sysno;

impl Model {
    pub(super) fn call(&mut self, mm: MmId, call: &Call) -> Result<u64, Errno> {
        let space = self.machine.space();
        let [a, b, ..] = call.placed(self.places);
        match call.nr {
            sysno::PRLIMIT64 => limit(space, mm, b, &call.data).map(|()| 0),
            sysno::CAPSET => {
                let drop_all = |limits: &mut Limits| {
                    limits.ipc_lock = false;
                    limits.raw_io = false;
                    limits.sys_resource = false;
                    limits.sys_nice = false;
                };
                space.set_limits(mm, drop_all).map(|()| 0)
            }
            sysno::FTRUNCATE => match arena::file(a) {
                Some(file) if b.is_multiple_of(PAGE_SIZE) => {
                    self.machine.truncate(file.inode, b / PAGE_SIZE);
                    Ok(0)
                }
                _ => Err(Errno::EINVAL),
            },
            // This call acts on the address space for which the descriptor was opened, even if
            // another process makes it.
            sysno::IOCTL => {
                let request = self.userfaultfd(call)?;
                self.machine.space().syscall(self.watched, &request)
            }
            _ => {
                let request = self.syscall(call)?;
                self.machine.space().syscall(mm, &request)
            }
        }
    }

    /// Converts a call to the core's [`Syscall`].
    fn syscall(&mut self, call: &Call) -> Result<Syscall, Errno> {
        let args = call.placed(self.places);
        let [a, b, c, d, e, f] = args;
        let nodes = call.data.first().copied().unwrap_or(0);
        Ok(match call.nr {
            sysno::MMAP => self.mmap(args)?,
            sysno::SHMAT => self.shmat(args)?,
            sysno::SHMDT => Syscall::Shmdt {
                addr: a,
                sizes: (0..arena::SEGMENTS.len())
                    .map(|n| (arena::segment_inode(n), arena::SEGMENTS[n]))
                    .collect(),
            },
            sysno::MBIND => Syscall::Mbind {
                addr: a,
                len: b,
                mode: MpolMode(c as u32),
                nodes,
                flags: MbindFlags::from_bits_retain(f as u32),
            },
            sysno::SET_MEMPOLICY => Syscall::SetMempolicy {
                mode: MpolMode(a as u32),
                nodes,
            },
            sysno::PROCESS_MADVISE => {
                let data = call.placed_data(self.places);
                Syscall::ProcessMadvise {
                    ranges: data.chunks_exact(2).map(|r| (r[0], r[1])).collect(),
                    advice: Advice::from_number(d as i32),
                    advised: Advised::Own,
                }
            }
            sysno::PRCTL => Syscall::Prctl {
                option: PrctlOption(a),
                args: [b, c, d, e],
            },
            sysno::PERSONALITY => Syscall::Personality { bits: a as u32 },
            nr => registers::syscall(nr, args).ok_or(Errno::ENOSYS)?,
        })
    }

    fn userfaultfd(&self, call: &Call) -> Result<Syscall, Errno> {
        let [fd, request, ..] = call.args;
        let data = call.placed_data(self.places);
        let context = NonZeroU32::MIN;
        match (fd, request, data.as_slice()) {
            (arena::USERFAULTFD, UFFDIO_REGISTER, &[addr, len, mode, ..]) => {
                let mode = WatchMode::from_bits_retain(mode);
                Ok(Syscall::UserfaultfdRegister {
                    context,
                    addr,
                    len,
                    mode,
                })
            }
            (arena::USERFAULTFD, UFFDIO_UNREGISTER, &[addr, len, ..]) => {
                Ok(Syscall::UserfaultfdUnregister { context, addr, len })
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Converts a `shmat` call; each attachment gets its own file.
    fn shmat(&mut self, [number, addr, flags, ..]: [u64; 6]) -> Result<Syscall, Errno> {
        let number = number as usize;
        let len = *arena::SEGMENTS.get(number).ok_or(Errno::EINVAL)?;
        self.nameless += 1;
        Ok(Syscall::Shmat(ShmatRequest {
            segment: arena::segment(number, NAMELESS + self.nameless),
            len,
            addr,
            flags: ShmFlags::from_bits_truncate(flags as u32),
            placement: Placement::Search,
        }))
    }

    fn mmap(&mut self, args: [u64; 6]) -> Result<Syscall, Errno> {
        let [addr, len, prot, flags, fd, offset] = args;
        let flags = MapFlags::from_bits_retain(from_register(flags));
        let anonymous = flags.contains(MapFlags::ANONYMOUS);
        let mut file = if anonymous { None } else { arena::file(fd) };
        if anonymous && flags.contains(MapFlags::HUGETLB) {
            self.nameless += 1;
            file = Some(arena::hugetlb(NAMELESS + self.nameless));
        }
        if !anonymous && file.is_none() {
            // Linux checks the offset before it looks up the descriptor.
            return Err(match offset.is_multiple_of(PAGE_SIZE) {
                true => Errno::EBADF,
                false => Errno::EINVAL,
            });
        }
        Ok(Syscall::Mmap(MmapRequest {
            addr,
            len,
            prot: Prot::from_bits_retain(from_register(prot)),
            flags,
            file,
            offset,
            ..MmapRequest::default()
        }))
    }
}

/// Sets a soft limit; the hard limit is unchanged, because it could not be raised again afterwards.
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
