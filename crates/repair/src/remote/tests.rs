//! Tests in which each call of the agent fails in turn, and in which the tracer is killed at each.
//!
//! The agent is traced call by call, and some of its calls are replaced by a refusal, as if the kernel
//! had run out of memory or a page had just become shared. The process must keep its known memory
//! contents, and nothing of the repair may remain in it.

use std::ops::ControlFlow;

use vmarea_linux_sys::inject;
use vmarea_linux_sys::own_session;
use vmarea_linux_sys::ptrace::{self, SyscallStop};

use super::executor::join_stopped;
use super::session::{Session, sweep};
use super::target::Target;
use super::test_process::{Heap, PARTS, begin, may_repair};
use crate::driver::Done;
use crate::{RepairError, Way};

const REFUSALS: [i32; 6] = [
    libc::EBUSY,
    libc::EEXIST,
    libc::EAGAIN,
    libc::ENOENT,
    libc::ENOMEM,
    libc::EINTR,
];

/// Which calls of the agent are refused. A call is identified by its position, from 0.
#[derive(Clone, Copy, Debug)]
enum Refused {
    /// The call at this position.
    One(usize),
    /// The call at this position, and all later calls of the same kind.
    Kind(usize),
}

/// Refuses calls of the agent with an errno.
struct Refusing {
    refused: Refused,
    errno: i32,
    made: usize,
    kind: Option<(u64, u64)>,
    hits: usize,
}

impl Refusing {
    fn new(refused: Refused, errno: i32) -> Refusing {
        Refusing {
            refused,
            errno,
            made: 0,
            kind: None,
            hits: 0,
        }
    }

    /// Looks at a thread that is stopped at a system call.
    fn at_call(&mut self, tid: i32) {
        let Ok((_, SyscallStop::Entry { nr, args })) = ptrace::syscall_stop(tid) else {
            return;
        };
        // The agent must be able to end, and no filter forbids a program to read.
        if [libc::SYS_exit, libc::SYS_read].contains(&nr.cast_signed()) {
            return;
        }
        let request = if nr.cast_signed() == libc::SYS_ioctl {
            args[1]
        } else {
            0
        };
        let (now, kind) = (self.made, Some((nr, request)));
        self.made += 1;
        let hit = match self.refused {
            Refused::One(at) => now == at,
            Refused::Kind(at) => {
                if now == at {
                    self.kind = kind;
                }
                now >= at && self.kind == kind
            }
        };
        if hit {
            self.hits += 1;
            let registers = inject::registers(tid).expect("it is stopped");
            let refused = registers.without_call(-i64::from(self.errno));
            inject::set_registers(tid, &refused).expect("it is stopped");
        }
    }
}

/// Joins the whole area of a test process while calls are refused. Returns whether one was, and the
/// result.
fn join(heap: &Heap, session: &mut Session, by: &mut Refusing) -> Result<Done, RepairError> {
    let piece = heap.piece();
    join_stopped(session, &piece, 0, Some(&mut |tid| by.at_call(tid)))
}

fn refuse_all(way: Way, kind: fn(usize) -> Refused, errnos: &[i32]) {
    if !may_repair() {
        return;
    }
    let mut heap = Heap::start();
    assert_eq!(heap.ask("make"), "made");
    let before = heap.seen();
    let mut session = begin(&heap, way);
    let (mut refusals, mut joined) = (0, 0);
    for &errno in errnos {
        for at in 0.. {
            assert_eq!(heap.ask("make"), "made");
            let mut by = Refusing::new(kind(at), errno);
            let done = join(&heap, &mut session, &mut by);
            let what = format!("{way:?} {:?} {errno}: {done:?}", by.refused);
            assert_eq!(heap.ask("look"), "0", "{what}: bytes");
            let mappings = heap.seen().0;
            // An extent whose copy is refused goes back as a mapping, and may be half of a part.
            let most = if way == Way::Copy { 2 * PARTS } else { PARTS };
            assert!(
                (1..=most as usize).contains(&mappings),
                "{what}: {mappings}"
            );
            if by.hits == 0 {
                assert_eq!(mappings, 1, "{what}: nothing refused, nothing joined");
                assert!(at > 20, "{what}: too few calls");
                break;
            }
            refusals += 1;
            joined += usize::from(mappings == 1);
        }
    }
    assert!(joined > 0 && joined < refusals, "{joined} of {refusals}");
    session.end(Ok(())).expect("nothing stays");
    assert_eq!(heap.ask("make"), "made");
    assert_eq!(heap.seen(), before);
    println!("{way:?}: {refusals} refusals, joined all the same {joined}");
}

#[test]
fn each_call_refused_once_by_move() {
    refuse_all(Way::Move, Refused::One, &REFUSALS);
}

#[test]
fn each_call_refused_once_by_copy() {
    refuse_all(Way::Copy, Refused::One, &REFUSALS);
}

/// `EINTR` and `EAGAIN` for good would let the agent try for good.
#[test]
fn each_kind_of_call_refused_for_good() {
    for way in [Way::Move, Way::Copy] {
        let errnos = [libc::EBUSY, libc::EEXIST, libc::ENOENT];
        refuse_all(way, Refused::Kind, &errnos);
    }
}

/// Kills a tracer at the `at`th call of its agent; false if the agent has made fewer calls.
fn kill_at(heap: &Heap, at: usize) -> bool {
    let pid = heap.pid();
    let (child, mut from) = own_session::start(|mut to| {
        use std::io::Write;
        let mut session = begin(heap, Way::Move);
        let mut made = 0;
        let killed = &mut |_| {
            made += 1;
            if made > at {
                let own = rustix::process::getpid();
                let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
            }
        };
        let _ = join_stopped(&mut session, &heap.piece(), 0, Some(killed));
        let _ = session.end(Ok(()));
        let _ = to.write_all(&[1]);
    })
    .expect("a child");
    let mut byte = [0];
    let ended = std::io::Read::read(&mut from, &mut byte).expect("an end") == 1;
    drop(child);
    let target = Target::open(pid).expect("it runs on");
    assert_eq!(sweep(&target).expect("it is swept"), !ended);
    !ended
}

#[test]
fn a_tracer_that_is_killed_leaves_an_agent_that_finishes() {
    if !may_repair() {
        return;
    }
    let mut heap = Heap::start();
    assert_eq!(heap.ask("make"), "made");
    let before = heap.seen();
    for at in 0.. {
        assert_eq!(heap.ask("make"), "made");
        let killed = kill_at(&heap, at);
        assert_eq!(heap.ask("look"), "0", "killed at {at}: bytes");
        assert_eq!(heap.seen().0, 1, "killed at {at}");
        if !killed {
            assert!(at > 60, "too few stops: {at}");
            break;
        }
    }
    assert_eq!(heap.ask("make"), "made");
    assert_eq!(heap.seen(), before);
}

#[test]
fn a_second_repair_keeps_away() {
    if !may_repair() {
        return;
    }
    let heap = Heap::start();
    let session = begin(&heap, Way::Move);
    let own = std::process::id().cast_signed();
    let (child, mut from) = own_session::start(|mut to| {
        let target = Target::open(heap.pid()).expect("it runs");
        let refused = matches!(
            sweep(&target),
            Err(RepairError::AtWork { by: Some(by), .. }) if by == own
        );
        let _ = super::wire::send(&mut to, &refused);
    })
    .expect("a child");
    assert!(super::wire::receive::<bool>(&mut from).expect("an answer"));
    drop(child);
    session.end(Ok(())).expect("nothing stays");
}

#[test]
fn a_merge_goes_on_while_it_is_asked_to() {
    if !may_repair() {
        return;
    }
    let mut heap = Heap::start();
    assert_eq!(heap.ask("make"), "made");
    let remote = super::Remote::new(heap.pid(), crate::Options::default()).expect("a process");
    let range = heap.area.start..heap.area.end;
    let ended = remote.merge_with(&range, &mut |_| ControlFlow::Break(()));
    assert_eq!(ended.expect("nothing").left, PARTS);
    let report = remote.merge(&range).expect("a merge");
    assert_eq!((report.before, report.after), (PARTS, 1));
    assert_eq!(heap.ask("look"), "0");
}
