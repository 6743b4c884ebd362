//! The calls that lock, seal and watch memory, and those that change settings.

use super::*;
use std::num::NonZeroU32;
use vmarea::syscall::userfaultfd::WatchMode;
use vmarea::types::call_flags::{MbindFlags, MclFlags, MlockFlags, Pkey};
use vmarea::types::mempolicy::MpolMode;
use vmarea::types::prctl::PrctlOption;

use Errno::*;

pub fn cases() -> Vec<Case> {
    let mut cases = locking();
    cases.extend(sealing());
    cases.extend(placing());
    cases.extend(keys());
    cases.extend(options());
    cases.extend(watching());
    cases.extend(remapping());
    cases
}

/// `PR_SET_MDWE` with these bits.
pub fn mdwe(bits: u64) -> Syscall {
    prctl(PrctlOption::SET_MDWE, [bits, 0, 0, 0])
}

/// `mlockall` for all later mappings.
pub fn mlockall() -> Syscall {
    Syscall::Mlockall {
        flags: MclFlags::FUTURE,
    }
}

fn mlock(page: u64, pages: u64) -> Syscall {
    Syscall::Mlock {
        addr: at(page),
        len: pages * PAGE,
        flags: MlockFlags::empty(),
    }
}

fn locking() -> Vec<Case> {
    vec![
        Case::new(
            EINVAL,
            "a flag is unknown, or contradicts another one",
            |_| Syscall::Mlock {
                addr: at(0),
                len: PAGE,
                flags: MlockFlags::from_bits_retain(64),
            },
        ),
        Case::new(
            EPERM,
            "the process may not lock memory: RLIMIT_MEMLOCK is 0",
            |p| {
                p.limits(|l| l.memlock = 0);
                mlock(0, 1)
            },
        ),
        Case::new(
            ENOMEM,
            "RLIMIT_MEMLOCK: 8 KiB more; 4 KiB of 8 KiB are used",
            |p| {
                p.map(0, 3).limits(|l| l.memlock = 2 * PAGE);
                p.call(&mlock(2, 1));
                mlock(0, 2)
            },
        ),
        Case::new(ENOMEM, "nothing is mapped at 0x1000001000", |p| {
            p.map(0, 1).map(2, 1);
            mlock(0, 3)
        }),
        Case::new(
            ENOMEM,
            "a change to a part of a mapping needs one mapping more; 1 of 1 are used",
            |p| {
                p.map(0, 3).at_the_limit();
                mlock(1, 1)
            },
        ),
        Case::new(
            ENOMEM,
            "locked memory is made present, and pages of the range cannot be accessed",
            |p| {
                p.map_inaccessible();
                mlock(0, 1)
            },
        ),
        Case::new(
            EINVAL,
            "the address and the length together exceed 64 bits",
            |_| Syscall::Munlock {
                addr: at(0),
                len: !0 << 12,
            },
        ),
        Case::new(ENOMEM, "nothing is mapped at 0x1000000000", |_| {
            Syscall::Munlock {
                addr: at(0),
                len: PAGE,
            }
        }),
        Case::new(
            EINVAL,
            "the address and the length together exceed 64 bits",
            |p| {
                p.limits(|l| l.ipc_lock = true);
                Syscall::Mlock {
                    addr: at(0),
                    len: !0 << 12,
                    flags: MlockFlags::empty(),
                }
            },
        ),
        Case::new(
            EINVAL,
            "a flag is unknown, or contradicts another one",
            |_| Syscall::Mlockall {
                flags: MclFlags::ONFAULT,
            },
        ),
        Case::new(
            EPERM,
            "the process may not lock memory: RLIMIT_MEMLOCK is 0",
            |p| {
                p.limits(|l| l.memlock = 0);
                mlockall()
            },
        ),
        Case::new(
            ENOMEM,
            "RLIMIT_MEMLOCK: 12 KiB more; 0 B of 8 KiB are used",
            |p| {
                p.map(0, 3).limits(|l| l.memlock = 2 * PAGE);
                Syscall::Mlockall {
                    flags: MclFlags::CURRENT,
                }
            },
        ),
    ]
}

fn mseal(addr: u64, len: u64, flags: u64) -> Syscall {
    Syscall::Mseal { addr, len, flags }
}

fn sealing() -> Vec<Case> {
    vec![
        Case::new(ENOSYS, "the kernel does not have the call", |_| {
            mseal(at(0), PAGE, 0)
        })
        .under(Policy::LINUX_5_10),
        Case::new(
            EINVAL,
            "a flag is unknown, or contradicts another one",
            |_| mseal(at(0), PAGE, 1),
        ),
        Case::new(
            EINVAL,
            "the address is not a multiple of the page size",
            |_| mseal(1, PAGE, 0),
        ),
        Case::new(
            EINVAL,
            "the address and the length together exceed 64 bits",
            |_| mseal(at(0), u64::MAX - PAGE, 0),
        ),
        Case::new(ENOMEM, "nothing is mapped at 0x1000001000", |p| {
            p.map(0, 1);
            mseal(at(0), 2 * PAGE, 0)
        }),
        Case::new(
            ENOMEM,
            "a change to a part of a mapping needs one mapping more; 1 of 1 are used",
            |p| {
                p.map(0, 3).at_the_limit();
                mseal(at(1), PAGE, 0)
            },
        ),
    ]
}

fn mbind(addr: u64, mode: MpolMode, flags: MbindFlags) -> Syscall {
    Syscall::Mbind {
        addr,
        len: PAGE,
        mode,
        nodes: 1,
        flags,
    }
}

fn placing() -> Vec<Case> {
    const NONE: MbindFlags = MbindFlags::empty();
    vec![
        Case::new(
            EINVAL,
            "the memory policy and its nodes contradict each other, or no such node exists",
            |_| mbind(at(0), MpolMode(99), NONE),
        ),
        Case::new(
            EINVAL,
            "the memory policy and its nodes contradict each other, or no such node exists",
            |_| Syscall::SetMempolicy {
                mode: MpolMode::BIND,
                nodes: 0,
            },
        ),
        Case::new(
            EINVAL,
            "a flag is unknown, or contradicts another one",
            |_| mbind(at(0), MpolMode::BIND, MbindFlags::from_bits_retain(64)),
        ),
        Case::new(EPERM, "the call needs CAP_SYS_NICE", |_| {
            mbind(at(0), MpolMode::BIND, MbindFlags::MOVE_ALL)
        }),
        Case::new(
            EINVAL,
            "the address is not a multiple of the page size",
            |_| mbind(1, MpolMode::BIND, NONE),
        ),
        Case::new(
            EINVAL,
            "the address and the length together exceed 64 bits",
            |_| mbind(!0 << 12, MpolMode::BIND, NONE),
        ),
        Case::new(EFAULT, "nothing is mapped at 0x1000000000", |_| {
            mbind(at(0), MpolMode::BIND, NONE)
        }),
        Case::new(
            ENOMEM,
            "a change to a part of a mapping needs one mapping more; 1 of 1 are used",
            |p| {
                p.map(0, 3).at_the_limit();
                mbind(at(1), MpolMode::BIND, NONE)
            },
        ),
    ]
}

fn keys() -> Vec<Case> {
    vec![
        Case::new(
            EINVAL,
            "a flag is unknown, or contradicts another one",
            |_| Syscall::PkeyAlloc {
                flags: 1,
                denied: 0,
            },
        ),
        Case::new(
            ENOSPC,
            "no protection key is left, or the processor has none",
            |p| {
                p.system(|s| s.protection_keys = false);
                Syscall::PkeyAlloc {
                    flags: 0,
                    denied: 0,
                }
            },
        ),
        Case::new(EINVAL, "the protection key is not allocated", |_| {
            Syscall::PkeyFree { pkey: Pkey(9) }
        }),
    ]
}

fn prctl(option: PrctlOption, args: [u64; 4]) -> Syscall {
    Syscall::Prctl { option, args }
}

/// `PR_SET_MM` with a part and its address.
fn set_mm(part: u64, addr: u64) -> Syscall {
    prctl(PrctlOption::SET_MM, [part, addr, 0, 0])
}

fn options() -> Vec<Case> {
    const UNKNOWN: &str = "the kernel does not know the option of prctl, or its arguments";
    vec![
        Case::new(EINVAL, UNKNOWN, |_| {
            prctl(PrctlOption::SET_THP_DISABLE, [1, 0, 0, 9])
        }),
        Case::new(EPERM, "PR_SET_MDWE cannot be changed again", |p| {
            p.call(&mdwe(1));
            mdwe(0)
        }),
        Case::new(EPERM, "the call needs CAP_SYS_RESOURCE", |_| {
            set_mm(1, at(0))
        }),
        Case::new(EINVAL, "0 B at 0x0 are outside of 0-0x7ffffffff000", |p| {
            p.limits(|l| l.sys_resource = true);
            set_mm(1, 0)
        }),
        Case::new(
            EINVAL,
            "the parts of the program would be out of order, or exceed RLIMIT_DATA",
            |p| {
                p.limits(|l| l.sys_resource = true);
                set_mm(6, at(2000))
            },
        ),
        Case::new(EFAULT, "nothing is mapped at 0x1000000000", |p| {
            p.limits(|l| l.sys_resource = true);
            set_mm(5, at(0))
        }),
    ]
}

const ONE: NonZeroU32 = NonZeroU32::MIN;

fn watch(page: u64, mode: WatchMode, context: u32) -> Syscall {
    Syscall::UserfaultfdRegister {
        context: NonZeroU32::new(context).unwrap(),
        addr: at(page),
        len: PAGE,
        mode,
    }
}

fn unwatch(addr: u64, len: u64) -> Syscall {
    Syscall::UserfaultfdUnregister {
        context: ONE,
        addr,
        len,
    }
}

fn watching() -> Vec<Case> {
    vec![
        Case::new(
            EINVAL,
            "a flag is unknown, or contradicts another one",
            |_| watch(0, WatchMode::empty(), 1),
        ),
        Case::new(EINVAL, "nothing is mapped at 0x1000000000", |_| {
            watch(0, WatchMode::MISSING, 1)
        }),
        Case::new(
            EINVAL,
            "userfaultfd cannot watch a mapping of this kind in this mode",
            |p| {
                p.map_file(0, 1, file(FileKind::Regular));
                watch(0, WatchMode::MISSING, 1)
            },
        ),
        Case::new(
            EPERM,
            "userfaultfd only watches memory that may become writable",
            |p| {
                p.map_read_only(FileKind::Shmem);
                watch(0, WatchMode::MISSING, 1)
            },
        ),
        Case::new(
            EBUSY,
            "another userfaultfd, or another mode of this one, watches the memory",
            |p| {
                p.map(0, 1).call(&watch(0, WatchMode::MISSING, 1));
                watch(0, WatchMode::MISSING, 2)
            },
        ),
        Case::new(
            ENOMEM,
            "a change to a part of a mapping needs one mapping more; 1 of 1 are used",
            |p| {
                p.map(0, 3).at_the_limit();
                watch(1, WatchMode::MISSING, 1)
            },
        ),
        Case::new(
            EINVAL,
            "the address is not a multiple of the page size",
            |_| unwatch(1, PAGE),
        ),
        Case::new(EINVAL, "the length is 0", |_| unwatch(at(0), 0)),
        Case::new(
            EINVAL,
            "8 KiB at 0x7fffffffe000 are outside of 0-0x7ffffffff000",
            |_| unwatch(0x7fff_ffff_e000, 2 * PAGE),
        ),
        Case::new(
            ENOMEM,
            "a change to a part of a mapping needs one mapping more; 1 of 1 are used",
            |p| {
                p.map(0, 1).call(&watch(0, WatchMode::MISSING, 1));
                p.call(&unwatch(at(0), PAGE)).map(0, 3);
                let all = Syscall::UserfaultfdRegister {
                    context: ONE,
                    addr: at(0),
                    len: 3 * PAGE,
                    mode: WatchMode::MISSING,
                };
                p.call(&all).at_the_limit();
                unwatch(at(1), PAGE)
            },
        ),
    ]
}

fn again(prot: Prot, len: u64, pgoff: u64) -> Syscall {
    Syscall::RemapFilePages {
        addr: at(0),
        len,
        prot,
        pgoff,
        flags: MapFlags::empty(),
    }
}

fn remapping() -> Vec<Case> {
    vec![
        Case::new(EINVAL, "the length is 0", |_| again(Prot::empty(), 0, 0)),
        Case::new(
            EINVAL,
            "a bit of the protection is unknown or not allowed here",
            |_| again(RW, PAGE, 0),
        ),
        Case::new(
            EINVAL,
            "the end of the range is beyond what an offset in this file can be",
            |_| again(Prot::empty(), PAGE, u64::MAX),
        ),
        Case::new(EINVAL, "nothing is mapped at 0x1000000000", |_| {
            again(Prot::empty(), PAGE, 0)
        }),
        Case::new(
            EINVAL,
            "the range is not one shared mapping of one file",
            |p| {
                p.map(0, 1);
                again(Prot::empty(), PAGE, 0)
            },
        ),
        Case::new(
            EOVERFLOW,
            "the end of the range is beyond what an offset in this file can be",
            |p| {
                p.map_file(0, 1, file(FileKind::Regular));
                again(Prot::empty(), PAGE, 1 << 52)
            },
        ),
        Case::new(
            ENOMEM,
            "unmapping the middle of a mapping needs one mapping more; 1 of 1 are used",
            |p| {
                p.map_file(0, 3, file(FileKind::Regular)).at_the_limit();
                Syscall::RemapFilePages {
                    addr: at(1),
                    len: PAGE,
                    prot: Prot::empty(),
                    pgoff: 9,
                    flags: MapFlags::empty(),
                }
            },
        ),
        Case::new(EPERM, "0x1000000000-0x1000001000 is sealed (mseal)", |p| {
            p.map_file(0, 1, file(FileKind::Regular)).seal(0, 1);
            again(Prot::empty(), PAGE, 9)
        }),
        Case::new(
            EAGAIN,
            "RLIMIT_MEMLOCK: 8 KiB more; 8 KiB of 4 KiB are used",
            |p| {
                p.map_file(0, 2, file(FileKind::Regular)).call(&mlock(0, 2));
                p.limits(|l| l.memlock = PAGE);
                again(Prot::empty(), 2 * PAGE, 9)
            },
        ),
    ]
}
