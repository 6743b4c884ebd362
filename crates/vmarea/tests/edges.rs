//! Arguments at the edges of what a number can be, and mappings that are not like others: the kernel's own,
//! files of huge pages, secret memory, memory that two processes share.

use vmarea::call::mlock::LockPages;
use vmarea::call::mmap::MmapRequest;
use vmarea::call::mremap::MremapRequest;
use vmarea::call::shm::{ShmFlags, ShmatRequest};
use vmarea::call::userfaultfd::WatchMode;
use vmarea::mm::lifecycle::{ImportedAnon, ImportedVma};
use vmarea::mm::{Layout, Limits, Mdwe};
use vmarea::soft::Machine;
use vmarea::values::call_flags::{MapFlags, MremapFlags, from_register, map_type, prot};
use vmarea::values::{
    Errno, File, FileId, FileKind, MmId, PAGE_SIZE, PMD_SIZE, Pgoff, Policy, VmFlags, VmRange,
};
use vmarea::vma::{MappedFile, VmaBody, VmaView};
use vmarea::{Space, System};

const BASE: u64 = 0x10_0000_0000;
const HEAP: u64 = 0x20_0000_0000;
const TASK_SIZE: u64 = 0x7fff_ffff_f000;
const TOP: u64 = 0x7f00_0000_0000;
const RW: u32 = prot::READ | prot::WRITE;
const PRIVATE: u32 = map_type::PRIVATE | MapFlags::ANONYMOUS.bits();

fn process(machine: &Machine) -> MmId {
    let layout = Layout {
        mmap_base: TOP,
        legacy_base: 0x2aaa_aaaa_a000,
        start_brk: HEAP,
        brk: HEAP,
        ..Layout::default()
    };
    machine
        .space()
        .mm_create(layout, Limits::default())
        .unwrap()
}

fn machine(policy: Policy) -> (Machine, MmId) {
    let machine = Machine::new(policy, System::default());
    let mm = process(&machine);
    (machine, mm)
}

fn vmas(space: &Space, mm: MmId) -> Vec<VmaView> {
    space.mmap_read_lock(mm).unwrap().vmas().collect()
}

fn file(kind: FileKind) -> File {
    File {
        id: FileId(7),
        inode: 7,
        kind,
        readable: true,
        writable: true,
        noexec: false,
        append_only: false,
        write_sealed: false,
    }
}

fn map_at(space: &Space, mm: MmId, addr: u64, pages: u64) {
    let request = MmapRequest {
        addr,
        len: pages * PAGE_SIZE,
        prot: RW,
        flags: PRIVATE | MapFlags::FIXED.bits(),
        ..MmapRequest::default()
    };
    space.mmap(mm, &request).unwrap();
}

#[test]
fn a_break_beyond_the_address_space_changes_nothing() {
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    map_at(space, mm, BASE, 4);
    space.brk(mm, HEAP + 3 * PAGE_SIZE).unwrap();
    let before = vmas(space, mm);
    let last_page = 0_u64.wrapping_sub(PAGE_SIZE);
    for brk in [
        u64::MAX,
        last_page,
        last_page + 1,
        last_page - 1,
        1 << 63,
        TASK_SIZE + 1,
        1 << 47,
    ] {
        assert_eq!(space.brk(mm, brk), Ok(HEAP + 3 * PAGE_SIZE), "{brk:#x}");
        assert_eq!(vmas(space, mm), before, "{brk:#x}");
    }
}

/// What is at the edges, as an address, a length or an offset.
fn numbers() -> Vec<u64> {
    let mut numbers = Vec::new();
    for edge in [
        0,
        BASE,
        HEAP,
        1 << 46,
        TASK_SIZE,
        1 << 47,
        1 << 52,
        1 << 62,
        1 << 63,
    ] {
        for by in [0, 1, PAGE_SIZE - 1, PAGE_SIZE, PAGE_SIZE + 1, PMD_SIZE] {
            numbers.push(edge + by);
            numbers.push(edge.wrapping_sub(by));
        }
    }
    numbers
}

/// No call overflows, whatever the numbers are: debug builds would panic, and `validate` find the rest.
#[test]
fn no_call_overflows() {
    for policy in [
        Policy::LINUX,
        Policy::LINUX_5_10,
        Policy::THESIS,
        Policy::VMAREA,
    ] {
        let (machine, mm) = machine(policy);
        let space = machine.space();
        let again = || {
            map_at(space, mm, BASE, 4);
            space.validate_all().unwrap();
        };
        for &a in &numbers() {
            let _ = space.brk(mm, a);
            let _ = space.shmdt(mm, a, |_| u64::MAX);
            for &b in &numbers() {
                let _ = space.munmap(mm, a, b);
                again();
                let _ = space.mprotect(mm, a, b, prot::READ, -1);
                let _ = space.madvise(mm, a, b, 10);
                let _ = space.mlock(mm, a, b, LockPages::OnFault);
                let _ = space.munlock(mm, a, b);
                let _ = space.mbind(mm, a, b, (1, 1), 0);
                let _ = space.remap_file_pages(mm, a, b, 0, a, 0);
                let watched = std::num::NonZeroU32::MIN;
                let _ = space.userfaultfd_register(mm, watched, (a, b), WatchMode::MISSING);
                let _ = space.userfaultfd_unregister(mm, watched, (a, b));
                again();
                sweep_mapping(space, mm, a, b);
                again();
            }
        }
    }
}

fn sweep_mapping(space: &Space, mm: MmId, a: u64, b: u64) {
    for flags in [0, 1, 3, 5] {
        let request = MremapRequest {
            addr: BASE,
            old_len: a,
            new_len: b,
            flags: MremapFlags::from_bits_retain(flags),
            new_addr: a,
            ..MremapRequest::default()
        };
        let _ = space.mremap(mm, &request);
    }
    for kind in [
        FileKind::DevZero,
        FileKind::Hugetlb,
        FileKind::RegularHugeAligned,
    ] {
        let file = file(kind);
        for (addr, len, offset) in [(a, b, 0), (0, a, b), (BASE, PAGE_SIZE, a)] {
            let request = MmapRequest {
                addr,
                len,
                offset,
                prot: prot::READ,
                flags: map_type::PRIVATE | MapFlags::NORESERVE.bits(),
                file: Some(&file),
                ..MmapRequest::default()
            };
            if let Ok(at) = space.mmap(mm, &request) {
                let len = len.next_multiple_of(PMD_SIZE).min(TASK_SIZE - at);
                let _ = space.munmap(mm, at, len);
            }
        }
    }
    let segment = file(FileKind::SysvShm);
    let request = ShmatRequest {
        segment: &segment,
        len: b,
        addr: a,
        flags: ShmFlags::RND,
    };
    if let Ok(at) = space.shmat(mm, &request) {
        let _ = space.munmap(mm, at, b.min(TASK_SIZE - at));
    }
}

#[test]
fn lengths_that_wrap_are_what_linux_takes_them_for() {
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    map_at(space, mm, BASE, 4);
    let wraps = u64::MAX - 4094;
    assert_eq!(space.munmap(mm, BASE, wraps), Err(Errno::EINVAL));
    assert_eq!(
        space.mprotect(mm, BASE, wraps, prot::READ, -1),
        Err(Errno::ENOMEM)
    );
    assert_eq!(space.madvise(mm, BASE, wraps, 10), Err(Errno::EINVAL));
    assert_eq!(space.mseal(mm, BASE, wraps, 0), Err(Errno::EINVAL));
    // These take it for nothing, and have nothing to do.
    assert_eq!(space.mlock(mm, BASE, wraps, LockPages::Now), Ok(()));
    assert_eq!(space.mbind(mm, BASE, wraps, (1, 1), 0), Ok(()));
    let fixed = MmapRequest {
        addr: u64::MAX,
        len: 1,
        flags: PRIVATE | MapFlags::FIXED.bits(),
        ..MmapRequest::default()
    };
    // The address is taken for an error number.
    assert_eq!(space.mmap(mm, &fixed), Err(Errno::EPERM));
    assert_eq!(vmas(space, mm).len(), 1);
}

#[test]
fn flags_above_the_32_bits_are_unknown_ones() {
    assert_eq!(from_register(3), 3);
    assert_eq!(from_register(1 << 32 | 3), 1 << 31 | 3);
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    map_at(space, mm, BASE, 1);
    let prot = from_register(1 << 40 | 1);
    assert_eq!(
        space.mprotect(mm, BASE, PAGE_SIZE, prot, -1),
        Err(Errno::EINVAL)
    );
}

#[test]
fn the_last_page_of_a_file() {
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    let map = |kind, offset, len| {
        let file = file(kind);
        let request = MmapRequest {
            len,
            offset,
            prot: prot::READ,
            flags: map_type::SHARED,
            file: Some(&file),
            ..MmapRequest::default()
        };
        space.mmap(mm, &request).map(drop)
    };
    let last = (i64::MAX as u64) & !(PAGE_SIZE - 1);
    // The largest offset of a file is 2^63 - 1, so that its last page is not whole.
    assert_eq!(
        map(FileKind::Regular, last, PAGE_SIZE),
        Err(Errno::EOVERFLOW)
    );
    assert_eq!(map(FileKind::Regular, last - PAGE_SIZE, PAGE_SIZE), Ok(()));
    assert_eq!(
        map(FileKind::Regular, last - PAGE_SIZE, 2 * PAGE_SIZE),
        Err(Errno::EOVERFLOW)
    );
    assert_eq!(map(FileKind::DevZero, last, PAGE_SIZE), Ok(()));
    assert_eq!(
        map(FileKind::DevZero, u64::MAX - 4095, PAGE_SIZE),
        Err(Errno::EOVERFLOW)
    );
}

#[test]
fn a_file_of_huge_pages_lies_at_a_multiple_of_them() {
    let huge = file(FileKind::Hugetlb);
    let map = |space: &Space, mm, addr, len| {
        let request = MmapRequest {
            addr,
            len,
            prot: RW,
            flags: map_type::SHARED,
            file: Some(&huge),
            ..MmapRequest::default()
        };
        space.mmap(mm, &request)
    };
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    map_at(space, mm, TOP - PAGE_SIZE, 1);
    assert_eq!(map(space, mm, 0, 1), Ok(TOP - 2 * PMD_SIZE));
    // The part of a page is a page.
    assert_eq!(vmas(space, mm)[0].range.len_bytes(), PMD_SIZE);
    assert_eq!(map(space, mm, BASE + 1, PMD_SIZE), Ok(BASE));
    assert_eq!(
        map(space, mm, BASE + 8 * PMD_SIZE + PAGE_SIZE, 1),
        Ok(BASE + 9 * PMD_SIZE)
    );
    assert_eq!(map(space, mm, PAGE_SIZE, 1), Ok(PMD_SIZE));
    assert_eq!(map(space, mm, 0, u64::MAX), Err(Errno::EINVAL));
    assert_eq!(space.munmap(mm, BASE, PAGE_SIZE), Err(Errno::EINVAL));
    assert_eq!(space.munmap(mm, BASE, PMD_SIZE), Ok(()));
    // Kernels before 6.13 round a wish down.
    let (older, mm) = self::machine(Policy::LINUX_5_10);
    let wished = map(older.space(), mm, BASE + 8 * PMD_SIZE + PAGE_SIZE, 1);
    assert_eq!(wished, Ok(BASE + 8 * PMD_SIZE));
}

/// A mapping of the kernel's own of four pages.
fn vdso(policy: Policy) -> (Machine, MmId) {
    let (machine, mm) = machine(policy);
    let imported = ImportedVma {
        range: VmRange::new(BASE, BASE + 4 * PAGE_SIZE),
        pgoff: Pgoff(0),
        body: VmaBody {
            flags: VmFlags::READ | VmFlags::EXEC | VmFlags::MAYRWX | VmFlags::DONTEXPAND,
            file: Some(MappedFile {
                id: FileId(1),
                inode: 0,
                kind: FileKind::Special,
            }),
            ..VmaBody::default()
        },
        anon: ImportedAnon::Unfaulted,
    };
    machine.space().mm_import(mm, &imported).unwrap();
    (machine, mm)
}

#[test]
fn the_vdso_goes_and_moves_as_a_whole() {
    let (machine, mm) = vdso(Policy::LINUX);
    let space = machine.space();
    let to = BASE + 64 * PAGE_SIZE;
    let moved = |addr, old_len, new_len, flags| {
        let request = MremapRequest {
            addr,
            old_len,
            new_len,
            flags: MremapFlags::from_bits_retain(flags),
            new_addr: to,
            ..MremapRequest::default()
        };
        space.mremap(mm, &request)
    };
    let refused = Err(Errno::EINVAL);
    for at in [BASE, BASE + PAGE_SIZE, BASE + 3 * PAGE_SIZE] {
        assert_eq!(space.munmap(mm, at, PAGE_SIZE), refused);
        assert_eq!(space.mprotect(mm, at, PAGE_SIZE, prot::READ, -1), refused);
        assert_eq!(space.madvise(mm, at, PAGE_SIZE, 1), refused);
        assert_eq!(space.mseal(mm, at, PAGE_SIZE, 0), refused);
        assert_eq!(space.mbind(mm, at, PAGE_SIZE, (1, 1), 0), refused);
        assert_eq!(moved(at, PAGE_SIZE, PAGE_SIZE, 3), Err(Errno::EINVAL));
    }
    let len = 4 * PAGE_SIZE;
    assert_eq!(moved(BASE, len, PAGE_SIZE, 0), Err(Errno::EINVAL));
    let over = MmapRequest {
        addr: BASE,
        len: PAGE_SIZE,
        flags: PRIVATE | MapFlags::FIXED.bits(),
        ..MmapRequest::default()
    };
    assert_eq!(space.mmap(mm, &over), Err(Errno::EINVAL));
    // What changes nothing needs no cut.
    assert_eq!(
        space.mprotect(mm, BASE, PAGE_SIZE, prot::READ | prot::EXEC, -1),
        Ok(())
    );
    assert_eq!(space.mlock(mm, BASE, PAGE_SIZE, LockPages::OnFault), Ok(()));
    assert_eq!(space.mprotect(mm, BASE, len, prot::READ, -1), Ok(()));
    assert_eq!(moved(BASE, len, len, 3), Ok(to));
    assert_eq!(vmas(space, mm).len(), 1);
    assert_eq!(space.munmap(mm, to, len), Ok(()));
    // 5.10 cuts it, but moves no part.
    let (machine, mm) = vdso(Policy::LINUX_5_10);
    assert_eq!(machine.space().munmap(mm, BASE, PAGE_SIZE), Ok(()));
}

/// Nothing has to be said for memory to be shared: the core makes the file.
#[test]
fn shared_memory_without_a_file_is_shared() {
    let zero = file(FileKind::DevZero);
    for file in [None, Some(&zero)] {
        let (machine, mm) = machine(Policy::LINUX);
        let space = machine.space();
        let anonymous = match file {
            None => MapFlags::ANONYMOUS,
            Some(_) => MapFlags::empty(),
        };
        let request = MmapRequest {
            len: PAGE_SIZE,
            prot: RW,
            flags: map_type::SHARED | anonymous.bits(),
            file,
            ..MmapRequest::default()
        };
        let at = space.mmap(mm, &request).unwrap();
        let other = space.mmap(mm, &request).unwrap();
        let child = space.fork(mm).unwrap();
        machine.store(child, at, &[7]).unwrap();
        let read = |addr| {
            let mut byte = [0];
            machine.load(mm, addr, &mut byte).unwrap();
            byte[0]
        };
        assert_eq!((read(at), read(other)), (7, 0));
        assert_eq!(vmas(space, mm).len(), 2, "each is a file of its own");
        space.validate_all().unwrap();
    }
}

#[test]
fn a_low_wish_is_raised_to_the_larger_minimum() {
    for (sysctl, built_in, lowest) in [
        (4096, 65_536, 65_536),
        (65_536, 65_536, 65_536),
        (131_072, 65_536, 131_072),
        (4096, 0, 4096),
    ] {
        let system = System {
            mmap_min_addr: sysctl,
            built_in_min_addr: built_in,
            ..System::default()
        };
        let machine = Machine::new(Policy::LINUX, system);
        let mm = process(&machine);
        let request = MmapRequest {
            addr: PAGE_SIZE,
            len: PAGE_SIZE,
            flags: PRIVATE,
            ..MmapRequest::default()
        };
        assert_eq!(machine.space().mmap(mm, &request), Ok(lowest));
        // To map there needs no right from `vm.mmap_min_addr` on.
        let fixed = MmapRequest {
            addr: sysctl,
            flags: PRIVATE | MapFlags::FIXED.bits(),
            ..request
        };
        assert_eq!(machine.space().mmap(mm, &fixed), Ok(sysctl));
    }
}

const SET_MDWE: u64 = 65;
const GET_MDWE: u64 = 66;
const MEMORY_MERGE: u64 = 67;

#[test]
fn memory_does_not_become_executable() {
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    let map = |mm, prot| {
        let request = MmapRequest {
            len: PAGE_SIZE,
            prot,
            flags: PRIVATE,
            ..MmapRequest::default()
        };
        space.mmap(mm, &request)
    };
    let rx = prot::READ | prot::EXEC;
    let before = map(mm, rx).unwrap();
    let plain = map(mm, RW).unwrap();
    assert_eq!(space.prctl(mm, [SET_MDWE, 2, 0, 0, 0]), Err(Errno::EINVAL));
    assert_eq!(space.prctl(mm, [SET_MDWE, 3, 0, 0, 0]), Ok(0));
    assert_eq!(space.prctl(mm, [SET_MDWE, 0, 0, 0, 0]), Err(Errno::EPERM));
    assert_eq!(space.prctl(mm, [GET_MDWE, 0, 0, 0, 0]), Ok(3));
    assert_eq!(map(mm, RW | prot::EXEC), Err(Errno::EACCES));
    assert_eq!(
        space.mprotect(mm, plain, PAGE_SIZE, rx, -1),
        Err(Errno::EACCES)
    );
    assert_eq!(
        space.mprotect(mm, before, PAGE_SIZE, prot::EXEC, -1),
        Ok(())
    );
    assert!(map(mm, rx).is_ok(), "what is never written may be executed");
    // With that flag children begin anew; without it they do not.
    let child = space.fork(mm).unwrap();
    assert!(map(child, RW | prot::EXEC).is_ok());
    assert_eq!(space.prctl(child, [SET_MDWE, 1, 0, 0, 0]), Ok(0));
    let grandchild = space.fork(child).unwrap();
    assert_eq!(map(grandchild, RW | prot::EXEC), Err(Errno::EACCES));
    let mut layout = Layout::default();
    let old = space.mmap_read_lock(child).unwrap().state().layout;
    layout.inherit(&old);
    assert_eq!(layout.mdwe, Mdwe::Refused);
}

#[test]
fn secret_memory_is_locked_and_shared_alone() {
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    let secret = file(FileKind::Secret);
    let map = |flags, prot| {
        let request = MmapRequest {
            len: 2 * PAGE_SIZE,
            prot,
            flags,
            file: Some(&secret),
            ..MmapRequest::default()
        };
        space.mmap(mm, &request)
    };
    assert_eq!(map(map_type::PRIVATE, RW), Err(Errno::EINVAL));
    assert_eq!(map(map_type::SHARED, RW | prot::EXEC), Err(Errno::EPERM));
    let at = map(map_type::SHARED, RW).unwrap();
    let flags = || vmas(space, mm)[0].body.flags;
    let kept = VmFlags::LOCKED | VmFlags::DONTDUMP;
    assert!(flags().contains(kept));
    assert_eq!(space.mmap_read_lock(mm).unwrap().state().locked_vm, 2);
    assert_eq!(space.munlock(mm, at, 2 * PAGE_SIZE), Ok(()));
    assert!(flags().contains(kept), "it stays locked");
    assert_eq!(
        space.mlock(mm, at, PAGE_SIZE, LockPages::Now),
        Err(Errno::ENOMEM)
    );
    let exec = prot::READ | prot::EXEC;
    assert_eq!(
        space.mprotect(mm, at, PAGE_SIZE, exec, -1),
        Err(Errno::EACCES)
    );
    let limit = |limits: &mut Limits| limits.memlock = 3 * PAGE_SIZE;
    space.set_limits(mm, limit).unwrap();
    assert_eq!(map(map_type::SHARED, RW), Err(Errno::EAGAIN));
    let child = space.fork(mm).unwrap();
    assert!(!vmas(space, child)[0].body.flags.contains(VmFlags::LOCKED));
}

#[test]
fn ksm_takes_what_is_there_and_outlives_execve() {
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    map_at(space, mm, BASE, 2);
    let marked = |mm: MmId| vmas(space, mm)[0].body.flags.contains(VmFlags::MERGEABLE);
    assert!(!marked(mm));
    assert_eq!(space.prctl(mm, [MEMORY_MERGE, 1, 0, 0, 0]), Ok(0));
    assert!(marked(mm));
    let old = space.mmap_read_lock(mm).unwrap().state().layout;
    let executed = process(&machine);
    space
        .set_layout(executed, |layout| layout.inherit(&old))
        .unwrap();
    map_at(space, executed, BASE, 2);
    assert!(marked(executed));
    assert_eq!(space.prctl(mm, [MEMORY_MERGE, 0, 0, 0, 0]), Ok(0));
    assert!(!marked(mm));
}
