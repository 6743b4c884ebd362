//! The calls that unmap, protect and attach memory, and the heap.

use super::*;
use vmarea::Overcommit;
use vmarea::syscall::shm::{ShmFlags, ShmatRequest};
use vmarea::types::call_flags::Pkey;

use Errno::*;

pub fn cases() -> Vec<Case> {
    let mut cases = unmapping();
    cases.extend(protecting());
    cases.extend(heap());
    cases.extend(attaching());
    cases
}

fn munmap(addr: u64, len: u64) -> Syscall {
    Syscall::Munmap { addr, len }
}

fn unmapping() -> Vec<Case> {
    vec![
        Case::new(
            EINVAL,
            "the address is not a multiple of the page size",
            |_| munmap(at(0) + 1, PAGE),
        ),
        Case::new(EINVAL, "the length is 0", |_| munmap(at(0), 0)),
        Case::new(
            EINVAL,
            "4 KiB at 0x7ffffffff000 are outside of 0-0x7ffffffff000",
            |_| munmap(0x7fff_ffff_f000, PAGE),
        ),
        Case::new(
            ENOMEM,
            "unmapping the middle of a mapping needs one mapping more; 1 of 1 are used",
            |p| {
                p.map(0, 3).system(|s| s.max_map_count = 1);
                munmap(at(1), PAGE)
            },
        ),
        Case::new(EPERM, "0x1000000000-0x1000003000 is sealed (mseal)", |p| {
            p.map(0, 3).seal(0, 3);
            munmap(at(1), PAGE)
        }),
        Case::new(
            EINVAL,
            "a mapping of this kind cannot be split there",
            |p| {
                p.map_hugetlb(2);
                munmap(at(1), PAGE)
            },
        ),
    ]
}

pub fn mprotect(page: u64, pages: u64, prot: Prot) -> Syscall {
    Syscall::Mprotect {
        addr: at(page),
        len: pages * PAGE,
        prot,
        pkey: None,
    }
}

fn protecting() -> Vec<Case> {
    vec![
        Case::new(
            EINVAL,
            "PROT_GROWSDOWN and PROT_GROWSUP are both set",
            |_| mprotect(0, 1, Prot::GROWSDOWN | Prot::GROWSUP),
        ),
        Case::new(
            EINVAL,
            "PROT_GROWSDOWN is set, and the mapping is not a stack that grows down",
            |p| {
                p.map(0, 1);
                mprotect(0, 1, RW | Prot::GROWSDOWN)
            },
        ),
        Case::new(
            EINVAL,
            "PROT_GROWSUP is set, and no mapping grows up on this architecture",
            |p| {
                p.map(0, 1);
                mprotect(0, 1, RW | Prot::GROWSUP)
            },
        ),
        Case::new(
            EINVAL,
            "the address is not a multiple of the page size",
            |_| Syscall::Mprotect {
                addr: 1,
                len: PAGE,
                prot: RW,
                pkey: None,
            },
        ),
        Case::new(
            ENOMEM,
            "the address and the length together exceed 64 bits",
            |_| mprotect(0, u64::MAX / PAGE, RW),
        ),
        Case::new(
            EINVAL,
            "a bit of the protection is unknown or not allowed here",
            |_| mprotect(0, 1, Prot::from_bits_retain(64)),
        ),
        Case::new(EINVAL, "the protection key is not allocated", |p| {
            p.map(0, 1);
            Syscall::Mprotect {
                addr: at(0),
                len: PAGE,
                prot: RW,
                pkey: Some(Pkey(7)),
            }
        }),
        Case::new(ENOMEM, "nothing is mapped at 0x1000002000", |p| {
            p.map(0, 2).map(3, 1);
            mprotect(0, 4, Prot::READ)
        }),
        Case::new(
            EACCES,
            "the mapping can never have this access, because of how its file is open",
            |p| {
                p.map_read_only(FileKind::Regular);
                mprotect(0, 1, RW)
            },
        ),
        Case::new(
            EACCES,
            "PR_SET_MDWE forbids memory that is writable and executable, or becomes executable",
            |p| {
                p.map(0, 1).call(&other::mdwe(1));
                mprotect(0, 1, Prot::READ | Prot::EXEC)
            },
        ),
        Case::new(EPERM, "0x1000000000-0x1000001000 is sealed (mseal)", |p| {
            p.map(0, 1).seal(0, 1);
            mprotect(0, 1, Prot::READ)
        }),
        Case::new(
            ENOMEM,
            "a change to a part of a mapping needs one mapping more; 1 of 1 are used",
            |p| {
                p.map(0, 3).at_the_limit();
                mprotect(1, 1, Prot::READ)
            },
        ),
        Case::new(
            ENOMEM,
            "RLIMIT_DATA: 12 KiB more; 4 KiB of 4 KiB are used",
            |p| {
                p.map(0, 3).map(9, 1);
                p.call(&mprotect(0, 3, Prot::READ));
                p.limits(|l| l.data = PAGE);
                mprotect(0, 3, RW)
            },
        ),
        Case::new(
            ENOMEM,
            "the commit limit: 12 KiB more; 0 B of 8 KiB are used",
            |p| {
                p.map(0, 3).system(|s| s.overcommit = Overcommit::Never(2));
                p.call(&mprotect(0, 3, Prot::READ));
                mprotect(0, 3, RW)
            },
        ),
    ]
}

fn heap() -> Vec<Case> {
    let case = |words, call| Case {
        policy: Policy::LINUX,
        errno: None,
        words,
        call,
    };
    fn brk(pages: u64) -> Syscall {
        Syscall::Brk {
            addr: at(1000 + pages),
        }
    }
    vec![
        case("the new break is below the start of the heap", |_| {
            Syscall::Brk { addr: at(999) }
        }),
        case("RLIMIT_DATA: 8 KiB more; 0 B of 4 KiB are used", |p| {
            p.limits(|l| l.data = PAGE);
            brk(2)
        }),
        case("RLIMIT_AS: 8 KiB more; 0 B of 4 KiB are used", |p| {
            p.limits(|l| l.address_space = PAGE);
            brk(2)
        }),
        case("RLIMIT_MEMLOCK: 8 KiB more; 0 B of 4 KiB are used", |p| {
            p.call(&other::mlockall()).limits(|l| l.memlock = PAGE);
            brk(2)
        }),
        case(
            "no room to grow in place by 16 KiB: 8 KiB above are free",
            |p| {
                p.map(1002, 1);
                brk(4)
            },
        ),
        case("a new mapping is one mapping more; 2 of 1 are used", |p| {
            p.map(0, 1).map(2, 1);
            p.system(|s| s.max_map_count = 1);
            brk(1)
        }),
        case("the commit limit: 8 KiB more; 0 B of 4 KiB are used", |p| {
            p.system(|s| s.overcommit = Overcommit::Never(1));
            brk(2)
        }),
    ]
}

fn shmat(change: impl FnOnce(&mut ShmatRequest)) -> Syscall {
    let mut request = ShmatRequest {
        segment: file(FileKind::SysvShm),
        len: 2 * PAGE,
        addr: at(0),
        flags: ShmFlags::empty(),
        placement: Default::default(),
    };
    change(&mut request);
    Syscall::Shmat(request)
}

fn attaching() -> Vec<Case> {
    vec![
        Case::new(
            EINVAL,
            "the address is not a multiple of the page size",
            |_| shmat(|r| r.addr += 1),
        ),
        Case::new(
            EINVAL,
            "SHM_REMAP replaces what is mapped at an address, and none is given",
            |_| shmat(|r| (r.addr, r.flags) = (0, ShmFlags::REMAP)),
        ),
        Case::new(
            EINVAL,
            "the range is in use: 0x1000001000-0x1000002000 is mapped",
            |p| {
                p.map(1, 1);
                shmat(|_| ())
            },
        ),
        Case::new(
            ENOMEM,
            "RLIMIT_AS: 8 KiB more; 0 B of 4 KiB are used",
            |p| {
                p.limits(|l| l.address_space = PAGE);
                shmat(|_| ())
            },
        ),
        Case::new(EPERM, "0x1000 is below vm.mmap_min_addr (0x10000)", |_| {
            shmat(|r| r.addr = PAGE)
        }),
        Case::new(
            EAGAIN,
            "RLIMIT_MEMLOCK: 8 KiB more; 0 B of 4 KiB are used",
            |p| {
                p.call(&other::mlockall()).limits(|l| l.memlock = PAGE);
                shmat(|_| ())
            },
        ),
        Case::new(
            EINVAL,
            "no segment of shared memory is attached at this address",
            |_| Syscall::Shmdt {
                addr: at(0),
                sizes: Vec::new(),
            },
        ),
    ]
}
