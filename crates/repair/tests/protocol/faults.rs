//! The known faults of the earlier protocol, each of which the exploration must find.

use super::explore::explore;
use super::old::Old;
use super::state::{Act, Fault, Machine, Work};
use super::{ANYTHING, must_find};

fn finds(machine: Machine, acts: u16, fault: Fault) {
    let machine = Machine { acts, ..machine };
    must_find(&explore(&Old::on(machine), Some(fault)), fault);
}

#[test]
fn a_foreign_stop_is_believed_to_be_the_agents() {
    finds(ANYTHING, Act::Stop as u16, Fault::ReadAsZeros);
}

#[test]
fn a_believed_stop_leaves_pages_out() {
    finds(ANYTHING, Act::Stop as u16, Fault::PageOut);
}

#[test]
fn a_foreign_stop_is_lost() {
    finds(ANYTHING, Act::Stop as u16, Fault::StopLost);
}

#[test]
fn sigcont_lets_the_program_run_with_foreign_registers() {
    finds(ANYTHING, Act::Cont as u16, Fault::ForeignRegisters);
}

#[test]
fn a_restartable_sequence_is_not_aborted() {
    let machine = Machine {
        work: Work::Sequence,
        ..ANYTHING
    };
    finds(machine, 0, Fault::NotAborted);
}

#[test]
fn locked_new_memory_leaves_the_process_stopped() {
    let machine = Machine {
        locks_future: true,
        ..ANYTHING
    };
    finds(machine, 0, Fault::StuckStopped);
}

#[test]
fn calls_are_dispatched_to_the_program() {
    let machine = Machine {
        dispatch: true,
        ..ANYTHING
    };
    finds(machine, 0, Fault::Dispatched);
}

#[test]
fn a_foreign_read_sees_zeros() {
    finds(ANYTHING, Act::Read as u16, Fault::ReadAsZeros);
}

#[test]
fn a_foreign_write_is_lost() {
    finds(ANYTHING, Act::Write as u16, Fault::WriteLost);
}

#[test]
fn an_undisturbed_merge_is_whole() {
    let machine = Machine {
        acts: 0,
        ..ANYTHING
    };
    let explored = explore(&Old::on(machine), None);
    assert!(
        explored.violation.is_none(),
        "{}",
        explored.violation.expect("a violation")
    );
    assert!(explored.states > 40, "only {} states", explored.states);
}
