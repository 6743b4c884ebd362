//! Tests in which each call for a piece fails in turn.
//!
//! The calls go through an injector that makes some of them fail, as if the kernel had run out of
//! memory or a page had just become shared. The process must keep its known memory contents, and no
//! part of the repair may remain in it.

use std::cell::Cell;
use std::fs::File;
use std::io;

use super::agent::{make_agent, take_out};
use super::by_copy::copy_piece;
use super::by_move::run_piece;
use super::executor::take_back;
use super::injector::{Injector, StoppedProcess};
use super::move_back::move_back;
use super::test_process::{Bench, PARTS, may_repair, while_it_stands};
use crate::driver::Done;
use crate::journal::Agent;
use crate::piece::{self, Room, Watch};
use crate::plan::{PAGE, Piece};
use crate::{RepairError, Way};
use vmarea_linux_sys::calls::Call;
use vmarea_merge::types::VmFlags;
use vmarea_process::maps;

const REFUSALS: [i32; 6] = [
    libc::EBUSY,
    libc::EEXIST,
    libc::EAGAIN,
    libc::ENOENT,
    libc::ENOMEM,
    libc::EINTR,
];

/// Which calls are refused. A call is identified by its position in the order of execution, from 0.
#[derive(Clone, Copy, Debug)]
enum Refused {
    /// The call at this position.
    One(usize),
    /// The call at this position does half of its work before it fails. A move or copy handles only
    /// half of its pages, and the swap only unmaps the old mappings. Any other call does nothing.
    Half(usize),
    /// The call at this position, and all later calls of the same kind.
    Kind(usize),
    /// No call is refused, but after the call at this position the process cannot be accessed for a
    /// moment.
    Broken(usize),
}

/// Injector that forwards calls to another injector, except for the calls that it refuses.
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

    /// Returns true if the next call is refused.
    fn refuses(&self, call: &Call) -> bool {
        let now = self.made.replace(self.made.get() + 1);
        // The kind of an ioctl is its request; the kind of other calls is their purpose.
        let which = if call.nr == libc::SYS_ioctl {
            call.args[1]
        } else {
            call.args[2]
        };
        let kind = Some((call.nr, which, call.what));
        let hit = match self.refused {
            Refused::One(at) | Refused::Half(at) | Refused::Broken(at) => now == at,
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

    fn broken(&self) -> RepairError {
        RepairError::System {
            what: "the table of calls",
            cause: io::Error::from_raw_os_error(self.errno),
        }
    }

    /// Does half of a call that moves or copies pages, and returns true. For the swap, only unmaps
    /// the old mappings; for any other call, does nothing. Returns false in these two cases.
    fn half(&self, agent: &Agent, calls: &mut [Call], at: usize) -> Result<bool, RepairError> {
        let whole = calls[at];
        if whole.nr == libc::SYS_mremap {
            let gone = [whole.args[4], whole.args[1]];
            self.by
                .run(agent, &mut [Call::plain(0, libc::SYS_munmap, &gone)], 0)?;
            return Ok(false);
        }
        if whole.nr != libc::SYS_ioctl || whole.payload[2] < 2 * PAGE || whole.payload[3] == 0 {
            return Ok(false);
        }
        let half = (whole.payload[2] / 2) & !(PAGE - 1);
        calls[at].payload[2] = half;
        self.by.run(agent, &mut calls[..=at], at)?;
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

    fn tid(&self) -> i32 {
        self.by.tid()
    }

    fn memory(&self) -> &File {
        self.by.memory()
    }

    fn call(&self, call: &Call) -> Result<i64, RepairError> {
        if self.refuses(call) {
            return match self.refused {
                Refused::Broken(_) => self.by.call(call).and(Err(self.broken())),
                _ => Ok(-i64::from(self.errno)),
            };
        }
        self.by.call(call)
    }

    fn settle(&self) -> Result<(), RepairError> {
        self.by.settle()
    }

    fn run(&self, agent: &Agent, calls: &mut [Call], first: usize) -> Result<usize, RepairError> {
        for at in first..calls.len() {
            if self.refuses(&calls[at]) {
                if let Refused::Broken(_) = self.refused {
                    self.by.run(agent, &mut calls[..=at], at)?;
                    return Err(self.broken());
                }
                let halved = matches!(self.refused, Refused::Half(_));
                let errno = match halved && self.half(agent, calls, at)? {
                    true => libc::EAGAIN,
                    false => self.errno,
                };
                calls[at].result = -i64::from(errno);
                return Ok(at);
            }
            if self.by.run(agent, &mut calls[..=at], at)? == at {
                return Ok(at);
            }
        }
        Ok(calls.len())
    }
}

impl Bench {
    /// Joins the area while calls are refused, and checks the contents of the resumed process.
    ///
    /// Returns two flags: whether a call was refused, and whether the piece was joined.
    fn join(&mut self, agent: &Agent, refused: Refused, errno: i32) -> (bool, bool) {
        assert_eq!(self.heap.ask("make"), "made");
        let piece = self.heap.piece();
        let held = self.target.stop(&mut self.journal).expect("it stops");
        let by = Refusing::new(&held, refused, errno);
        let done = match agent.way {
            Way::Move => run_piece(&by, agent, &piece, 0),
            Way::Copy => copy_piece(&by, agent, &piece, 0),
        };
        let done = match (done, refused) {
            (Err(error), Refused::Broken(_)) => take_back(&held, agent, &piece, error),
            (done, _) => done,
        };
        let what = format!("{:?} {refused:?} {errno}", agent.way);
        let joined = match (done, refused) {
            (Ok(Done { refused, .. }), _) => refused.is_none(),
            // Another run completes the piece, without refusals.
            (
                Err(RepairError::LeftStopped { .. } | RepairError::LeftBehind { .. }),
                Refused::Kind(_),
            ) => {
                move_back(&held, agent, piece.range).expect(&what);
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

fn refuse_all(way: Way, kinds: &[fn(usize) -> Refused], errnos: &[i32]) {
    if !may_repair() {
        return;
    }
    let mut bench = Bench::new();
    assert_eq!(bench.heap.ask("make"), "made");
    let (_, before, files) = bench.heap.seen();
    let agent = bench.agent(way);
    let mut joined = 0;
    let mut refusals = 0;
    for kind in kinds {
        for &errno in errnos {
            for at in 0.. {
                let (hit, done) = bench.join(&agent, kind(at), errno);
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
    bench.take_out(agent);
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
fn a_piece_that_was_joined_before_an_error_counts_as_joined() {
    for way in [Way::Move, Way::Copy] {
        refuse_all(way, &[Refused::Broken], &[libc::EIO]);
    }
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

/// The last call for a piece releases the scratch area. If that call fails repeatedly, the piece is
/// joined anyway, and the error names the parts that remain in the process.
#[test]
fn a_room_that_cannot_be_given_back_is_named() {
    if !may_repair() {
        return;
    }
    for way in [Way::Move, Way::Copy] {
        let mut bench = Bench::new();
        let agent = bench.agent(way);
        let join = |by: &Refusing<'_, StoppedProcess<'_>>, piece: &Piece| match way {
            Way::Move => run_piece(by, &agent, piece, 0),
            Way::Copy => copy_piece(by, &agent, piece, 0),
        };
        bench.heap.ask("make");
        let piece = bench.heap.piece();
        let held = bench.target.stop(&mut bench.journal).expect("it stops");
        let none = Refusing::new(&held, Refused::One(usize::MAX), 0);
        join(&none, &piece).expect("nothing is refused");
        let last = none.made.get() - 1;
        held.release(&mut bench.journal).expect("it runs on");

        bench.heap.ask("make");
        let held = bench.target.stop(&mut bench.journal).expect("it stops");
        let by = Refusing::new(&held, Refused::Kind(last), libc::ENOMEM);
        let error = join(&by, &piece).expect_err("it is refused");
        assert!(
            matches!(error, RepairError::LeftBehind { .. }),
            "{way:?}: {error}"
        );
        assert!(move_back(&held, &agent, piece.range).is_ok());
        held.release(&mut bench.journal).expect("it runs on");
        assert_eq!(bench.heap.ask("look"), "0");
        assert_eq!(bench.heap.seen().0, 1, "{way:?}");
        bench.take_out(agent);
    }
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
            let held = bench.target.stop(&mut bench.journal).expect("it stops");
            let by = Refusing::new(&held, Refused::One(at), errno);
            let made = make_agent(&bench.target, &by, &mut bench.journal, None);
            if let Ok(agent) = made {
                take_out(&by, &mut bench.journal, agent).expect("nothing stays");
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
        let agent = bench.agent(Way::Move);
        let held = bench.target.stop(&mut bench.journal).expect("it stops");
        let by = Refusing::new(&held, Refused::Kind(at), libc::ENOMEM);
        let error = take_out(&by, &mut bench.journal, agent).expect_err("it is refused");
        assert!(matches!(error, RepairError::LeftBehind { .. }), "{error}");
        held.release(&mut bench.journal).expect("it runs on");
        assert_ne!(bench.heap.seen(), before);
        let left = bench.journal.read_again().agent.expect("what is left");
        bench.take_out(left);
        assert_eq!(bench.heap.seen(), before, "call {at}");
    }
}

/// Tests that a piece is mapped again if the swap has unmapped it and then keeps failing.
#[test]
fn a_piece_that_is_mapped_anew_keeps_its_flags() {
    while_it_stands(|heap, held, agent| {
        let piece = Piece {
            flags: heap.piece().flags | VmFlags::DONTCOPY | VmFlags::WIPEONFORK,
            ..heap.piece()
        };
        let (start, len) = (piece.range.start, piece.range.len_bytes());
        let mut calls = Vec::new();
        piece::out(
            &piece,
            Room { range: agent.room },
            Watch::Stopped(agent.fd),
            &mut calls,
        );
        calls.push(Call::plain(0, libc::SYS_munmap, &[start, len]));
        let made = held.run(&agent, &mut calls, 0).expect("it stands");
        assert_eq!(made, calls.len());
        // The first call is the swap.
        let by = Refusing::new(held, Refused::Kind(0), libc::ENOMEM);
        assert!(move_back(&by, &agent, piece.range).expect("all pages are back"));
        let text = std::fs::read(format!("/proc/{}/smaps", heap.pid())).expect("smaps");
        let entries = maps::parse_smaps(&text).expect("mappings");
        let entry = entries.iter().find(|entry| entry.mapping.start == start);
        let entry = entry.expect("the piece");
        assert!(entry.has(b"dc") && entry.has(b"wf"), "{entry:?}");
    });
}
