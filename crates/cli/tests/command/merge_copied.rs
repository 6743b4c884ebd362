//! `vmarea merge --by copy`, as on kernels that cannot move pages.
//!
//! The tests check which memory is copied, which is not merged, and which is left unchanged. The
//! tests in `merge_running.rs` check, for copying and for moving, that writes are never lost and
//! that a killed merge can be finished.

use crate::support::heap::{Heap, may_merge};

/// Program with 16 four-page mappings that can become one.
///
/// In each mapping, three pages have been written to and one has only been read. The program obeys
/// commands and prints what it reads.
const PROGRAM: &str = r#"
parts, size = 16, 4 * page
def fill(p, i):
    ctypes.memset(p, i + 1, 3 * page)
    assert ctypes.string_at(p + 3 * page, page) == bytes(page)
area = make(parts, 4, fill)
def wrong():
    whole = lambda i: bytes([i + 1]) * (3 * page) + bytes(page)
    return sum(ctypes.string_at(area + i * size, size) != whole(i) for i in range(parts))
def present():
    with open("/proc/self/pagemap", "rb", 0) as pagemap:
        words = os.pread(pagemap.fileno(), parts * 4 * 8, area // page * 8)
    return sum(words[8 * n + 7] >> 6 != 0 for n in range(parts * 4))
for line in sys.stdin:
    word, answer = line.strip(), "done"
    if word == "present":
        answer = present()
    elif word == "wrong":
        answer = wrong()
    elif word == "fork":
        until, told = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(told)
            os.read(until, 1)
            os._exit(wrong())
    elif word == "wait":
        os.close(told)
        answer = os.waitpid(child, 0)[1]
    elif word == "ring":
        answer = libc.syscall(425, 4, ctypes.create_string_buffer(120))
    elif word == "out":
        answer = libc.madvise(ctypes.c_void_p(area), ctypes.c_size_t(parts * size), 21)
    print(answer, flush=True)
"#;

/// Returns the arguments of a merge by copying.
fn by_copy<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["--by", "copy"], more].concat()
}

#[test]
fn what_is_filled_is_copied_and_zeros_stay_away() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start(PROGRAM);
    assert_eq!(heap.ask("present"), "64");
    let dry = heap.said(&by_copy(&[]));
    assert_eq!((&dry["by"], &dry["after"]), (&"copy".into(), &1.into()));
    assert_eq!(heap.ask("present"), "64");
    let done = heap.said(&by_copy(&["--apply"]));
    assert_eq!((&done["before"], &done["after"]), (&16.into(), &1.into()));
    assert_eq!(done["copied_pages"], 48);
    assert_eq!(heap.ask("present"), "48");
    assert_eq!(heap.ask("wrong"), "0");
}

#[test]
fn what_is_shared_is_copied_within_the_budget_only() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start(PROGRAM);
    assert_eq!(heap.ask("fork"), "done");
    let done = heap.said(&by_copy(&["--apply"]));
    assert_eq!(
        (&done["after"], &done["copied_pages"]),
        (&16.into(), &0.into())
    );
    assert!(done["kept_apart"]["shared"].as_u64() > Some(0), "{done}");
    let done = heap.said(&by_copy(&["--apply", "--copy", "10"]));
    assert_eq!(done["copied_pages"].as_u64(), Some(9), "{done}");
    assert_eq!(done["after"], 14, "three parts have become one: {done}");
    let done = heap.said(&by_copy(&["--apply", "--copy", "1000"]));
    assert_eq!(done["after"], 1);
    assert_eq!(heap.ask("wrong"), "0");
    // The child still reads the old bytes.
    assert_eq!(heap.ask("wait"), "0");
}

#[test]
fn what_is_in_swap_is_copied() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start(PROGRAM);
    if heap.ask("out") != "0" {
        eprintln!("skipped: this kernel does not page out on request");
        return;
    }
    let done = heap.said(&by_copy(&["--apply"]));
    assert_eq!(done["after"], 1);
    assert_eq!(heap.ask("wrong"), "0");
}

#[test]
fn a_process_that_may_have_pinned_pages_is_left_alone() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start(PROGRAM);
    if heap.ask("ring").starts_with('-') {
        eprintln!("skipped: no io_uring here");
        return;
    }
    // The merge is refused before the process is stopped.
    let output = heap.merge_area(&by_copy(&["--apply"]));
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    assert_eq!((&done["after"], &done["pieces"]), (&16.into(), &0.into()));
    assert!(done["kept_apart"]["pinned"].as_u64() > Some(0), "{done}");
    assert_eq!(heap.ask("wrong"), "0");
}
