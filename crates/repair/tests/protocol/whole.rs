//! The present protocol is explored without a violation, for each kind of work that the first thread
//! can do.
//!
//! On one machine, the bully may do everything; on the others, any three things. The lower bounds of
//! the numbers of states are about a fifth below those of this version, so that a change which makes
//! the exploration vacuous fails.

use super::ANYTHING;
use super::explore::explore;
use super::new::{New, Pitfall};
use super::state::{Machine, Work};

fn is_whole(machine: Machine, in_place: bool, least: usize) {
    let explored = explore(&New::on(machine, in_place, Pitfall::Nothing), None);
    println!("{} states", explored.states);
    if let Some(violation) = explored.violation {
        panic!("{violation}");
    }
    assert!(explored.states >= least, "only {} states", explored.states);
}

#[test]
fn joined_in_place_with_a_clone_that_may_be_refused() {
    let machine = Machine {
        refuses_clone: true,
        most_acts: 3,
        ..ANYTHING
    };
    is_whole(machine, true, 50_000);
}

#[test]
fn joined_by_a_fresh_mapping_although_new_memory_is_locked() {
    let machine = Machine {
        locks_future: true,
        ..ANYTHING
    };
    is_whole(machine, false, 260_000);
}

#[test]
fn not_joined_because_a_part_has_changed() {
    let machine = Machine {
        differs: true,
        most_acts: 3,
        ..ANYTHING
    };
    is_whole(machine, false, 50_000);
}

#[test]
fn three_pages() {
    let machine = Machine {
        pages: 3,
        most_acts: 3,
        ..ANYTHING
    };
    is_whole(machine, false, 60_000);
}

#[test]
fn in_a_restartable_sequence() {
    let machine = Machine {
        work: Work::Sequence,
        most_acts: 3,
        ..ANYTHING
    };
    is_whole(machine, true, 80_000);
}

#[test]
fn in_pause() {
    let machine = Machine {
        work: Work::Pause,
        most_acts: 3,
        ..ANYTHING
    };
    is_whole(machine, true, 45_000);
}

#[test]
fn in_read() {
    let machine = Machine {
        work: Work::Read,
        most_acts: 3,
        ..ANYTHING
    };
    is_whole(machine, true, 50_000);
}

#[test]
fn with_syscall_user_dispatch() {
    let machine = Machine {
        dispatch: true,
        most_acts: 3,
        ..ANYTHING
    };
    is_whole(machine, true, 50_000);
}
