//! Tests of interrupted runs, and of the later run that finishes the repair.
//!
//! A run is interrupted after each call of a piece, both with the agent's descriptor open and with
//! it closed, because the program may close that descriptor between two pieces. The resumed process
//! must have correct memory contents, and nothing of the repair may remain in it.

use super::Remote;
use super::injector::{Injector, StoppedProcess};
use super::test_process::{Bench, Heap, may_repair};
use crate::journal::{Agent, Journals};
use crate::piece::{self, Room, Watch};
use crate::plan::Piece;
use crate::{Options, RepairError, Way};
use vmarea_linux_sys::calls::Call;
use vmarea_linux_sys::inject;

/// Ends a run without releasing the process, as if a signal had killed the run.
fn interrupt(held: StoppedProcess<'_>) {
    for &tid in &held.threads {
        inject::detach(tid).expect("it is stopped");
    }
}

impl Bench {
    /// Interrupts a piece after `with` has made calls; a second run then finishes the piece.
    ///
    /// Returns the process and the result of the second run.
    fn resume_after(
        mut self,
        piece: &Piece,
        with: impl FnOnce(&StoppedProcess<'_>),
    ) -> (Heap, Result<bool, RepairError>) {
        self.journal.piece(piece.range).expect("a line");
        let held = self.target.stop(&mut self.journal).expect("it stops");
        with(&held);
        interrupt(held);
        let Bench {
            heap,
            journal,
            folder,
            ..
        } = self;
        drop(journal);
        let pid = heap.pid();
        let remote = Remote {
            pid,
            options: Options::default(),
            journals: Journals::of(pid, Some(folder.path().to_owned())),
            kernel: None,
        };
        (heap, remote.resume())
    }
}

/// Closes the descriptor of the agent, as the program might.
fn close(held: &StoppedProcess<'_>, agent: &Agent) {
    let closed = held.call(&Call::plain(0, libc::SYS_close, &[agent.fd as u64]));
    assert_eq!(closed.expect("it stands"), 0);
    held.settle().expect("it stands");
}

/// Returns all calls for a piece whose pages are moved.
fn calls_of(piece: &Piece, agent: &Agent) -> Vec<Call> {
    let (room, watch) = (Room { range: agent.room }, Watch::Stopped(agent.fd));
    let mut calls = Vec::new();
    piece::out(piece, room, watch, &mut calls);
    piece::swap(piece.range, room, watch, &mut calls);
    piece::back(piece.range, 0, room, watch, &mut calls);
    calls
}

#[test]
fn a_run_that_ended_after_any_call_is_resumed_even_without_its_descriptor() {
    if !may_repair() {
        return;
    }
    for is_open in [true, false] {
        for made in 0.. {
            let mut bench = Bench::new();
            assert_eq!(bench.heap.ask("make"), "made");
            let (_, mappings, files) = bench.heap.seen();
            let agent = bench.agent(Way::Move);
            let piece = bench.heap.piece();
            let mut calls = calls_of(&piece, &agent);
            let all = calls.len();
            let (mut heap, resumed) = bench.resume_after(&piece, |held| {
                let done = held.run(&agent, &mut calls[..made], 0);
                assert_eq!(done.expect("it stands"), made);
                if !is_open {
                    close(held, &agent);
                }
            });
            let what = format!("{made} calls, descriptor open: {is_open}");
            assert!(matches!(resumed, Ok(true)), "{what}: {resumed:?}");
            assert_eq!(heap.ask("look"), "0", "{what}");
            let (_, mappings_after, files_after) = heap.seen();
            assert!(mappings == mappings_after && files == files_after, "{what}");
            if made == all {
                break;
            }
        }
    }
}

/// Tests that a file that reuses the closed descriptor's number is left alone.
#[test]
fn a_file_with_the_number_of_the_descriptor_is_left_alone() {
    if !may_repair() {
        return;
    }
    let mut bench = Bench::new();
    assert_eq!(bench.heap.ask("make"), "made");
    let agent = bench.agent(Way::Move);
    let piece = bench.heap.piece();
    let fd = agent.fd as u64;
    let (mut heap, resumed) = bench.resume_after(&piece, |held| {
        let copied = held.call(&Call::plain(0, libc::SYS_dup2, &[1, fd]));
        assert_eq!(copied.expect("it stands"), fd.cast_signed());
        held.settle().expect("it stands");
    });
    assert!(matches!(resumed, Ok(true)), "{resumed:?}");
    assert_eq!(heap.ask("look"), "0");
    let link = std::fs::read_link(format!("/proc/{}/fd/{fd}", heap.pid()));
    assert_eq!(
        link.ok(),
        std::fs::read_link(format!("/proc/{}/fd/1", heap.pid())).ok()
    );
}
