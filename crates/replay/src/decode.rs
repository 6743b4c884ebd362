//! Translates a recorded call (a system call number and raw arguments) into an [`Action`].

use super::action::{Action, Opaque};
use super::apply::place;
use super::files::{Files, HUGE_PAGE};
use vmarea::syscall::Syscall;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::syscall::process_madvise::Advised;
use vmarea::syscall::registers;
use vmarea::syscall::shm::{ShmFlags, ShmatRequest};
use vmarea::syscall::userfaultfd::WatchMode;
use vmarea::types::call_flags::{MapFlags, MbindFlags, Prot, from_register};
use vmarea::types::mempolicy::MpolMode;
use vmarea::types::prctl::PrctlOption;
use vmarea::types::{Errno, FileKind};
use vmarea_trace::event::{Call, Tid};
use vmarea_trace::sysno;

/// The open flag `O_PATH`: the descriptor identifies a file, but cannot be used to access it.
const O_PATH: u32 = 0o10_000_000;
const PAGE_OFFSET: u64 = 4095;
/// The result of a call that a signal has interrupted.
pub(crate) const EINTR: i64 = -4;
/// `_IOC_TYPE` of all userfaultfd commands.
const UFFD_TYPE: u64 = 0xaa;

impl Files {
    /// Returns the effect of a call.
    pub fn action(&mut self, call: &Call) -> Action {
        let [a, b, ..] = call.args;
        match call.nr {
            // The thread was killed while it waited for `mmap_lock`, before any change.
            sysno::MMAP
            | sysno::MUNMAP
            | sysno::MPROTECT
            | sysno::PKEY_MPROTECT
            | sysno::MREMAP
            | sysno::BRK
                if call.ret == EINTR =>
            {
                Action::Nothing
            }
            sysno::MMAP => self.mmap(call),
            sysno::MREMAP => mremap(call),
            sysno::SHMAT => self.shmat(call),
            sysno::SHMDT => self.shmdt(a),
            sysno::PRLIMIT64 => limit(call, b as u32),
            sysno::SETRLIMIT => limit(call, a as u32),
            sysno::PRCTL => prctl(call),
            sysno::SETUID
            | sysno::SETREUID
            | sysno::SETRESUID
            | sysno::CAPSET
            | sysno::UNSHARE
            | sysno::SETNS => match call.data.first_chunk() {
                Some(mask) if call.ret >= 0 => Action::Capabilities {
                    mask: u64::from_le_bytes(*mask),
                },
                _ => Action::Nothing,
            },
            sysno::PERSONALITY if call.ret >= 0 && a != 0xffff_ffff => {
                Action::ReadImpliesExec(a & 0x40_0000 != 0)
            }
            sysno::MBIND => mbind(call),
            sysno::SET_MEMPOLICY_HOME_NODE => opaque_at(call, "set_mempolicy_home_node", a, b),
            sysno::PROCESS_MADVISE => self.process_madvise(call),
            sysno::USERFAULTFD if call.ret >= 0 => {
                self.new_context(call.mm, call.ret as i32);
                Action::Nothing
            }
            sysno::IOCTL if b >> 8 & 0xff == UFFD_TYPE => self.userfaultfd(call),
            sysno::IO_DESTROY if call.ret == 0 => match self.rings.remove(&(call.mm, a)) {
                Some(len) => Action::Call(Syscall::Munmap { addr: a, len }),
                None => opaque(call),
            },
            // The recorder could not read where the ring of `io_setup` is.
            sysno::IO_SETUP | sysno::MAP_SHADOW_STACK | sysno::ARCH_PRCTL if call.ret >= 0 => {
                opaque(call)
            }
            _ => registers::syscall(call.nr, call.args).map_or(Action::Nothing, Action::Call),
        }
    }

    fn mmap(&mut self, call: &Call) -> Action {
        let [addr, mut len, prot, flags, _, offset] = call.args;
        let map = MapFlags::from_bits_retain(flags as u32);
        let anonymous = map.contains(MapFlags::ANONYMOUS);
        let hugetlb = anonymous && map.contains(MapFlags::HUGETLB);
        let mut refused = None;
        let file = match &call.file {
            _ if hugetlb => {
                let size = huge_page(flags);
                if call.ret < 0
                    && (size != HUGE_PAGE || len.checked_next_multiple_of(size).is_none())
                {
                    // The machine may have no huge pages of this size.
                    return Action::Nothing;
                }
                if size != HUGE_PAGE {
                    let (what, range) = ("MAP_HUGETLB of 1 GiB", None);
                    return Action::Opaque(Opaque { what, range });
                }
                len = len.next_multiple_of(size);
                refused = self.refused_by_pool(call.ret);
                Some(self.nameless_huge())
            }
            _ if anonymous => None,
            // The call failed before the kernel accessed any address space.
            None if call.ret < 0 => return Action::Nothing,
            None => {
                let (what, range) = ("mmap of an unknown file", None);
                return Action::Opaque(Opaque { what, range });
            }
            Some(r) if r.open_flags & O_PATH != 0 && offset & PAGE_OFFSET == 0 => {
                return Action::Refuse(Errno::EBADF);
            }
            Some(r) => {
                refused = self.refused_by_file(r, call.ret);
                if call.ret >= 0 && self.is_ring(r.inode) {
                    self.rings.insert((call.mm, call.ret as u64), len);
                }
                if self.kind(r.inode) == FileKind::Hugetlb {
                    len = len.checked_next_multiple_of(HUGE_PAGE).unwrap_or(len);
                }
                Some(self.file(r))
            }
        };
        Action::Call(Syscall::Mmap(MmapRequest {
            addr,
            len,
            prot: Prot::from_bits_retain(from_register(prot)),
            flags: MapFlags::from_bits_retain(from_register(flags)),
            file,
            offset,
            placement: place(call.ret),
            refused,
        }))
    }

    fn shmat(&mut self, call: &Call) -> Action {
        let [_, addr, flags, ..] = call.args;
        if call.ret < 0 {
            // The error of a failed attach does not depend on the address space; most often the
            // segment does not exist.
            return Action::Nothing;
        }
        let Some(r) = &call.file else {
            let (what, range) = ("shmat", None);
            return Action::Opaque(Opaque { what, range });
        };
        let mut segment = self.file(r);
        if segment.kind != FileKind::Hugetlb {
            segment.kind = FileKind::SysvShm;
        }
        self.segments.insert(segment.inode, r.size);
        Action::Call(Syscall::Shmat(ShmatRequest {
            segment,
            len: r.size,
            addr,
            flags: ShmFlags::from_bits_truncate(flags as u32),
            placement: place(call.ret),
        }))
    }

    fn shmdt(&mut self, addr: u64) -> Action {
        let sizes = self.segments.iter().map(|(ino, size)| (*ino, *size));
        let sizes = sizes.collect();
        Action::Call(Syscall::Shmdt { addr, sizes })
    }

    fn process_madvise(&self, call: &Call) -> Action {
        let [_, _, count, advice, flags, _] = call.args;
        let words = words(&call.data);
        let ranges: Vec<_> = words.chunks_exact(2).map(|r| (r[0], r[1])).collect();
        let refused = Errno::from_number(-call.ret as i32).filter(|_| call.ret < 0);
        // The kernel checks the target process and the caller's permission first.
        let elsewhere = [Errno::EBADF, Errno::ESRCH, Errno::EPERM, Errno::EFAULT];
        let outside = refused.is_some_and(|errno| elsewhere.contains(&errno));
        if outside || flags != 0 || ranges.len() as u64 != count {
            return Action::Nothing;
        }
        let own = self.mm_of(call.tid).is_none_or(|mm| mm == call.mm);
        Action::Call(Syscall::ProcessMadvise {
            ranges,
            advice: Advice::from_number(advice as i32),
            advised: if own { Advised::Own } else { Advised::Other },
        })
    }

    /// Decodes a userfaultfd command: registrations change VMAs, all other commands change pages.
    fn userfaultfd(&mut self, call: &Call) -> Action {
        const NEW: u64 = 0xaa00;
        let [fd, command, ..] = call.args;
        if command & 0xffff_ffff == NEW {
            if call.ret >= 0 {
                self.new_context(call.mm, call.ret as i32);
            }
            return Action::Nothing;
        }
        let words = words(&call.data);
        let &[addr, len, ..] = words.as_slice() else {
            return Action::Nothing;
        };
        let context = self.context(call.mm, fd as i32);
        match (command & 0xff, context, words.get(2)) {
            (0 | 1, _, _) if call.ret != 0 => Action::Nothing,
            (0, Some((context, owner)), Some(&mode)) => {
                let mode = WatchMode::from_bits_retain(mode);
                Action::CallOn(
                    owner,
                    Syscall::UserfaultfdRegister {
                        context,
                        addr,
                        len,
                        mode,
                    },
                )
            }
            (1, Some((context, owner)), _) => {
                Action::CallOn(owner, Syscall::UserfaultfdUnregister { context, addr, len })
            }
            // `UFFDIO_API` only sets up the descriptor.
            (0x3f, ..) => Action::Nothing,
            _ => Action::Userfault { start: addr, len },
        }
    }
}

/// Returns the huge page size in bytes that the `MAP_HUGETLB` flags select.
fn huge_page(flags: u64) -> u64 {
    match flags >> 26 & 0x3f {
        0 => HUGE_PAGE,
        log => 1 << log,
    }
}

fn words(data: &[u8]) -> Vec<u64> {
    let (words, _) = data.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Returns the action for an unmodelled call that may change any memory.
fn opaque(call: &Call) -> Action {
    let what = sysno::name(call.nr).unwrap_or_default();
    Action::Opaque(Opaque { what, range: None })
}

/// Returns the action for an unmodelled call that changes only the range in its arguments.
fn opaque_at(call: &Call, what: &'static str, addr: u64, len: u64) -> Action {
    let range = Some((addr, addr.saturating_add(len)));
    match call.ret {
        0 => Action::Opaque(Opaque { what, range }),
        _ => Action::Nothing,
    }
}

/// Decodes `mremap`; a mapping is moved to the same address as in the kernel.
fn mremap(call: &Call) -> Action {
    match registers::syscall(call.nr, call.args) {
        Some(Syscall::Mremap(request)) => Action::Call(Syscall::Mremap(MremapRequest {
            placement: place(call.ret),
            ..request
        })),
        _ => Action::Nothing,
    }
}

fn mbind(call: &Call) -> Action {
    let [addr, len, mode, pointer, bits, flags] = call.args;
    let refused = Errno::from_number(-call.ret as i32).filter(|_| call.ret < 0);
    // The `maxnode` argument is one larger than the number of bits in the mask.
    let bits = bits.saturating_sub(1);
    let asked = if pointer == 0 { 0 } else { bits };
    let words = words(&call.data);
    let unreadable = (words.len() as u64) < asked.div_ceil(64);
    match refused {
        // Some pages are on other nodes; whether the policy was set nevertheless is not known.
        Some(Errno::EIO) => {
            let range = Some((addr, addr.saturating_add(len)));
            let what = "mbind with pages elsewhere";
            return Action::Opaque(Opaque { what, range });
        }
        Some(Errno::EPERM | Errno::ENOSYS) => return Action::Nothing,
        Some(_) if unreadable || asked > 64 => return Action::Nothing,
        _ => {}
    }
    let mask = match asked {
        0 => 0,
        64.. => u64::MAX,
        bits => (1 << bits) - 1,
    };
    Action::Call(Syscall::Mbind {
        addr,
        len,
        mode: MpolMode(mode as u32),
        nodes: words.first().copied().unwrap_or(0) & mask,
        flags: MbindFlags::from_bits_retain(flags as u32),
    })
}

fn limit(call: &Call, resource: u32) -> Action {
    let mut words = call.data.chunks_exact(8).map(|word| {
        let word = word.first_chunk().expect("a chunk of eight bytes");
        u64::from_le_bytes(*word)
    });
    let (Some(soft), hard, target) = (words.next(), words.next(), words.next()) else {
        return Action::Nothing;
    };
    // Without the third word (`setrlimit`, an import), only the pid argument names the process.
    let named = if call.nr == sysno::PRLIMIT64 {
        call.args[0]
    } else {
        0
    };
    let of = match (named, target) {
        (0, _) => None,
        (_, Some(0)) => return Action::Nothing,
        (_, Some(pid)) | (pid, None) => Some(Tid(pid as i32)),
    };
    if call.ret != 0 {
        return Action::Nothing;
    }
    Action::Limit {
        resource,
        soft,
        hard: hard.unwrap_or(u64::MAX),
        of,
    }
}

fn prctl(call: &Call) -> Action {
    const SET_VMA: PrctlOption = PrctlOption(0x5356_4d41);
    const MM_EXE_FILE: u64 = 13;
    const MM_MAP: u64 = 14;
    const MM_MAP_SIZE: u64 = 15;
    if call.ret != 0 {
        return Action::Nothing;
    }
    let [what, part, a, b, c, _] = call.args;
    let option = PrctlOption(what);
    match (option, part) {
        (PrctlOption::SET_MM, MM_EXE_FILE | MM_MAP_SIZE) => Action::Nothing,
        (PrctlOption::SET_MM, MM_MAP) => match words(&call.data).as_slice() {
            // In struct `prctl_mm_map` the start and end of the code come first.
            &[_, _, data, data_end, heap, heap_end, stack, ..] => {
                Action::Parts([data, data_end, heap, heap_end, stack])
            }
            _ => Action::Opaque(Opaque {
                what: "PR_SET_MM_MAP",
                range: None,
            }),
        },
        (
            PrctlOption::SET_MM
            | PrctlOption::SET_THP_DISABLE
            | PrctlOption::SET_MDWE
            | PrctlOption::SET_MEMORY_MERGE,
            _,
        ) => {
            let args = [part, a, b, c];
            Action::Call(Syscall::Prctl { option, args })
        }
        (SET_VMA, _) => opaque_at(call, "PR_SET_VMA", a, b),
        _ => Action::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_trace::event::{MmId, Order};

    fn action(nr: u32, args: [u64; 6], ret: i64) -> Action {
        Files::default().action(&Call {
            tid: Tid(1),
            mm: MmId(1),
            nr,
            args,
            ret,
            t: 0,
            order: Order::Exact,
            file: None,
            data: Vec::new(),
        })
    }

    #[test]
    fn a_call_in_which_a_thread_was_killed_before_it_had_the_lock_does_nothing() {
        let unmap = |ret| action(sysno::MUNMAP, [0x1000, 0x1000, 0, 0, 0, 0], ret);
        assert!(matches!(unmap(EINTR), Action::Nothing));
        assert!(matches!(unmap(0), Action::Call(_)));
        // `mlock` changes the mappings first, and is interrupted while it brings the pages.
        let lock = action(sysno::MLOCK, [0x1000, 0x1000, 0, 0, 0, 0], EINTR);
        assert!(matches!(lock, Action::Call(_)));
    }

    #[test]
    fn the_offset_of_an_anonymous_mapping_is_kept_because_it_is_checked() {
        let action = action(sysno::MMAP, [0, u64::MAX, 3, 0x22, u64::MAX, 1], -22);
        assert!(
            matches!(
                action,
                Action::Call(Syscall::Mmap(MmapRequest { offset: 1, .. }))
            ),
            "{action:?}"
        );
    }
}
