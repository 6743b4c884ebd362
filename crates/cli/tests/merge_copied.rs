//! `vmarea merge --by copy`, as on kernels that cannot move pages: what is copied, what stays away,
//! and what is left as it is.
//!
//! That writers lose nothing and that a killed merge is finished, is tested for both ways in
//! `merge_running.rs`.
#![forbid(unsafe_code)]

#[path = "support/leash.rs"]
mod leash;

use leash::Leashed;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, Output, Stdio};

/// Sixteen mappings of four pages that could be one, three pages of each filled and one only read;
/// does what it is told, and says what it sees.
const PROGRAM: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
page, parts, size = 4096, 16, 4 * 4096
area = libc.mmap(None, parts * size, 0, 0x22, -1, 0)
far = libc.mmap(None, 2 * parts * size, 0, 0x22, -1, 0)
for i in range(parts):
    p = libc.mmap(far + 2 * i * size, size, 3, 0x32, -1, 0)
    ctypes.memset(p, i + 1, 3 * page)
    assert ctypes.string_at(p + 3 * page, page) == bytes(page)
    assert libc.mremap(p, size, size, 3, area + i * size) == area + i * size
def wrong():
    whole = lambda i: bytes([i + 1]) * (3 * page) + bytes(page)
    return sum(ctypes.string_at(area + i * size, size) != whole(i) for i in range(parts))
def present():
    with open("/proc/self/pagemap", "rb", 0) as pagemap:
        words = os.pread(pagemap.fileno(), parts * 4 * 8, area // page * 8)
    return sum(words[8 * n + 7] >> 6 != 0 for n in range(parts * 4))
print("%x,%x" % (area, area + parts * size), flush=True)
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

struct Heap {
    child: Leashed,
    out: BufReader<ChildStdout>,
    range: String,
    journals: tempfile::TempDir,
}

impl Heap {
    fn start() -> Heap {
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Leashed::start(&mut command).expect("python3");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut range = String::new();
        out.read_line(&mut range).expect("a line");
        let journals = tempfile::tempdir().expect("a folder");
        Heap {
            child,
            out,
            range: range.trim().to_owned(),
            journals,
        }
    }

    fn ask(&mut self, word: &str) -> String {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{word}").expect("it reads");
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    /// What a merge of it says, which must be a good one.
    fn merge(&self, more: &[&str]) -> serde_json::Value {
        let output = self.try_merge(more);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON alone")
    }

    fn try_merge(&self, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmarea"));
        command.args(["merge", "-p", &self.child.id().to_string()]);
        command.args(["--range", &self.range, "--by", "copy", "--json", "-"]);
        command.args(["--max-pause", "1s", "--journal"]);
        command.arg(self.journals.path().join("journals"));
        leash::output(command.args(more)).expect("the binary was built")
    }
}

fn may_merge() -> bool {
    let may = vmarea_repair::can_repair_itself();
    may.inspect_err(|error| eprintln!("skipped: {error}"))
        .is_ok()
}

#[test]
fn what_is_filled_is_copied_and_zeros_stay_away() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start();
    assert_eq!(heap.ask("present"), "64");
    let dry = heap.merge(&[]);
    assert_eq!((&dry["by"], &dry["after"]), (&"copy".into(), &1.into()));
    assert_eq!(heap.ask("present"), "64");
    let done = heap.merge(&["--apply"]);
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
    let mut heap = Heap::start();
    assert_eq!(heap.ask("fork"), "done");
    let done = heap.merge(&["--apply"]);
    assert_eq!(
        (&done["after"], &done["copied_pages"]),
        (&16.into(), &0.into())
    );
    assert!(done["kept_apart"]["shared"].as_u64() > Some(0), "{done}");
    let done = heap.merge(&["--apply", "--copy", "10"]);
    assert_eq!(done["copied_pages"].as_u64(), Some(9), "{done}");
    assert_eq!(done["after"], 14, "three parts have become one: {done}");
    let done = heap.merge(&["--apply", "--copy", "1000"]);
    assert_eq!(done["after"], 1);
    assert_eq!(heap.ask("wrong"), "0");
    // The child sees what it saw.
    assert_eq!(heap.ask("wait"), "0");
}

#[test]
fn what_is_in_swap_is_copied() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start();
    if heap.ask("out") != "0" {
        eprintln!("skipped: this kernel does not page out on request");
        return;
    }
    let done = heap.merge(&["--apply"]);
    assert_eq!(done["after"], 1);
    assert_eq!(heap.ask("wrong"), "0");
}

#[test]
fn a_process_that_may_have_pinned_pages_is_left_alone() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start();
    if heap.ask("ring").starts_with('-') {
        eprintln!("skipped: no io_uring here");
        return;
    }
    // At once: nothing is stopped, nothing tried.
    let output = heap.try_merge(&["--apply"]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    assert_eq!((&done["after"], &done["pieces"]), (&16.into(), &0.into()));
    assert!(done["kept_apart"]["pinned"].as_u64() > Some(0), "{done}");
    assert_eq!(heap.ask("wrong"), "0");
}
