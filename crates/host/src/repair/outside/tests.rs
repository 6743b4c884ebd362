//! Every call of a piece refused in turn, in a process whose bytes are known.
//!
//! The calls go through an injector that refuses some of them, as a kernel would that has just run out
//! of memory, or a page that has just been shared. The process is to run on with its bytes, and
//! nothing of ours is to be left in it.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use vmarea::values::{VmFlags, VmRange};

use super::copied::copy_piece;
use super::home::bring_home;
use super::stopped::{Done, run_piece};
use super::tools::{make_tools, take_out};
use super::trust;
use crate::maps;
use crate::repair::hold::Target;
use crate::repair::journal::{Journal, State, Tools};
use crate::repair::lent::Injector;
use crate::repair::look;
use crate::repair::plan::{PAGE, Piece};
use crate::repair::{RepairError, Way, can_repair_itself};
use crate::sys::calls::Call;

const PARTS: u64 = 6;
const REFUSALS: [i32; 6] = [
    libc::EBUSY,
    libc::EEXIST,
    libc::EAGAIN,
    libc::ENOENT,
    libc::ENOMEM,
    libc::EINTR,
];

/// Mappings of two pages that could be one: the second page of each third is empty. For each line it makes
/// them anew (`make`) or counts the pages that are not as they should be.
const PROGRAM: &str = r#"
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

struct Heap {
    child: Child,
    out: BufReader<ChildStdout>,
    area: VmRange,
}

impl Heap {
    fn start() -> Heap {
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

    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn ask(&mut self, word: &str) -> String {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{word}").expect("it reads");
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    fn piece(&self) -> Piece {
        let at = |n: u64| self.area.start + 2 * n * PAGE;
        Piece {
            range: self.area,
            parts: (0..PARTS).map(|n| VmRange::new(at(n), at(n + 1))).collect(),
            flags: VmFlags::READ | VmFlags::WRITE | VmFlags::MAYRWX | VmFlags::ACCOUNT,
            left: 0,
        }
    }

    /// Mappings of the area, and everything that is mapped or open elsewhere.
    fn seen(&self) -> (usize, Vec<(u64, u64)>, usize) {
        let all = maps::read(self.pid()).expect("its mappings");
        let is_inside = |m: &&maps::Mapping| m.start < self.area.end && self.area.start < m.end;
        let inside = all.iter().filter(is_inside).count();
        let outside = all.iter().filter(|m| !is_inside(m));
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("its files");
        (
            inside,
            outside.map(|m| (m.start, m.end)).collect(),
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

/// What is refused.
#[derive(Clone, Copy, Debug)]
enum Refused {
    /// One call, the so many-th.
    One(usize),
    /// One call is done by half, where it moves or copies.
    Half(usize),
    /// From the so many-th call on, each of the same kind as that.
    Kind(usize),
}

/// Makes calls as its thread does, but for those that it refuses.
struct Refusing<'a, I> {
    by: &'a I,
    refused: Refused,
    errno: i32,
    made: Cell<usize>,
    kind: Cell<Option<(i64, u64, u64)>>,
    hits: Cell<usize>,
}

impl<'a, I: Injector> Refusing<'a, I> {
    fn new(by: &'a I, refused: Refused, errno: i32) -> Self {
        Refusing {
            by,
            refused,
            errno,
            made: Cell::new(0),
            kind: Cell::new(None),
            hits: Cell::new(0),
        }
    }

    /// Whether the next call is refused.
    fn refuses(&self, call: &Call) -> bool {
        let now = self.made.replace(self.made.get() + 1);
        // The number of the call; of an ioctl the request, of others what they are for.
        let which = if call.nr == libc::SYS_ioctl {
            call.args[1]
        } else {
            call.args[2]
        };
        let kind = Some((call.nr, which, call.what));
        let hit = match self.refused {
            Refused::One(at) | Refused::Half(at) => now == at,
            Refused::Kind(at) => {
                if now == at {
                    self.kind.set(kind);
                }
                now >= at && self.kind.get() == kind
            }
        };
        self.hits.set(self.hits.get() + usize::from(hit));
        hit
    }

    /// Does half of a call that moves or copies; false for another. Half of the swap is that the kernel
    /// has taken away what was there before.
    fn half(&self, tools: &Tools, calls: &mut [Call], at: usize) -> Result<bool, RepairError> {
        let whole = calls[at];
        if whole.nr == libc::SYS_mremap {
            let gone = [whole.args[4], whole.args[1]];
            self.by
                .run(tools, &mut [Call::plain(0, libc::SYS_munmap, &gone)], 0)?;
            return Ok(false);
        }
        if whole.nr != libc::SYS_ioctl || whole.payload[2] < 2 * PAGE || whole.payload[3] == 0 {
            return Ok(false);
        }
        let half = whole.payload[2] / 2 & !(PAGE - 1);
        calls[at].payload[2] = half;
        self.by.run(tools, &mut calls[..=at], at)?;
        let done = calls[at].payload[4];
        calls[at] = whole;
        calls[at].payload[4] = done;
        Ok(true)
    }
}

impl<I: Injector> Injector for Refusing<'_, I> {
    fn pid(&self) -> i32 {
        self.by.pid()
    }

    fn memory(&self) -> &File {
        self.by.memory()
    }

    fn call(&self, call: &Call) -> Result<i64, RepairError> {
        if self.refuses(call) {
            return Ok(-i64::from(self.errno));
        }
        self.by.call(call)
    }

    fn settle(&self) -> Result<(), RepairError> {
        self.by.settle()
    }

    fn run(&self, tools: &Tools, calls: &mut [Call], first: usize) -> Result<usize, RepairError> {
        for at in first..calls.len() {
            if self.refuses(&calls[at]) {
                let halved = matches!(self.refused, Refused::Half(_));
                let errno = match halved && self.half(tools, calls, at)? {
                    true => libc::EAGAIN,
                    false => self.errno,
                };
                calls[at].result = -i64::from(errno);
                return Ok(at);
            }
            if self.by.run(tools, &mut calls[..=at], at)? == at {
                return Ok(at);
            }
        }
        Ok(calls.len())
    }
}

/// A process, and tools of ours in it.
struct Bench {
    heap: Heap,
    target: Target,
    journal: Journal,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let heap = Heap::start();
        let folder = tempfile::tempdir().expect("a folder");
        let start = look::start_time(heap.pid()).expect("it runs");
        let journal = Journal::create(folder.path(), heap.pid(), start).expect("a journal");
        let target = Target::open(heap.pid()).expect("it can be repaired");
        Bench {
            heap,
            target,
            journal,
            _folder: folder,
        }
    }

    fn tools(&mut self, way: Way) -> Tools {
        let held = self.target.hold(&mut self.journal).expect("it stops");
        let tools = make_tools(&self.target, &held, &mut self.journal, Some(way));
        held.release(&mut self.journal).expect("it runs on");
        tools.expect("tools")
    }

    fn take_out(&mut self, tools: Tools) {
        let held = self.target.hold(&mut self.journal).expect("it stops");
        take_out(&held, &mut self.journal, tools).expect("nothing stays");
        held.release(&mut self.journal).expect("it runs on");
    }

    /// Joins the area while `refused` is, in a process that then runs on and has its bytes. Returns
    /// whether anything was refused, and what came of the piece.
    fn join(&mut self, tools: &Tools, refused: Refused, errno: i32) -> (bool, bool) {
        assert_eq!(self.heap.ask("make"), "made");
        let piece = self.heap.piece();
        let held = self.target.hold(&mut self.journal).expect("it stops");
        let by = Refusing::new(&held, refused, errno);
        let done = match tools.way {
            Way::Move => run_piece(&by, tools, &piece, 0),
            Way::Copy => copy_piece(&by, tools, &piece, 0),
        };
        let what = format!("{:?} {refused:?} {errno}", tools.way);
        let joined = match (done, refused) {
            (Ok(Done { refused, .. }), _) => refused.is_none(),
            // It is for another run then, which the kernel refuses nothing.
            (
                Err(RepairError::LeftStopped { .. } | RepairError::LeftBehind { .. }),
                Refused::Kind(_),
            ) => {
                bring_home(&held, tools, piece.range).expect(&what);
                self.heap.seen().0 == 1
            }
            (Err(error), _) => panic!("{what}: {error}"),
        };
        let hit = by.hits.get() > 0;
        held.release(&mut self.journal).expect("it runs on");
        assert_eq!(self.heap.ask("look"), "0", "{what}: bytes");
        let mappings = self.heap.seen().0;
        if joined {
            assert_eq!(mappings, 1, "{what}");
        } else {
            assert_eq!(mappings, PARTS as usize, "{what}");
        }
        (hit, joined)
    }
}

fn may_repair() -> bool {
    let may = can_repair_itself();
    may.inspect_err(|error| eprintln!("skipped: {error}"))
        .is_ok()
}

fn refuse_all(way: Way, kinds: &[fn(usize) -> Refused], errnos: &[i32]) {
    if !may_repair() {
        return;
    }
    let mut bench = Bench::new();
    assert_eq!(bench.heap.ask("make"), "made");
    let (_, before, files) = bench.heap.seen();
    let tools = bench.tools(way);
    let mut joined = 0;
    let mut refusals = 0;
    for kind in kinds {
        for &errno in errnos {
            for at in 0.. {
                let (hit, done) = bench.join(&tools, kind(at), errno);
                joined += usize::from(hit && done);
                if !hit {
                    assert!(done, "nothing refused, nothing joined");
                    assert!(at > 10, "too few calls: {at}");
                    break;
                }
                refusals += 1;
            }
        }
    }
    assert!(joined > 0 && joined < refusals, "{joined} of {refusals}");
    bench.take_out(tools);
    let (_, after, files_after) = bench.heap.seen();
    assert_eq!((before, files), (after, files_after));
    println!("{way:?}: {refusals} refusals, joined all the same {joined}");
}

#[test]
fn each_call_refused_once_by_move() {
    refuse_all(Way::Move, &[Refused::One, Refused::Half], &REFUSALS);
}

#[test]
fn each_call_refused_once_by_copy() {
    refuse_all(Way::Copy, &[Refused::One, Refused::Half], &REFUSALS);
}

#[test]
fn each_kind_of_call_refused_for_good_by_move() {
    refuse_all(
        Way::Move,
        &[Refused::Kind],
        &[libc::EBUSY, libc::EEXIST, libc::ENOMEM],
    );
}

#[test]
fn each_kind_of_call_refused_for_good_by_copy() {
    refuse_all(
        Way::Copy,
        &[Refused::Kind],
        &[libc::EBUSY, libc::EEXIST, libc::ENOMEM],
    );
}

#[test]
fn tools_leave_nothing_behind_whatever_is_refused() {
    if !may_repair() {
        return;
    }
    let mut bench = Bench::new();
    let before = bench.heap.seen();
    for errno in REFUSALS {
        for at in 0.. {
            let held = bench.target.hold(&mut bench.journal).expect("it stops");
            let by = Refusing::new(&held, Refused::One(at), errno);
            let made = make_tools(&bench.target, &by, &mut bench.journal, None);
            if let Ok(tools) = made {
                take_out(&by, &mut bench.journal, tools).expect("nothing stays");
            }
            let hit = by.hits.get() > 0;
            held.release(&mut bench.journal).expect("it runs on");
            assert_eq!(bench.heap.seen(), before, "call {at}, errno {errno}");
            if !hit {
                break;
            }
        }
    }
}

#[test]
fn what_cannot_be_taken_out_is_named_and_taken_out_later() {
    if !may_repair() {
        return;
    }
    let mut bench = Bench::new();
    let before = bench.heap.seen();
    for at in 0..4 {
        let tools = bench.tools(Way::Move);
        let held = bench.target.hold(&mut bench.journal).expect("it stops");
        let by = Refusing::new(&held, Refused::Kind(at), libc::ENOMEM);
        let error = take_out(&by, &mut bench.journal, tools).expect_err("it is refused");
        assert!(matches!(error, RepairError::LeftBehind { .. }), "{error}");
        held.release(&mut bench.journal).expect("it runs on");
        assert_ne!(bench.heap.seen(), before);
        let left = bench.journal.read_again().tools.expect("what is left");
        bench.take_out(left);
        assert_eq!(bench.heap.seen(), before, "call {at}");
    }
}

/// What a journal says, changed by somebody who means us harm.
#[test]
fn what_a_journal_names_must_be_what_a_repair_has_put_there() {
    if !may_repair() {
        return;
    }
    let mut bench = Bench::new();
    bench.heap.ask("make");
    let tools = bench.tools(Way::Move);
    let held = bench.target.hold(&mut bench.journal).expect("it stops");
    let honest = State {
        stopping: Some(false),
        saved: Some(held.saved),
        tools: Some(tools),
        piece: Some(bench.heap.area),
        ..State::default()
    };
    let pid = bench.heap.pid();
    let check = |change: &dyn Fn(&mut State, &mut Tools)| {
        let (mut state, mut tools) = (honest.clone(), tools);
        change(&mut state, &mut tools);
        state.tools = state.tools.map(|_| tools);
        trust::check(pid, &mut state)
    };
    assert_eq!(check(&|_, _| ()), Ok(()));
    let area = bench.heap.area;
    let code = maps::read(pid).expect("its mappings");
    let code = code
        .iter()
        .find(|m| m.perms.exec && m.ino != 0)
        .expect("code");
    let at = |start, end| Some(VmRange::new(start, end));
    let forged: [&dyn Fn(&mut State, &mut Tools); 18] = [
        &|_, tools| tools.code = area.start,
        &|_, tools| tools.code = u64::MAX,
        &|_, tools| tools.code += 8,
        &|_, tools| tools.code = code.start,
        &|_, tools| tools.table = area.start,
        &|_, tools| tools.table = u64::MAX - 4095,
        &|_, tools| tools.room = VmRange::new(0, u64::MAX),
        &|_, tools| tools.room = VmRange::new(code.start, code.end),
        &|_, tools| tools.room.end = tools.room.start,
        &|_, tools| tools.room.end += PAGE,
        &|_, tools| tools.fd = 0,
        &|_, tools| tools.fd = i32::MAX,
        &|state, _| state.piece = at(0, 0),
        &|state, _| state.piece = at(PAGE, u64::MAX & !4095),
        &|state, _| state.piece = at(area.start + 1, area.end),
        &|state, tools| state.piece = at(tools.room.start, tools.room.start + PAGE),
        &|state, _| state.piece = at(code.start, code.end),
        &|state, _| state.guard = at(0, 1 << 40),
    ];
    for (n, forged) in forged.iter().enumerate() {
        assert!(check(*forged).is_err(), "number {n}");
    }
    // Registers with which the thread would run no code of the process.
    for pc in [0, area.start, u64::MAX] {
        let refused = check(&|state, _| {
            let nothing = Call::plain(0, 0, &[]);
            let saved = state.saved.as_mut().expect("registers");
            saved.registers = saved.registers.calling(pc, &nothing);
        });
        assert!(refused.is_err(), "{pc:#x}");
    }
    assert!(check(&|state, _| state.tools = None).is_err());
    held.release(&mut bench.journal).expect("it runs on");
    bench.take_out(tools);
}

#[test]
fn a_journal_of_another_user_decides_over_none_but_their_process() {
    let own = std::process::id().cast_signed();
    let user = rustix::process::geteuid().as_raw();
    assert_eq!(trust::may_decide(own, user), Ok(()));
    assert!(trust::may_decide(own, user + 1).is_err());
    assert!(trust::may_decide(i32::MAX, user + 1).is_err());
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "54321", "--clear-groups", "cat"])
        .stdin(Stdio::piped());
    let Ok(mut child) = command.stderr(Stdio::null()).spawn() else {
        return eprintln!("skipped: no setpriv");
    };
    let pid = child.id().cast_signed();
    let is_cat = || std::fs::read_to_string(format!("/proc/{pid}/comm"));
    while is_cat().is_ok_and(|name| name == "setpriv\n") {
        std::thread::yield_now();
    }
    if is_cat().is_ok_and(|name| name == "cat\n") && user == 0 {
        assert_eq!(trust::may_decide(pid, 54_321), Ok(()));
        assert!(trust::may_decide(pid, 54_320).is_err());
    }
    let _ = child.kill();
    let _ = child.wait();
}
