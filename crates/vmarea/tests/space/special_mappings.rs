//! Special mappings: hugetlb, the vDSO, shared anonymous memory, and `memfd_secret`.
//!
//! These tests also cover settings that affect all mappings of a process.

use crate::bare::{BASE, PRIVATE, RW, TOP, file, machine, map_at, process, vmas};
use vmarea::mm::lifecycle::{ImportedAnon, ImportedVma};
use vmarea::mm::{Layout, Limits, Mdwe};
use vmarea::policy::Policy;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::{MmapRequest, Placement};
use vmarea::syscall::mremap::MremapRequest;
use vmarea::syscall::shm::{ShmFlags, ShmatRequest};
use vmarea::types::call_flags::{MapFlags, MbindFlags, MlockFlags, MremapFlags, Prot};
use vmarea::types::mempolicy::MpolMode;
use vmarea::types::prctl::PrctlOption;
use vmarea::types::{Errno, FileId, FileKind, MmId, PAGE_SIZE, PMD_SIZE, Pgoff, VmFlags, VmRange};
use vmarea::vma::{MappedFile, VmaBody};
use vmarea_soft_platform::{Machine, Space};

#[test]
fn a_file_of_huge_pages_lies_at_a_multiple_of_them() {
    let huge = file(FileKind::Hugetlb);
    let map = |space: &Space, mm, addr, len| {
        let request = MmapRequest {
            addr,
            len,
            prot: RW,
            flags: MapFlags::SHARED,
            file: Some(huge),
            ..MmapRequest::default()
        };
        space.mmap(mm, &request)
    };
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    map_at(space, mm, TOP - PAGE_SIZE, 1);
    assert_eq!(map(space, mm, 0, 1), Ok(TOP - 2 * PMD_SIZE));
    // The length is rounded up to a whole huge page.
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
    // Kernels before 6.13 round a hint down.
    let (older, mm) = self::machine(Policy::LINUX_5_10);
    let wished = map(older.space(), mm, BASE + 8 * PMD_SIZE + PAGE_SIZE, 1);
    assert_eq!(wished, Ok(BASE + 8 * PMD_SIZE));
}

#[test]
fn a_segment_of_huge_pages_is_attached_and_detached_whole() {
    const SEGMENT: u64 = 8;
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    let size = |inode| (inode == SEGMENT).then_some(2 * PMD_SIZE);
    let attach = |id, addr, flags| {
        let segment = vmarea::types::File {
            id: FileId(id),
            inode: SEGMENT,
            ..file(FileKind::Hugetlb)
        };
        let request = ShmatRequest {
            segment,
            len: 2 * PMD_SIZE,
            addr,
            flags,
            placement: Placement::Search,
        };
        space.shmat(mm, &request)
    };
    map_at(space, mm, TOP - PAGE_SIZE, 1);
    let at = TOP - 3 * PMD_SIZE;
    assert_eq!(attach(1, 0, ShmFlags::empty()), Ok(at));
    // Only `SHM_REMAP` replaces an existing mapping, and the address must be a multiple of the huge
    // page size.
    assert_eq!(attach(2, at, ShmFlags::empty()), Err(Errno::EINVAL));
    assert_eq!(
        attach(2, BASE + PAGE_SIZE, ShmFlags::RND),
        Err(Errno::EINVAL)
    );
    assert_eq!(attach(2, BASE, ShmFlags::empty()), Ok(BASE));
    assert_eq!(space.shmdt(mm, at + PMD_SIZE, size), Err(Errno::EINVAL));
    assert_eq!(space.munmap(mm, at, PMD_SIZE), Ok(()));
    assert_eq!(space.shmdt(mm, at, size), Ok(()));
    assert_eq!(space.shmdt(mm, at, size), Err(Errno::EINVAL));
    assert_eq!(space.shmdt(mm, BASE, size), Ok(()));
    // `shmdt` does not detach a hugetlb file that is not a segment.
    let other = file(FileKind::Hugetlb);
    let request = MmapRequest {
        addr: BASE,
        len: PMD_SIZE,
        prot: RW,
        flags: MapFlags::SHARED,
        file: Some(other),
        ..MmapRequest::default()
    };
    assert_eq!(space.mmap(mm, &request), Ok(BASE));
    assert_eq!(space.shmdt(mm, BASE, size), Err(Errno::EINVAL));
    assert_eq!(vmas(space, mm).len(), 2);
}

/// Creates a process that has a special mapping of four pages, like the vDSO.
fn vdso(policy: Policy) -> (Machine, MmId) {
    let (machine, mm) = machine(policy);
    let imported = ImportedVma {
        range: VmRange::new(BASE, BASE + 4 * PAGE_SIZE),
        pgoff: Pgoff(0),
        anon_pgoff: None,
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
        assert_eq!(space.mprotect(mm, at, PAGE_SIZE, Prot::READ, None), refused);
        assert_eq!(space.madvise(mm, at, PAGE_SIZE, Advice::Random), refused);
        assert_eq!(space.mseal(mm, at, PAGE_SIZE, 0), refused);
        assert_eq!(
            space.mbind(
                mm,
                at,
                PAGE_SIZE,
                (MpolMode::PREFERRED, 1),
                MbindFlags::empty()
            ),
            refused
        );
        assert_eq!(moved(at, PAGE_SIZE, PAGE_SIZE, 3), Err(Errno::EINVAL));
    }
    let len = 4 * PAGE_SIZE;
    assert_eq!(moved(BASE, len, PAGE_SIZE, 0), Err(Errno::EINVAL));
    let over = MmapRequest {
        addr: BASE,
        len: PAGE_SIZE,
        flags: PRIVATE | MapFlags::FIXED,
        ..MmapRequest::default()
    };
    assert_eq!(space.mmap(mm, &over), Err(Errno::EINVAL));
    // A call that changes nothing needs no split.
    assert_eq!(
        space.mprotect(mm, BASE, PAGE_SIZE, Prot::READ | Prot::EXEC, None),
        Ok(())
    );
    assert_eq!(
        space.mlock(mm, BASE, PAGE_SIZE, MlockFlags::ONFAULT),
        Ok(())
    );
    assert_eq!(space.mprotect(mm, BASE, len, Prot::READ, None), Ok(()));
    assert_eq!(moved(BASE, len, len, 3), Ok(to));
    assert_eq!(vmas(space, mm).len(), 1);
    assert_eq!(space.munmap(mm, to, len), Ok(()));
    // 5.10 splits the mapping on `munmap`.
    let (machine, mm) = vdso(Policy::LINUX_5_10);
    assert_eq!(machine.space().munmap(mm, BASE, PAGE_SIZE), Ok(()));
}

/// `MAP_SHARED` without a file maps shared memory: the core creates a nameless file.
#[test]
fn shared_memory_without_a_file_is_shared() {
    let zero = file(FileKind::DevZero);
    for file in [None, Some(zero)] {
        let (machine, mm) = machine(Policy::LINUX);
        let space = machine.space();
        let anonymous = match file {
            None => MapFlags::ANONYMOUS,
            Some(_) => MapFlags::empty(),
        };
        let request = MmapRequest {
            len: PAGE_SIZE,
            prot: RW,
            flags: MapFlags::SHARED | anonymous,
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
    let rx = Prot::READ | Prot::EXEC;
    let before = map(mm, rx).unwrap();
    let plain = map(mm, RW).unwrap();
    assert_eq!(
        space.prctl(mm, PrctlOption::SET_MDWE, [2, 0, 0, 0]),
        Err(Errno::EINVAL)
    );
    assert_eq!(space.prctl(mm, PrctlOption::SET_MDWE, [3, 0, 0, 0]), Ok(0));
    assert_eq!(
        space.prctl(mm, PrctlOption::SET_MDWE, [0, 0, 0, 0]),
        Err(Errno::EPERM)
    );
    assert_eq!(space.prctl(mm, PrctlOption::GET_MDWE, [0, 0, 0, 0]), Ok(3));
    assert_eq!(map(mm, RW | Prot::EXEC), Err(Errno::EACCES));
    assert_eq!(
        space.mprotect(mm, plain, PAGE_SIZE, rx, None),
        Err(Errno::EACCES)
    );
    assert_eq!(
        space.mprotect(mm, before, PAGE_SIZE, Prot::EXEC, None),
        Ok(())
    );
    assert!(map(mm, rx).is_ok(), "what is never written may be executed");
    // With this flag children start without the restriction; without the flag they inherit it.
    let child = space.fork(mm).unwrap();
    assert!(map(child, RW | Prot::EXEC).is_ok());
    assert_eq!(
        space.prctl(child, PrctlOption::SET_MDWE, [1, 0, 0, 0]),
        Ok(0)
    );
    let grandchild = space.fork(child).unwrap();
    assert_eq!(map(grandchild, RW | Prot::EXEC), Err(Errno::EACCES));
    let mut layout = Layout::default();
    let old = space.mmap_read_lock(child).unwrap().state().layout;
    layout.inherit(&old);
    assert_eq!(layout.mdwe, Mdwe::Refused);
}

#[test]
fn secret_memory_is_locked_and_shared_alone() {
    // Since 7.2 it is not locked.
    let (machine, mm) = machine(Policy::LINUX_6_18);
    let space = machine.space();
    let secret = file(FileKind::Secret);
    let map = |flags, prot| {
        let request = MmapRequest {
            len: 2 * PAGE_SIZE,
            prot,
            flags,
            file: Some(secret),
            ..MmapRequest::default()
        };
        space.mmap(mm, &request)
    };
    assert_eq!(map(MapFlags::PRIVATE, RW), Err(Errno::EINVAL));
    assert_eq!(map(MapFlags::SHARED, RW | Prot::EXEC), Err(Errno::EPERM));
    let at = map(MapFlags::SHARED, RW).unwrap();
    let flags = || vmas(space, mm)[0].body.flags;
    let kept = VmFlags::LOCKED | VmFlags::DONTDUMP;
    assert!(flags().contains(kept));
    assert_eq!(space.mmap_read_lock(mm).unwrap().state().locked_vm, 2);
    assert_eq!(space.munlock(mm, at, 2 * PAGE_SIZE), Ok(()));
    assert!(flags().contains(kept), "it stays locked");
    assert_eq!(
        space.mlock(mm, at, PAGE_SIZE, MlockFlags::empty()),
        Err(Errno::ENOMEM)
    );
    let exec = Prot::READ | Prot::EXEC;
    assert_eq!(
        space.mprotect(mm, at, PAGE_SIZE, exec, None),
        Err(Errno::EACCES)
    );
    let limit = |limits: &mut Limits| limits.memlock = 3 * PAGE_SIZE;
    space.set_limits(mm, limit).unwrap();
    assert_eq!(map(MapFlags::SHARED, RW), Err(Errno::EAGAIN));
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
    assert_eq!(
        space.prctl(mm, PrctlOption::SET_MEMORY_MERGE, [1, 0, 0, 0]),
        Ok(0)
    );
    assert!(marked(mm));
    let old = space.mmap_read_lock(mm).unwrap().state().layout;
    let executed = process(&machine);
    space
        .set_layout(executed, |layout| layout.inherit(&old))
        .unwrap();
    map_at(space, executed, BASE, 2);
    assert!(marked(executed));
    assert_eq!(
        space.prctl(mm, PrctlOption::SET_MEMORY_MERGE, [0, 0, 0, 0]),
        Ok(0)
    );
    assert!(!marked(mm));
}
