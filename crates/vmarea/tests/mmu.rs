//! Checks the translations in the processors' TLBs after every kind of page-table change.
//!
//! The software platform panics if a frame is freed, or written to by another process, while a
//! processor can still access it. These tests create such situations on purpose; the tests
//! `random_calls` and `pages` encounter them by chance.

use vmarea::HugePages;
use vmarea::System;
use vmarea::fault::Faulted;
use vmarea::mm::{Layout, Limits};
use vmarea::page::Pte;
use vmarea::policy::Policy;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::{File, FileId, FileKind, FrameId, MmId, PAGE_SIZE, PMD_SIZE};
use vmarea_soft_platform::{CPUS, Machine};

const BASE: u64 = 0x10_0000_0000;
const RW: Prot = Prot::READ.union(Prot::WRITE);

fn machine(policy: Policy) -> (Machine, MmId) {
    let system = System {
        swap: true,
        huge_pages: HugePages::Madvise,
        ..System::default()
    };
    let machine = Machine::new(policy, system);
    let layout = Layout {
        mmap_base: 0x7f00_0000_0000,
        ..Layout::default()
    };
    let mm = machine.space().mm_create(layout, Limits::default());
    (machine, mm.unwrap())
}

fn map(machine: &Machine, mm: MmId, addr: u64, len: u64) {
    let request = MmapRequest {
        addr,
        len,
        prot: RW,
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
        ..MmapRequest::default()
    };
    assert_eq!(machine.space().mmap(mm, &request), Ok(addr));
}

/// Writes a byte on the first processor, then reads it on every processor, which fills their TLBs.
fn write_everywhere(machine: &Machine, mm: MmId, addr: u64, byte: u8) {
    store(machine, mm, addr, byte);
    for cpu in 0..CPUS {
        assert_eq!(load_on(machine, cpu, mm, addr), byte);
    }
}

fn store(machine: &Machine, mm: MmId, addr: u64, byte: u8) {
    let stored = machine.store_on(0, mm, addr, &[byte]).unwrap();
    assert!(
        matches!(stored, Faulted::Done | Faulted::Spurious),
        "{stored:?}"
    );
}

fn load_on(machine: &Machine, cpu: usize, mm: MmId, addr: u64) -> u8 {
    let mut byte = [0];
    let loaded = machine.load_on(cpu, mm, addr, &mut byte).unwrap();
    assert!(
        matches!(loaded, Faulted::Done | Faulted::Spurious),
        "{loaded:?}"
    );
    byte[0]
}

fn frame(machine: &Machine, mm: MmId, addr: u64) -> FrameId {
    let r = machine.space().mmap_read_lock(mm).unwrap();
    r.pages().get(addr).frame().unwrap()
}

/// Threads of the parent read a page. Then the parent writes to the page, which leaves the old
/// frame to the child. The threads must not see what the child later writes to that frame.
#[test]
fn a_thread_never_reads_what_the_child_writes() {
    let (machine, parent) = machine(Policy::LINUX);
    map(&machine, parent, BASE, PAGE_SIZE);
    for round in 0..8 {
        write_everywhere(&machine, parent, BASE, round);
        let child = machine.space().fork(parent).unwrap();
        for cpu in 0..CPUS {
            assert_eq!(load_on(&machine, cpu, parent, BASE), round);
        }
        store(&machine, parent, BASE, round + 1);
        store(&machine, child, BASE, 0xcc);
        for cpu in 0..CPUS {
            assert_eq!(load_on(&machine, cpu, parent, BASE), round + 1);
            assert_eq!(load_on(&machine, cpu, child, BASE), 0xcc);
        }
        machine.validate().unwrap();
        machine.space().mm_exit(child).unwrap();
    }
}

/// After a fork, a write by the parent does not reach the child's page, even on a processor that
/// had a writable translation before the fork.
#[test]
fn a_fork_takes_write_permission_from_every_processor() {
    let (machine, parent) = machine(Policy::LINUX);
    map(&machine, parent, BASE, PAGE_SIZE);
    for cpu in 0..CPUS {
        machine.store_on(cpu, parent, BASE, &[1]).unwrap();
    }
    let child = machine.space().fork(parent).unwrap();
    for cpu in 0..CPUS {
        machine
            .store_on(cpu, parent, BASE, &[2 + cpu as u8])
            .unwrap();
        assert_eq!(load_on(&machine, cpu, child, BASE), 1);
    }
    machine.validate().unwrap();
}

/// After a call that unmaps, protects or moves a mapping, no processor has a stale translation.
#[test]
fn calls_leave_no_stale_translation() {
    let (machine, mm) = machine(Policy::VMAREA);
    let space = machine.space();
    let moved = BASE + 64 * PAGE_SIZE;
    let change: [&dyn Fn(); 6] = [
        &|| {
            space
                .madvise(mm, BASE, 4 * PAGE_SIZE, Advice::from_number(4))
                .unwrap()
        },
        &|| {
            space
                .mprotect(mm, BASE, 2 * PAGE_SIZE, Prot::READ, None)
                .unwrap()
        },
        &|| {
            space
                .mprotect(mm, BASE, 2 * PAGE_SIZE, Prot::empty(), None)
                .unwrap()
        },
        &|| {
            let request = MremapRequest {
                addr: BASE,
                old_len: 3 * PAGE_SIZE,
                new_len: 3 * PAGE_SIZE,
                flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
                new_addr: moved,
                ..MremapRequest::default()
            };
            space.mremap(mm, &request).map(drop).unwrap();
        },
        &|| {
            space
                .madvise(mm, BASE, PAGE_SIZE, Advice::from_number(102))
                .unwrap()
        },
        &|| space.munmap(mm, BASE, 4 * PAGE_SIZE).unwrap(),
    ];
    for (number, change) in change.iter().enumerate() {
        map(&machine, mm, BASE, 4 * PAGE_SIZE);
        for page in 0..4 {
            write_everywhere(&machine, mm, BASE + page * PAGE_SIZE, 1 + page as u8);
        }
        change();
        if let Err(wrong) = machine.validate() {
            panic!("change {number}: {wrong}");
        }
    }
}

/// Returns the number of page faults in an address space so far.
fn faults(machine: &Machine, mm: MmId) -> u64 {
    let counts = machine.space().fault_counts(mm);
    counts.unlocked + counts.fell_back().map(|(_, count)| count).sum::<u64>()
}

/// Stores to each of the pages without a fault.
fn store_without_fault(machine: &Machine, mm: MmId, start: u64, pages: u64) {
    let before = faults(machine, mm);
    for page in 0..pages {
        store(machine, mm, start + page * PAGE_SIZE, 0x77);
    }
    assert_eq!(faults(machine, mm), before, "faults in {pages} pages");
    machine.validate().unwrap();
}

/// A page that only one process maps is writable after `mprotect` without a fault, and a page that
/// a child shares is not.
#[test]
fn exclusive_pages_are_writable_again_after_mprotect() {
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    let protect = |prot| space.mprotect(mm, BASE, 4 * PAGE_SIZE, prot, None).unwrap();
    map(&machine, mm, BASE, 4 * PAGE_SIZE);
    for page in [0, 1, 3] {
        write_everywhere(&machine, mm, BASE + page * PAGE_SIZE, 1);
    }
    protect(Prot::READ);
    protect(RW);
    store_without_fault(&machine, mm, BASE, 2);
    store_without_fault(&machine, mm, BASE + 3 * PAGE_SIZE, 1);
    let child = space.fork(mm).unwrap();
    protect(Prot::READ);
    protect(RW);
    store(&machine, mm, BASE, 2);
    assert_eq!(load_on(&machine, 1, child, BASE), 0x77);
    machine.validate().unwrap();
}

/// Moved pages keep their translations and permissions, whether the old and the new range lie in
/// one page table or in several.
#[test]
fn moved_pages_are_accessible_without_a_fault() {
    let (machine, mm) = machine(Policy::LINUX);
    let len = 8 * PAGE_SIZE;
    let (mut from, crossing) = (BASE, PMD_SIZE - 3 * PAGE_SIZE);
    map(&machine, mm, from, len);
    for page in 0..8 {
        write_everywhere(&machine, mm, from + page * PAGE_SIZE, 1);
    }
    let places = [BASE + 9 * PAGE_SIZE, BASE + crossing, BASE + 7 * PMD_SIZE];
    for to in places
        .into_iter()
        .chain([BASE + 9 * PMD_SIZE + crossing, BASE])
    {
        let request = MremapRequest {
            addr: from,
            old_len: len,
            new_len: len,
            flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
            new_addr: to,
            ..MremapRequest::default()
        };
        assert_eq!(machine.space().mremap(mm, &request), Ok(to));
        machine.validate().unwrap();
        store_without_fault(&machine, mm, to, 8);
        from = to;
    }
}

/// A range with more pages than one gather batch is released in several batches.
#[test]
fn more_pages_than_a_batch_holds() {
    let (machine, mm) = machine(Policy::LINUX);
    map(&machine, mm, BASE, 1500 * PAGE_SIZE);
    for page in 0..1500 {
        machine.store(mm, BASE + page * PAGE_SIZE, &[1]).unwrap();
    }
    machine.space().munmap(mm, BASE, 1500 * PAGE_SIZE).unwrap();
    machine.validate().unwrap();
    assert_eq!(machine.memory().frames(), 0);
}

/// Swap, migration and KSM remove a page from every TLB before they copy or compare the page.
#[test]
fn background_work_keeps_writers_out() {
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    let other = BASE + PAGE_SIZE;
    map(&machine, mm, BASE, 2 * PAGE_SIZE);
    space
        .madvise(mm, BASE, 2 * PAGE_SIZE, Advice::from_number(12))
        .unwrap();
    for round in 1..5 {
        write_everywhere(&machine, mm, BASE, round);
        space.swap_out(mm, BASE).unwrap();
        machine.validate().unwrap();
        assert_eq!(load_on(&machine, 2, mm, BASE), round);

        write_everywhere(&machine, mm, BASE, round);
        let migrating = space.migrate_begin(frame(&machine, mm, BASE)).unwrap();
        machine.validate().unwrap();
        let stored = machine.store_on(1, mm, BASE, &[9]).unwrap();
        assert_eq!(stored, Faulted::Retry);
        space.migrate_end(migrating).unwrap();
        machine.validate().unwrap();

        write_everywhere(&machine, mm, BASE, round);
        write_everywhere(&machine, mm, other, round);
        space.ksm_merge((mm, BASE), (mm, other)).unwrap();
        machine.validate().unwrap();
        for cpu in 0..CPUS {
            machine.store_on(cpu, mm, BASE, &[40 + cpu as u8]).unwrap();
            assert_eq!(load_on(&machine, cpu, mm, other), round);
        }
    }
}

/// While pages are collapsed into a huge page, no write by another processor is lost.
#[test]
fn a_collapse_keeps_writers_out() {
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    map(&machine, mm, BASE, PMD_SIZE);
    write_everywhere(&machine, mm, BASE, 1);
    space
        .madvise(mm, BASE, PMD_SIZE, Advice::from_number(25))
        .unwrap();
    machine.validate().unwrap();
    let child = space.fork(mm).unwrap();
    store(&machine, mm, BASE, 2);
    for cpu in 0..CPUS {
        assert_eq!(load_on(&machine, cpu, mm, BASE), 2);
        assert_eq!(load_on(&machine, cpu, child, BASE), 1);
    }
    machine.validate().unwrap();
}

/// Reads map the huge zero page; after one processor has written, all see the written byte.
#[test]
fn the_huge_zero_page_is_replaced_everywhere() {
    let (machine, mm) = machine(Policy::LINUX);
    map(&machine, mm, BASE, PMD_SIZE);
    machine
        .space()
        .madvise(mm, BASE, PMD_SIZE, Advice::from_number(14))
        .unwrap();
    for cpu in 0..CPUS {
        assert_eq!(load_on(&machine, cpu, mm, BASE), 0);
    }
    assert_eq!(
        machine
            .space()
            .mmap_read_lock(mm)
            .unwrap()
            .pages()
            .get(BASE),
        Pte::Zero
    );
    store(&machine, mm, BASE, 7);
    for cpu in 0..CPUS {
        assert_eq!(load_on(&machine, cpu, mm, BASE), 7);
    }
    machine.validate().unwrap();
}

/// After a page is copied for a new owner, no processor writes to the old frame.
#[test]
fn a_page_with_a_new_owner_is_not_written_meanwhile() {
    let mut policy = Policy::VMAREA;
    policy.merging.copy_budget = 8;
    let (machine, mm) = machine(policy);
    let space = machine.space();
    // Two mappings with different anon_vmas, of which the second one's pages are shared.
    let second = BASE + 2 * PAGE_SIZE;
    map(&machine, mm, BASE, 2 * PAGE_SIZE);
    write_everywhere(&machine, mm, BASE, 1);
    map(&machine, mm, second + 16 * PAGE_SIZE, 2 * PAGE_SIZE);
    write_everywhere(&machine, mm, second + 16 * PAGE_SIZE, 2);
    let child = space.fork(mm).unwrap();
    let request = MremapRequest {
        addr: second + 16 * PAGE_SIZE,
        old_len: 2 * PAGE_SIZE,
        new_len: 2 * PAGE_SIZE,
        flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
        new_addr: second,
        ..MremapRequest::default()
    };
    space.mremap(mm, &request).unwrap();
    machine.validate().unwrap();
    assert_eq!(
        space.mmap_read_lock(mm).unwrap().vmas().count(),
        1,
        "merged"
    );
    for cpu in 0..CPUS {
        machine
            .store_on(cpu, mm, second, &[50 + cpu as u8])
            .unwrap();
        assert_eq!(load_on(&machine, cpu, child, second + 16 * PAGE_SIZE), 2);
    }
    machine.validate().unwrap();
}

/// After file pages have been cleaned, no processor can write to them without a fault.
#[test]
fn a_clean_page_of_a_file_faults_at_the_next_write() {
    let (machine, mm) = machine(Policy::LINUX);
    let space = machine.space();
    let file = File::read_write(FileId(1), 1, FileKind::Regular);
    let request = MmapRequest {
        addr: BASE,
        len: 3 * PAGE_SIZE,
        prot: RW,
        flags: MapFlags::SHARED | MapFlags::FIXED,
        file: Some(file),
        offset: 8 * PAGE_SIZE,
        ..MmapRequest::default()
    };
    space.mmap(mm, &request).unwrap();
    let child = space.fork(mm).unwrap();
    let at = |page| BASE + page * PAGE_SIZE;
    for page in 0..3 {
        for cpu in 0..CPUS {
            machine.store_on(cpu, mm, at(page), &[1]).unwrap();
            machine.store_on(cpu, child, at(page), &[1]).unwrap();
        }
    }
    let writable = |mm| {
        let r = space.mmap_read_lock(mm).unwrap();
        [0, 1, 2].map(|page| r.pages().get(at(page)) == Pte::File { writable: true })
    };
    // Pages 9 and 10 of the file; 20 pages after them are not mapped.
    space.clean_mapping(1, 9, 30);
    machine.validate().unwrap();
    assert_eq!(writable(mm), [true, false, false]);
    assert_eq!(writable(child), [true, false, false]);
    for cpu in 0..CPUS {
        let stored = |page| machine.store_on(cpu, mm, at(page), &[2]).unwrap();
        assert_eq!(stored(0), Faulted::Spurious, "no fault");
        let first = if cpu == 0 {
            Faulted::Done
        } else {
            Faulted::Spurious
        };
        assert_eq!(stored(1), first, "the first write faults");
    }
    assert_eq!(writable(mm), [true, true, false]);
    machine.validate().unwrap();
}
