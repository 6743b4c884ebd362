//! The calls that give advice about memory.

use super::*;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::process_madvise::Advised;

use Errno::*;

pub fn cases() -> Vec<Case> {
    let mut cases = advising();
    cases.extend(advising_special());
    cases.extend(advising_others());
    cases
}

fn madvise(page: u64, pages: u64, advice: Advice) -> Syscall {
    Syscall::Madvise {
        addr: at(page),
        len: pages * PAGE,
        advice,
    }
}

fn advising() -> Vec<Case> {
    vec![
        Case::new(EINVAL, "the kernel does not know the advice", |_| {
            madvise(0, 1, Advice::Unknown(77))
        }),
        Case::new(
            EINVAL,
            "the address is not a multiple of the page size",
            |_| Syscall::Madvise {
                addr: 1,
                len: PAGE,
                advice: Advice::DontNeed,
            },
        ),
        Case::new(
            EINVAL,
            "the address and the length together exceed 64 bits",
            |_| madvise(0, u64::MAX / PAGE, Advice::DontNeed),
        ),
        Case::new(ENOMEM, "nothing is mapped at 0x1000001000", |p| {
            p.map(0, 1).map(2, 1);
            madvise(0, 3, Advice::DontNeed)
        }),
        Case::new(ENOMEM, "nothing is mapped at 0x1000001000", |p| {
            p.map(0, 1);
            madvise(0, 3, Advice::PopulateRead)
        }),
        Case::new(
            EAGAIN,
            "a change to a part of a mapping needs one mapping more; 1 of 1 are used",
            |p| {
                p.map(0, 3).at_the_limit();
                madvise(1, 1, Advice::DontFork)
            },
        ),
        Case::new(EPERM, "0x1000000000-0x1000001000 is sealed (mseal)", |p| {
            let read = Syscall::Mprotect {
                addr: at(0),
                len: PAGE,
                prot: Prot::READ,
                pkey: None,
            };
            p.map(0, 1).call(&read).seal(0, 1);
            madvise(0, 1, Advice::DontNeed)
        }),
        Case::new(EINVAL, "memory in the range is locked (mlock)", |p| {
            p.map_as(0, 1, ANON | MapFlags::LOCKED, None);
            madvise(0, 1, Advice::DontNeed)
        }),
        Case::new(
            EINVAL,
            "pages in the range are those of a device, of a special mapping, or not anonymous",
            |p| {
                p.map_file(0, 1, file(FileKind::Regular));
                madvise(0, 1, Advice::Free)
            },
        ),
        Case::new(
            EINVAL,
            "a mapping of this kind does not take the advice",
            |p| {
                p.map_file(0, 1, file(FileKind::Regular));
                madvise(0, 1, Advice::WipeOnFork)
            },
        ),
        Case::new(EINVAL, "huge pages are disabled for this memory", |p| {
            p.map(0, 1);
            madvise(0, 1, Advice::Collapse)
        }),
        Case::new(
            EINVAL,
            "the range contains no whole huge page, or a part of one",
            |p| {
                p.map(0, 2048);
                p.space.fault(p.mm, at(0), Access::Write).unwrap();
                madvise(1, 1, Advice::Collapse)
            },
        )
        .under(Policy::LINUX_6_1),
        Case::new(
            EFAULT,
            "pages of the range could not be made present",
            |p| {
                p.map(0, 1).call(&madvise(0, 1, Advice::GuardInstall));
                madvise(0, 1, Advice::PopulateWrite)
            },
        ),
        Case::new(
            EINVAL,
            "the protection of the memory forbids the access for which it is populated",
            |p| {
                p.map_inaccessible();
                madvise(0, 1, Advice::PopulateWrite)
            },
        ),
    ]
}

fn advising_special() -> Vec<Case> {
    vec![
        Case::new(
            EINVAL,
            "MADV_REMOVE frees pages of a file, and the memory has none",
            |p| {
                p.map(0, 1);
                madvise(0, 1, Advice::Remove)
            },
        ),
        Case::new(EACCES, "MADV_REMOVE needs a shared writable mapping", |p| {
            p.map_as(0, 1, MapFlags::PRIVATE, Some(file(FileKind::Regular)));
            madvise(0, 1, Advice::Remove)
        }),
        Case::new(
            EOPNOTSUPP,
            "the file's file system did not punch the hole",
            |p| {
                p.map_file(0, 1, file(FileKind::Secret));
                let unlock = Syscall::Munlock {
                    addr: at(0),
                    len: PAGE,
                };
                p.call(&unlock);
                madvise(0, 1, Advice::Remove)
            },
        ),
        Case::new(
            EINVAL,
            "the address is not a multiple of the huge page size",
            |p| {
                p.map_hugetlb(1);
                madvise(1, 1, Advice::DontNeed)
            },
        ),
    ]
}

fn process_madvise(advice: Advice, advised: Advised, range: (u64, u64)) -> Syscall {
    Syscall::ProcessMadvise {
        ranges: vec![range],
        advice,
        advised,
    }
}

fn advising_others() -> Vec<Case> {
    vec![
        Case::new(
            EOPNOTSUPP,
            "the file's file system did not punch the hole",
            |p| {
                p.map_file(0, 1, file(FileKind::Secret));
                process_madvise(Advice::Remove, Advised::Own, (at(0), PAGE))
            },
        ),
        Case::new(EINVAL, "process_madvise does not take this advice", |_| {
            process_madvise(Advice::DontNeed, Advised::Other, (at(0), PAGE))
        }),
        Case::new(EINVAL, "the kernel does not know the advice", |_| {
            process_madvise(Advice::Unknown(77), Advised::Own, (at(0), PAGE))
        }),
        Case::new(
            EINVAL,
            "the length is too large for any address space",
            |_| process_madvise(Advice::Cold, Advised::Own, (at(0), u64::MAX)),
        ),
        Case::new(
            EFAULT,
            "4 KiB at 0x7ffffffff000 are outside of 0-0x7ffffffff000",
            |_| process_madvise(Advice::Cold, Advised::Own, (0x7fff_ffff_f000, PAGE)),
        ),
        Case::new(EPERM, "the call needs CAP_SYS_NICE", |p| {
            p.map(0, 1);
            process_madvise(Advice::Cold, Advised::Own, (at(0), PAGE))
        })
        .under(Policy::LINUX_5_10),
        Case::new(ENOMEM, "nothing is mapped at 0x1000000000", |_| {
            process_madvise(Advice::Cold, Advised::Own, (at(0), PAGE))
        }),
        Case::new(
            EAGAIN,
            "a change to a part of a mapping needs one mapping more; 1 of 1 are used",
            |p| {
                p.map(0, 3).at_the_limit();
                process_madvise(Advice::DontFork, Advised::Own, (at(1), PAGE))
            },
        ),
        Case::new(EACCES, "MADV_REMOVE needs a shared writable mapping", |p| {
            p.map_as(0, 1, MapFlags::PRIVATE, Some(file(FileKind::Regular)));
            process_madvise(Advice::Remove, Advised::Own, (at(0), PAGE))
        }),
    ]
}
