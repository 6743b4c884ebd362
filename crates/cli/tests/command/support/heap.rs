//! A target for merges: a program that has mergeable mappings, obeys commands and checks its
//! memory.

use super::leash::{self, Leashed};
use super::target::left_by_merges;
use super::{VMAREA, text};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, Output, Stdio};

/// `make(parts, pages, fill)` creates `parts` adjacent mappings of `pages` pages each, calls
/// `fill(address, number)` for each mapping, prints their range, and returns the first address.
const SETUP: &str = r#"
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
page = 4096
def make(parts, pages, fill):
    size = pages * page
    area = libc.mmap(None, parts * size, 0, 0x22, -1, 0)
    far = libc.mmap(None, 2 * parts * size, 0, 0x22, -1, 0)
    for i in range(parts):
        p = libc.mmap(far + 2 * i * size, size, 3, 0x32, -1, 0)
        fill(p, i)
        assert libc.mremap(p, size, size, 3, area + i * size) == area + i * size
    print("%x,%x" % (area, area + parts * size), flush=True)
    return area
"#;

/// Returns the Python command that runs a program; the program can use `make`.
pub fn python(program: &str) -> [String; 3] {
    ["python3", "-c", &format!("{SETUP}{program}")].map(str::to_owned)
}

/// A target program.
pub struct Heap {
    pub child: Leashed,
    out: BufReader<ChildStdout>,
    /// Range of the program's mappings, in the form of `--range`; empty if the program did not
    /// start.
    pub range: String,
}

impl Heap {
    pub fn start(program: &str) -> Heap {
        let [python, option, program] = python(program);
        Heap::start_as(Command::new(python).args([option, program]))
    }

    pub fn start_as(command: &mut Command) -> Heap {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Leashed::start(command).expect("a program");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut range = String::new();
        out.read_line(&mut range).expect("a line");
        Heap {
            child,
            out,
            range: range.trim().to_owned(),
        }
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    pub fn tell(&mut self, word: &str) {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{word}").expect("it reads");
    }

    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    pub fn ask(&mut self, word: &str) -> String {
        self.tell(word);
        self.hear()
    }

    pub fn mappings(&self) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid()));
        maps.expect("its list").lines().count()
    }

    /// Returns a `vmarea merge` command for the program, with the additional arguments `more`.
    pub fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(VMAREA);
        command.args(self.arguments(more));
        command
    }

    /// Returns the arguments of [`command`](Self::command).
    pub fn arguments(&self, more: &[&str]) -> Vec<String> {
        let pid = self.pid();
        let fixed = ["merge", "-p", &pid];
        let all = fixed.iter().chain(more);
        all.map(|&argument| argument.to_owned()).collect()
    }

    pub fn merge(&self, more: &[&str]) -> Output {
        leash::output(&mut self.command(more)).expect("the binary was built")
    }

    /// Merges only the mappings in [`range`](Self::range), and makes the command print its result
    /// as JSON.
    pub fn merge_area(&self, more: &[&str]) -> Output {
        // Long pauses are permitted, because the machine may be busy.
        let fixed = ["--range", &self.range, "--max-pause", "1s", "--json"];
        self.merge(&[&fixed[..], more].concat())
    }

    /// Like [`merge_area`](Self::merge_area), but the merge must succeed. Returns the JSON.
    pub fn said(&self, more: &[&str]) -> serde_json::Value {
        let output = self.merge_area(more);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON alone")
    }

    /// Starts a merge that maps its scratch area and waits `seconds` before the first piece.
    ///
    /// Returns as soon as the merge is waiting.
    pub fn merge_slowly(&self, seconds: u32, more: &[&str]) -> Leashed {
        let mut strace = Command::new("strace");
        // The tracing process tells its parent how far it is before each piece.
        let delay = format!("inject=sendto:delay_enter={seconds}000000:when=1");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=sendto"]);
        strace.args(["-e", &delay, VMAREA]);
        let fixed = ["--apply", "--range", &self.range, "--max-pause", "1s"];
        strace.args(self.arguments(&[&fixed[..], more].concat()));
        strace.stdout(Stdio::piped()).stderr(Stdio::piped());
        let merge = Leashed::start(&mut strace).expect("strace");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while left_by_merges(&self.pid()) == 0 && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // The first stops measure how long a stop takes.
        std::thread::sleep(std::time::Duration::from_millis(500));
        merge
    }
}

/// Returns true if this machine permits merging a process; otherwise prints the reason.
pub fn may_merge() -> bool {
    let may = vmarea_repair::can_repair_itself();
    may.inspect_err(|error| eprintln!("skipped: {error}"))
        .is_ok()
}

/// Returns the only line on standard error.
pub fn complaint(output: &Output) -> String {
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "not one line: {said}");
    said
}
