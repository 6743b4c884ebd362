//! A process for repair tests, whose memory contents are known.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use vmarea_merge::types::{VmFlags, VmRange};

use super::session::Session;
use super::target::Target;
use crate::plan::{PAGE, Piece};
use crate::{Options, Way, can_repair_itself};
use vmarea_process::maps;

pub(super) const PARTS: u64 = 6;
/// Program that creates mappings of two pages each, all of which could be one mapping.
///
/// The second page of every third mapping is empty. For each input line the program creates the
/// mappings again (`make`) or counts the mappings with wrong contents.
pub(super) const PROGRAM: &str = r#"
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
page, parts, part = 4096, 6, 8192
area = libc.mmap(None, (parts + 2) * part, 0, 0x22, -1, 0) + part
far = libc.mmap(None, 2 * parts * part, 0, 0x22, -1, 0)
whole = lambda i: bytes([i + 1]) * page + bytes([(i + 1) * (i % 3 > 0)]) * page
print(area, flush=True)
for line in sys.stdin:
    if line.strip() == "make":
        for i in range(parts):
            p = libc.mmap(far + 2 * i * part, part, 3, 0x32, -1, 0)
            ctypes.memset(p, i + 1, part if i % 3 else page)
            assert libc.mremap(p, part, part, 3, area + i * part) == area + i * part
        print("made", flush=True)
    else:
        print(sum(ctypes.string_at(area + i * part, part) != whole(i) for i in range(parts)), flush=True)
"#;

pub(super) struct Heap {
    child: Child,
    out: BufReader<ChildStdout>,
    pub(super) area: VmRange,
}

impl Heap {
    pub(super) fn start() -> Heap {
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let start = line.trim().parse().expect("an address");
        let area = VmRange::new(start, start + 2 * PARTS * PAGE);
        Heap { child, out, area }
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(super) fn ask(&mut self, word: &str) -> String {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{word}").expect("it reads");
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    pub(super) fn piece(&self) -> Piece {
        let at = |n: u64| self.area.start + 2 * n * PAGE;
        Piece {
            range: self.area,
            parts: (0..PARTS).map(|n| VmRange::new(at(n), at(n + 1))).collect(),
            flags: VmFlags::READ | VmFlags::WRITE | VmFlags::MAYRWX | VmFlags::ACCOUNT,
            left: 0,
            in_place: false,
        }
    }

    /// Returns the number of mappings in the area, the ranges of the others, and the number of open
    /// files.
    pub(super) fn seen(&self) -> (usize, Vec<(u64, u64)>, usize) {
        let all = maps::read(self.pid()).expect("its mappings");
        let is_inside = |m: &&maps::MapsEntry| m.start < self.area.end && self.area.start < m.end;
        let inside = all.iter().filter(is_inside).count();
        let remote = all.iter().filter(|m| !is_inside(m));
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("its files");
        (
            inside,
            remote.map(|m| (m.start, m.end)).collect(),
            files.count(),
        )
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Begins the repair of a test process.
pub(super) fn begin(heap: &Heap, way: Way) -> Session {
    let target = Target::open(heap.pid()).expect("a process");
    Session::begin(target, &Options::default(), way).expect("it can be repaired")
}

pub(super) fn may_repair() -> bool {
    let may = can_repair_itself();
    may.inspect_err(|error| eprintln!("skipped: {error}"))
        .is_ok()
}
