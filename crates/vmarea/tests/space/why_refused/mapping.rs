//! The reasons of `mmap`.

use super::*;
use vmarea::Overcommit;

use Errno::*;

pub fn cases() -> Vec<Case> {
    let mut cases = mapping();
    cases.extend(mapping_files());
    cases
}

fn mmap(change: impl FnOnce(&mut MmapRequest)) -> Syscall {
    let mut request = fixed(0, 2);
    change(&mut request);
    Syscall::Mmap(request)
}

fn mapping() -> Vec<Case> {
    vec![
        Case::new(EINVAL, "the length is 0", |_| mmap(|r| r.len = 0)),
        Case::new(
            EINVAL,
            "the offset in the file is not a multiple of the page size",
            |_| mmap(|r| r.offset = 1),
        ),
        Case::new(
            EINVAL,
            "MAP_HUGETLB is set for a file that is not on hugetlbfs",
            |_| {
                mmap(|r| {
                    r.file = Some(file(FileKind::Regular));
                    r.flags = MapFlags::SHARED | MapFlags::HUGETLB;
                })
            },
        ),
        Case::new(
            ENOMEM,
            "the length is too large for any address space",
            |_| mmap(|r| r.len = u64::MAX),
        ),
        Case::new(
            EOVERFLOW,
            "the end of the range is beyond what an offset in this file can be",
            |_| {
                mmap(|r| {
                    r.file = Some(file(FileKind::Regular));
                    r.flags = MapFlags::SHARED;
                    r.offset = !0 << 12;
                })
            },
        ),
        Case::new(
            ENOMEM,
            "a new mapping is one mapping more; 2 of 1 are used",
            |p| {
                p.map(0, 1).map(9, 1);
                p.system(|s| s.max_map_count = 1);
                mmap(|_| ())
            },
        ),
        Case::new(
            ENOMEM,
            "128 TiB at 0x0 are outside of 0-0x7ffffffff000",
            |_| {
                mmap(|r| {
                    r.addr = 0;
                    r.len = 1 << 47;
                })
            },
        ),
        Case::new(ENOMEM, "no gap of 127.9 TiB: the largest is 80 TiB", |p| {
            p.map(0x5_0000_0000, 1);
            mmap(|r| {
                r.addr = 0;
                r.len = (1 << 47) - (1 << 30);
            })
        }),
        Case::new(
            ENOMEM,
            "MAP_32BIT's 1 GiB has no gap of 64 KiB: the largest is 16 KiB",
            |p| {
                let low = MmapRequest {
                    addr: 0x4000_0000 + 4 * PAGE,
                    len: (1 << 30) - 4 * PAGE,
                    flags: ANON | MapFlags::FIXED,
                    ..MmapRequest::default()
                };
                p.space.mmap(p.mm, &low).unwrap();
                mmap(|r| {
                    (r.addr, r.len) = (0, 16 * PAGE);
                    r.flags |= MapFlags::BIT32;
                })
            },
        ),
        Case::new(
            EINVAL,
            "the address is not a multiple of the page size",
            |_| {
                mmap(|r| {
                    r.addr += 1;
                    r.flags |= MapFlags::FIXED;
                })
            },
        ),
        Case::new(
            ENOSYS,
            "the address is in the last page of 64 bits, which Linux takes for an error number",
            |_| {
                mmap(|r| {
                    r.addr = (-38i64) as u64;
                    r.flags |= MapFlags::FIXED;
                })
            },
        ),
        Case::new(EPERM, "0x1000 is below vm.mmap_min_addr (0x10000)", |_| {
            mmap(|r| {
                r.addr = PAGE;
                r.flags |= MapFlags::FIXED;
            })
        }),
        Case::new(
            EEXIST,
            "the range is in use: 0x1000001000-0x1000002000 is mapped",
            |p| {
                p.map(1, 1);
                mmap(|r| r.flags |= MapFlags::FIXED_NOREPLACE)
            },
        ),
        Case::new(
            EPERM,
            "the process may not lock memory: RLIMIT_MEMLOCK is 0",
            |p| {
                p.limits(|l| l.memlock = 0);
                mmap(|r| r.flags |= MapFlags::LOCKED)
            },
        ),
        Case::new(
            EAGAIN,
            "RLIMIT_MEMLOCK: 8 KiB more; 0 B of 4 KiB are used",
            |p| {
                p.limits(|l| l.memlock = PAGE);
                mmap(|r| r.flags |= MapFlags::LOCKED)
            },
        ),
        Case::new(
            EINVAL,
            "the flags name no type of mapping that this kernel has for this memory",
            |_| mmap(|r| r.flags = MapFlags::ANONYMOUS),
        ),
        Case::new(
            EINVAL,
            "MAP_GROWSDOWN is for private anonymous memory only",
            |_| mmap(|r| r.flags = MapFlags::SHARED | MapFlags::ANONYMOUS | MapFlags::GROWSDOWN),
        ),
        Case::new(
            EINVAL,
            "MAP_DROPPABLE contradicts MAP_LOCKED, MAP_HUGETLB and MAP_GROWSDOWN",
            |_| mmap(|r| r.flags = MapFlags::DROPPABLE | MapFlags::ANONYMOUS | MapFlags::HUGETLB),
        ),
        Case::new(
            EACCES,
            "PR_SET_MDWE forbids memory that is writable and executable, or becomes executable",
            |p| {
                p.call(&other::mdwe(1));
                mmap(|r| r.prot = RW | Prot::EXEC)
            },
        ),
        Case::new(
            ENOMEM,
            "RLIMIT_AS: 8 KiB more; 4 KiB of 8 KiB are used",
            |p| {
                p.map(5, 1).limits(|l| l.address_space = 2 * PAGE);
                mmap(|_| ())
            },
        ),
        Case::new(
            ENOMEM,
            "RLIMIT_DATA: 8 KiB more; 4 KiB of 8 KiB are used",
            |p| {
                p.map(5, 1).limits(|l| l.data = 2 * PAGE);
                mmap(|_| ())
            },
        ),
        Case::new(
            ENOMEM,
            "the commit limit: 8 KiB more; 12 KiB of 16 KiB are used",
            |p| {
                p.map(5, 3).system(|s| s.overcommit = Overcommit::Never(4));
                mmap(|_| ())
            },
        ),
        Case::new(
            ENOMEM,
            "8 KiB at once is more than the machine has (4 KiB)",
            |p| {
                p.system(|s| s.overcommit = Overcommit::Guess(1));
                mmap(|_| ())
            },
        ),
        Case::new(
            ENOMEM,
            "unmapping the middle of a mapping needs one mapping more; 1 of 1 are used",
            |p| {
                p.map(0, 9).system(|s| s.max_map_count = 1);
                mmap(|r| {
                    r.addr = at(3);
                    r.flags |= MapFlags::FIXED;
                })
            },
        ),
        Case::new(EPERM, "0x1000000000-0x1000001000 is sealed (mseal)", |p| {
            p.map(0, 1).seal(0, 1);
            mmap(|r| r.flags |= MapFlags::FIXED)
        }),
    ]
}

fn of(opened: File, change: impl FnOnce(&mut MmapRequest)) -> Syscall {
    mmap(|r| {
        r.file = Some(opened);
        r.flags = MapFlags::SHARED;
        change(r);
    })
}

fn mapping_files() -> Vec<Case> {
    vec![
        Case::new(
            EOPNOTSUPP,
            "MAP_SHARED_VALIDATE is set, and the file does not support a flag",
            |_| {
                of(file(FileKind::Regular), |r| {
                    r.flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
                })
            },
        ),
        Case::new(
            EACCES,
            "a shared writable mapping needs a file that is open for writing, not only appending",
            |_| {
                let mut opened = file(FileKind::Regular);
                opened.writable = false;
                of(opened, |_| ())
            },
        ),
        Case::new(EACCES, "the file is not open for reading", |_| {
            let mut opened = file(FileKind::Regular);
            opened.readable = false;
            of(opened, |_| ())
        }),
        Case::new(
            EPERM,
            "the file is on a file system that is mounted with noexec",
            |_| {
                let mut opened = file(FileKind::Regular);
                opened.noexec = true;
                of(opened, |r| r.prot |= Prot::EXEC)
            },
        ),
        Case::new(
            EPERM,
            "the file is sealed against writing (F_SEAL_WRITE)",
            |_| {
                let mut opened = file(FileKind::Shmem);
                opened.write_sealed = true;
                of(opened, |_| ())
            },
        ),
        Case::new(
            ENODEV,
            "the file, or the driver behind it, refused the mapping",
            |_| of(file(FileKind::Device), |r| r.refused = Some(ENODEV)),
        ),
        Case::new(
            ENOMEM,
            "no huge page of this size is left in the pool",
            |_| {
                of(file(FileKind::Hugetlb), |r| {
                    (r.addr, r.refused) = (0, Some(ENOMEM))
                })
            },
        ),
        Case::new(
            EINVAL,
            "memfd_secret memory can only be mapped shared",
            |_| of(file(FileKind::Secret), |r| r.flags = MapFlags::PRIVATE),
        ),
        Case::new(
            EAGAIN,
            "RLIMIT_MEMLOCK: 8 KiB more; 0 B of 4 KiB are used",
            |p| {
                p.limits(|l| l.memlock = PAGE);
                of(file(FileKind::Secret), |_| ())
            },
        )
        .under(Policy::LINUX_6_1),
        Case::new(
            EINVAL,
            "the offset in the file is not a multiple of the huge page size",
            |_| of(file(FileKind::Hugetlb), |r| (r.addr, r.offset) = (0, PAGE)),
        ),
        Case::new(
            EINVAL,
            "the address is not a multiple of the huge page size",
            |_| {
                of(file(FileKind::Hugetlb), |r| {
                    r.addr = at(1);
                    r.flags |= MapFlags::FIXED;
                })
            },
        ),
    ]
}
