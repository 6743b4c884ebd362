//! Tests of threads with a private stack or descriptor table, including at the VMA limit.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Aside, separate_descriptors};
use crate::child::apart;

/// Creates mappings up to the process's limit; returns false if that is not possible.
fn use_up_mappings() -> bool {
    const PAGE: usize = 4096;
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let Ok(limit) = limit.trim().parse::<usize>() else {
        return false;
    };
    if limit > 1 << 20 {
        return false;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let len = 2 * limit * PAGE;
    // SAFETY: a new mapping that nothing else uses; every other page gets another protection.
    unsafe {
        let base = libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0);
        base != libc::MAP_FAILED
            && (0..limit).any(|n| {
                let page = base.wrapping_byte_add((2 * n + 1) * PAGE);
                libc::mprotect(page, PAGE, libc::PROT_READ) != 0
            })
    }
}

#[test]
fn no_thread_is_started_on_a_stack_without_access() {
    let code = apart(Duration::from_secs(60), || {
        if !use_up_mappings() {
            return 3;
        }
        let ran = AtomicU32::new(0);
        let entry = |ran: &AtomicU32| ran.store(1, Ordering::SeqCst);
        match Aside::start(entry, &ran) {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => 0,
            Err(_) => 1,
            Ok(_) => 2,
        }
    });
    match code {
        Some(3) => eprintln!("skipped: the limit of mappings is not within reach"),
        code => assert_eq!(code, Some(0)),
    }
}

#[test]
fn a_thread_with_descriptors_of_its_own_has_none_of_the_programs() {
    use std::os::unix::fs::MetadataExt;
    let file = tempfile::tempfile().expect("a file");
    let inode = file.metadata().expect("it is open").ino();
    let alone = std::thread::spawn(move || {
        if let Err(error) = separate_descriptors() {
            return eprintln!("skipped: {error}");
        }
        let own = std::fs::read_dir("/proc/thread-self/fd").expect("a list");
        // The table contains the three reserved descriptors and that of the directory being listed.
        assert_eq!(own.count(), 4);
    });
    alone.join().expect("all is as it should be");
    assert_eq!(file.metadata().expect("it still is").ino(), inode);
}
