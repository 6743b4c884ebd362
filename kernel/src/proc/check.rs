//! A check that no frame is leaked and that the core's structures are consistent.
//!
//! Programs read the result from `/proc/vmarea/check`. Every frame that is not free must have an
//! owner: the core, a file's page cache or a page table. The frames that have no such owner when
//! the first program starts belong to the kernel; their number must not change afterwards.

use crate::files::{Inode, inode};
use crate::memory::file_pages::FilePages;
use crate::memory::frames::{free_frames, total_frames};
use crate::memory::{frame_numbers, mapped, mmu};
use crate::process;
use crate::scheduler;
use crate::space::{self, space};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of times that the check waits for running threads to sleep.
const PATIENCE: u32 = 2000;

/// Number of frames that the kernel itself uses.
static OWN: AtomicUsize = AtomicUsize::new(0);

/// Numbers of frames that are not free, by owner.
struct Census {
    core: usize,
    files: usize,
    tables: usize,
    others: usize,
}

/// Counts the frames that the kernel itself uses; called before the first program starts.
pub fn start() {
    // ORDERING: Relaxed; no other thread runs.
    OWN.store(count().others, Ordering::Relaxed);
}

/// Returns the result of the check as text; the first line is `ok` or says what is wrong.
///
/// Waits until all other threads sleep, because frames and structures change while they run.
pub fn report() -> String {
    let waits = (0..PATIENCE).take_while(|_| !process::others_sleep());
    waits.for_each(|_| scheduler::pause());
    if !process::others_sleep() {
        return "busy: other threads run\n".into();
    }
    let census = count();
    // ORDERING: Relaxed; does not change any more.
    let lost = census.others as isize - OWN.load(Ordering::Relaxed) as isize;
    let verdict = match space().validate_all() {
        Err(violation) => format!("violation: {}", violation.0),
        Ok(()) if lost != 0 => format!("lost: {lost} frames"),
        Ok(()) => "ok".into(),
    };
    let Census {
        core,
        files,
        tables,
        ..
    } = census;
    format!(
        "{verdict}\n{} of {} frames free, {core} of processes, {files} of files, {tables} of tables\n",
        free_frames(),
        total_frames(),
    )
}

fn count() -> Census {
    let used = total_frames() - free_frames();
    let core = frame_numbers::frames_in_use();
    let tables = space::all().into_iter().map(mmu::count_table_frames).sum();
    let files = pages_of_files();
    Census {
        core,
        files,
        tables,
        others: used.wrapping_sub(core + files + tables),
    }
}

/// Returns the total number of pages in all files: those in the tree, open ones and mapped ones.
fn pages_of_files() -> usize {
    let mut files = BTreeMap::new();
    add_below(&inode::root(), &mut files);
    for file in process::all().flat_map(|p| p.files.inodes()) {
        add(&file, &mut files);
    }
    let vmas = space::all().into_iter().flat_map(|mm| space().maps(mm));
    for file in vmas.filter_map(|vma| vma.body.file) {
        files.extend(mapped::file(file.inode).map(|pages| (file.inode, pages)));
    }
    files.values().map(|file| file.pages() as usize).sum()
}

fn add(file: &Inode, files: &mut BTreeMap<u64, Arc<FilePages>>) {
    let pages = file.file_pages().map(Arc::clone);
    files.extend(pages.map(|pages| (file.number, pages)));
}

fn add_below(directory: &Inode, files: &mut BTreeMap<u64, Arc<FilePages>>) {
    for (_, child) in directory.children() {
        add_below(&child, files);
        add(&child, files);
    }
}
