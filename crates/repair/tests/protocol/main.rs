//! An exhaustive model of the protocol by which a live process is merged, and of the one before it.
//!
//! Anybody may act on a process at any moment: send signals, read and write its memory, kill the
//! tracer. Tests of the real thing meet the rare orders of events only by luck. This model explores
//! every order, for two threads and two or three pages: at each step, the tracer, each thread, the
//! agent, another process, or a bully acts. It finds what was wrong with the earlier protocol, and
//! each pitfall that is put back into the present one.
//!
//! The kernel's transitions are one module for both protocols. A protocol is a list of steps of its
//! tracer and one of its agent. What the kernel does at which point was read in its sources; nothing
//! here runs on a kernel.
//!
//! # Picture
//! ```text
//! page     home ──out──▶ out ──back──▶ home        contents; also: has it the write of another process
//!                         │ touched while nothing watches
//!                         ▼
//!                       covered (zeros at home)    read: violation. written: the write is lost
//!
//! thread   runs ──interrupt──▶ trapped ──resume──▶ runs
//!            │  ──signal, traced──▶ at signal ──resume with it──▶ runs the handler, or group-stop
//!            │  ──touches what is out──▶ faults ──page is home, or watch ends──▶ runs
//! where    program │ call stub: start ─▶ blocked ─▶ done ─▶ unmasked (─▶ leaving) ─▶ program
//!                  │ park stub: the same; waits in blocked
//! program  plain │ in a restartable sequence ─▶ aborted │ in pause(), in read() ─▶ interrupted
//!            ─▶ again, or EINTR │ uses Syscall User Dispatch │ the second thread uses the piece, moves
//!            it by mremap, and forks
//! signals  SIGSTOP for the process or a thread, SIGCONT, an ordinary one with a handler
//! tracer   runs its list; killed: all threads go on from their registers
//! ```
//!
//! # Invariants
//! [`Fault`] lists them. In short: nobody reads anything but the contents of a page, and no write is
//! lost; code of the program runs only with its own registers, mask and dispatch; stops, handlers,
//! wake-ups and aborts happen once, as without a merge; from every state, an end is in reach without
//! help, at which all pages and threads are where they were.
//!
//! # What is not modelled
//! - windows that are known to remain, which [`state::Machine::excuses`] passes over and which the
//!   tests `remains_*` show: see there
//! - a thread in 32-bit code, which is not parked; threads that start or end; a vfork child; exec
//! - a process that is stopped at first; stop signals other than `SIGSTOP`, which can be blocked
//! - refusals of the kernel other than of `clone` and to join what differs: pinned and shared pages,
//!   full lists of mappings
//! - seccomp filters, which are suspended only while the tracer lives
//! - the reader of events, and the lists of calls: the steps of a list are atomic and succeed
//! - more than one piece, the first stop and the last; the second vmarea's sweep is one step
//! - reads of `/proc/PID/mem`, which fail while a page is out, and io_uring
//! - killed tracers of the earlier protocol, which leaves the process stopped by design

mod explore;
mod faults;
mod kernel;
mod new;
mod old;
mod outside;
mod pitfalls;
mod state;
mod whole;

use explore::{Explored, Violation};
use state::{Fault, Machine, Work};

/// A machine on which everything may happen, except for what a test switches off.
const ANYTHING: Machine = Machine {
    pages: 2,
    work: Work::Plain,
    dispatch: false,
    locks_future: false,
    differs: false,
    refuses_clone: false,
    excuses: true,
    acts: 0x7f,
    most_acts: 7,
};

/// Checks that an exploration has found this fault.
fn must_find(explored: &Explored, fault: Fault) {
    match &explored.violation {
        Some(found) if found.fault == fault => report(found, explored.states),
        Some(found) => panic!("found something else than {fault:?}: {found}"),
        None => panic!("{fault:?} is not found in {} states", explored.states),
    }
}

fn report(found: &Violation, states: usize) {
    println!("after {states} states: {found}");
}
