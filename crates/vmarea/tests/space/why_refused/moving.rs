//! The reasons of `mremap`.

use super::memory::mprotect;
use super::*;
use vmarea::Overcommit;

use Errno::*;

pub fn cases() -> Vec<Case> {
    let mut cases = moving();
    cases.extend(moving_older());
    cases
}

fn mremap(page: u64, pages: u64, new: u64, change: impl FnOnce(&mut MremapRequest)) -> Syscall {
    let mut request = MremapRequest {
        addr: at(page),
        old_len: pages * PAGE,
        new_len: new * PAGE,
        ..MremapRequest::default()
    };
    change(&mut request);
    Syscall::Mremap(request)
}

const MOVE: MremapFlags = MremapFlags::MAYMOVE;
const TO: MremapFlags = MremapFlags::MAYMOVE.union(MremapFlags::FIXED);
const LEAVE: MremapFlags = MremapFlags::MAYMOVE.union(MremapFlags::DONTUNMAP);

fn to(page: u64) -> impl FnOnce(&mut MremapRequest) {
    move |r| (r.flags, r.new_addr) = (TO, at(page))
}

fn moving() -> Vec<Case> {
    vec![
        Case::new(
            EINVAL,
            "a flag is unknown, or contradicts another one",
            |_| mremap(0, 1, 1, |r| r.flags = MremapFlags::from_bits_retain(64)),
        ),
        Case::new(
            EINVAL,
            "the address is not a multiple of the page size",
            |_| mremap(0, 1, 1, |r| r.addr += 1),
        ),
        Case::new(EINVAL, "the length is 0", |_| mremap(0, 1, 0, |_| ())),
        Case::new(
            EINVAL,
            "MREMAP_FIXED and MREMAP_DONTUNMAP need MREMAP_MAYMOVE",
            |_| mremap(0, 1, 1, |r| r.flags = MremapFlags::FIXED),
        ),
        Case::new(
            EINVAL,
            "128 TiB at 0x1000000000 are outside of 0-0x7ffffffff000",
            |_| mremap(0, 1, 1 << 35, |_| ()),
        ),
        Case::new(
            EINVAL,
            "MREMAP_DONTUNMAP keeps the length, and the new length is another one",
            |_| mremap(0, 1, 2, |r| r.flags = LEAVE),
        ),
        Case::new(EINVAL, "the old and the new range overlap", |_| {
            mremap(0, 2, 2, to(1))
        }),
        Case::new(
            ENOMEM,
            "mremap may need 4 mappings more; 3 of 6 are used",
            |p| {
                p.map(0, 1).map(2, 1).map(4, 1);
                p.system(|s| s.max_map_count = 6);
                mremap(0, 1, 2, |r| r.flags = MOVE)
            },
        ),
        Case::new(EFAULT, "nothing is mapped at 0x1000000000", |_| {
            mremap(0, 1, 2, |_| ())
        }),
        Case::new(EFAULT, "nothing is mapped at 0x1000001000", |p| {
            p.map(0, 1).map(2, 1);
            mremap(1, 2, 2, to(9))
        }),
        Case::new(EPERM, "0x1000000000-0x1000001000 is sealed (mseal)", |p| {
            p.map(0, 1).seal(0, 1);
            mremap(0, 1, 2, |_| ())
        }),
        Case::new(
            EINVAL,
            "an old length of 0 asks for a second mapping of the same pages, and the mapping is private",
            |p| {
                p.map(0, 1);
                mremap(0, 0, 1, |r| r.flags = MOVE)
            },
        ),
        Case::new(EINVAL, "a mapping of hugetlb pages cannot grow", |p| {
            p.map_hugetlb(1);
            mremap(0, 512, 1024, |_| ())
        }),
        Case::new(
            EFAULT,
            "mremap across 3 mappings: the first ends at 0x1000001000",
            |p| {
                p.map(0, 3).call(&mprotect(1, 1, Prot::READ));
                mremap(0, 3, 4, |r| r.flags = MOVE)
            },
        ),
        Case::new(
            EFAULT,
            "the range ends at 0x1000003000, and its mapping at 0x1000001000",
            |p| {
                p.map(0, 1);
                mremap(0, 3, 4, |r| r.flags = MOVE)
            },
        ),
        Case::new(
            EINVAL,
            "the end of the range is beyond what an offset in this file can be",
            |p| {
                p.import(0, VmFlags::empty(), u64::MAX - 1);
                mremap(0, 1, 2, |_| ())
            },
        ),
        Case::new(
            EFAULT,
            "the mapping has a fixed size, as those of devices",
            |p| {
                p.import(0, VmFlags::DONTEXPAND, 0);
                mremap(0, 1, 2, |_| ())
            },
        ),
        Case::new(
            EAGAIN,
            "RLIMIT_MEMLOCK: 4 KiB more; 4 KiB of 4 KiB are used",
            |p| {
                p.map_as(0, 1, ANON | MapFlags::LOCKED, None);
                p.limits(|l| l.memlock = PAGE);
                mremap(0, 1, 2, |_| ())
            },
        ),
        Case::new(
            ENOMEM,
            "RLIMIT_AS: 8 KiB more; 4 KiB of 8 KiB are used",
            |p| {
                p.map(0, 1).limits(|l| l.address_space = 2 * PAGE);
                mremap(0, 1, 3, |_| ())
            },
        ),
        Case::new(
            ENOMEM,
            "no room to grow in place by 12 KiB: 4 KiB above are free",
            |p| {
                p.map(0, 1).map(2, 1);
                mremap(0, 1, 4, |_| ())
            },
        ),
        Case::new(
            ENOMEM,
            "the commit limit: 4 KiB more; 4 KiB of 4 KiB are used",
            |p| {
                p.map(0, 1).system(|s| s.overcommit = Overcommit::Never(1));
                mremap(0, 1, 2, |_| ())
            },
        ),
        Case::new(
            ENOMEM,
            "no gap of 127.5 TiB: the largest is 63.9 TiB",
            |p| {
                p.map_as(
                    0x4_0000_0000 - (BASE >> 12),
                    1,
                    ANON | MapFlags::NORESERVE,
                    None,
                );
                p.map(0, 1);
                mremap(0, 1, 0x7_f800_0000, |r| r.flags = MOVE)
            },
        ),
        Case::new(
            EFAULT,
            "the range covers several mappings, and one of them can only move alone",
            |p| {
                p.map_file(0, 1, file(FileKind::SysvShm)).map(1, 1);
                mremap(0, 2, 2, to(9))
            },
        ),
    ]
}

fn moving_older() -> Vec<Case> {
    vec![
        Case::new(
            EINVAL,
            "MREMAP_DONTUNMAP does not work on a mapping of this kind",
            |p| {
                p.map_file(0, 1, file(FileKind::Regular));
                mremap(0, 1, 1, |r| (r.flags, r.new_addr) = (LEAVE, at(9)))
            },
        )
        .under(Policy::LINUX_5_10),
        Case::new(
            ENOMEM,
            "mremap may need 6 mappings more; 2 of 7 are used",
            |p| {
                p.map(0, 1).map(2, 1);
                p.system(|s| s.max_map_count = 7);
                mremap(0, 1, 1, to(9))
            },
        )
        .under(Policy::LINUX_6_1),
    ]
}
