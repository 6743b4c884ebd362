//! The core's own memory: how little an empty machine needs, and what a machine gives back.
//!
//! With `--nocapture`, these tests print the figures of docs/embedding.md.

use vmarea::Space;
use vmarea::page::{Frame, Pte};
use vmarea::prelude::*;
use vmarea::types::PMD_SIZE;
use vmarea_test_support::failing_allocator::{FailingAllocator, allocated_bytes};

#[global_allocator]
static ALLOCATOR: FailingAllocator = FailingAllocator;

fn machine() -> Box<Space> {
    Box::new(Space::new(Policy::LINUX, System::default()))
}

fn process(space: &Space) -> Result<MmId, Errno> {
    let layout = Layout {
        mmap_base: 0x7fff_0000_0000,
        ..Layout::default()
    };
    space.mm_create(layout, Limits::default())
}

/// Maps `pages` pages with a VMA for each of them, and as many in one VMA, which are written.
fn grow(space: &Space, mm: MmId, pages: u64) -> Result<u64, Errno> {
    let apart = MmapRequest {
        prot: Prot::empty(),
        ..MmapRequest::anonymous(pages * PAGE_SIZE)
    };
    let at = space.mmap(mm, &apart)?;
    for page in (0..pages).step_by(2) {
        space.mprotect(mm, at + page * PAGE_SIZE, PAGE_SIZE, Prot::READ, None)?;
    }
    let at = space.mmap(mm, &MmapRequest::anonymous(pages * PAGE_SIZE))?;
    for page in 0..pages {
        space
            .fault(mm, at + page * PAGE_SIZE, Access::Write)
            .expect("a write to a mapped page");
    }
    Ok(at)
}

#[test]
fn an_empty_machine_is_small() -> Result<(), Errno> {
    let before = allocated_bytes();
    let space = machine();
    process(&space)?;
    let first = allocated_bytes() - before;
    println!("a machine with one empty mm: {first} bytes");
    assert!(first <= 16 << 10, "{first} bytes for the first mm");
    for _ in 0..1000 {
        process(&space)?;
    }
    let each = (allocated_bytes() - before - first) / 1000;
    println!("each further mm: {each} bytes");
    assert!(each <= 2 << 10, "{each} bytes for each further mm");
    Ok(())
}

/// Writes one page in each `step` bytes; returns the number of bytes for each page.
fn bytes_for_each(pages: u64, step: u64) -> Result<isize, Errno> {
    let before = allocated_bytes();
    let space = machine();
    let mm = process(&space)?;
    let at = space.mmap(mm, &MmapRequest::anonymous(pages * step))?;
    for page in 0..pages {
        space
            .fault(mm, at + page * step, Access::Write)
            .expect("a write to a mapped page");
    }
    Ok((allocated_bytes() - before) / pages as isize)
}

#[test]
fn pages_need_little() -> Result<(), Errno> {
    let dense = bytes_for_each(65_536, PAGE_SIZE)?;
    println!("each page that is written: {dense} bytes");
    // The header of a slot has its generation and its place in the free list.
    let (entry, slot) = (size_of::<Pte>(), size_of::<Frame>() + size_of::<u64>());
    println!("of these, its entry: {entry}, its frame: {slot}");
    assert!(
        dense <= (entry + slot) as isize,
        "{dense} bytes for each page"
    );
    let sparse = bytes_for_each(10_000, PMD_SIZE)?;
    println!("each 2 MiB with one written page: {sparse} bytes");
    assert!(sparse <= 1536, "{sparse} bytes for each 2 MiB");
    Ok(())
}

#[test]
fn a_process_that_has_gone_leaves_little() -> Result<(), Errno> {
    let before = allocated_bytes();
    let mut space = machine();
    let mm = process(&space)?;
    grow(&space, mm, 60_000)?;
    let peak = allocated_bytes() - before;
    space.mm_exit(mm)?;
    space.shrink();
    let left = allocated_bytes() - before;
    println!("left of {peak} bytes: {left}");
    assert!(left * 20 <= peak, "{left} of {peak} bytes are left");

    // What was given back is taken again, and stale ids stay stale.
    let again = process(&space)?;
    assert_eq!(space.mm_exit(mm), Err(Errno::ESRCH));
    grow(&space, again, 60_000)?;
    space.mm_exit(again)?;
    space.shrink();
    let twice = allocated_bytes() - before;
    assert!(twice <= left + (4 << 10), "{twice} bytes after {left}");
    Ok(())
}

/// Other processes keep what they use, and hold back only the pages in which they use something.
#[test]
fn a_process_that_stays_keeps_its_pages() -> Result<(), Errno> {
    let before = allocated_bytes();
    let mut space = machine();
    let (large, small) = (process(&space)?, process(&space)?);
    grow(&space, large, 10_000)?;
    let at = grow(&space, small, 10)?;
    grow(&space, large, 10_000)?;
    let peak = allocated_bytes() - before;
    let stays: Vec<VmaView> = space.maps(small).collect();
    let frame = |addr| space.with_mapped(small, addr, |page| page.entry);
    let frames = [frame(at)?, frame(at + 9 * PAGE_SIZE)?];
    space.mm_exit(large)?;
    space.shrink();

    let left = allocated_bytes() - before;
    assert!(left * 20 <= peak, "{left} of {peak} bytes are left");
    assert!(space.maps(small).eq(stays), "the VMAs have changed");
    let frame = |addr| space.with_mapped(small, addr, |page| page.entry);
    assert_eq!([frame(at)?, frame(at + 9 * PAGE_SIZE)?], frames);
    assert_eq!(space.frames_in_use(), 10);
    grow(&space, small, 1000)?;
    space.mm_exit(small)
}

#[test]
fn fork_exec_and_exit_in_a_cycle_do_not_grow() -> Result<(), Errno> {
    let space = machine();
    let shell = process(&space)?;
    grow(&space, shell, 300)?;
    let cycle = || {
        let child = space.fork(shell)?;
        let program = process(&space)?;
        space.mm_exit(child)?;
        let at = grow(&space, program, 300)?;
        let thread = space.fork(program)?;
        let _ = space.fault(thread, at, Access::Write);
        space.mm_exit(program)?;
        space.mm_exit(thread)
    };
    for _ in 0..3 {
        cycle()?;
    }
    let before = allocated_bytes();
    for _ in 0..50 {
        cycle()?;
    }
    let after = allocated_bytes();
    assert!(after <= before, "{before} bytes became {after}");
    Ok(())
}
