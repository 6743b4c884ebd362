//! Pitfalls of the present protocol, each of which the exploration must find when it is put back, and
//! the windows that remain.
//!
//! Most were met in a trial. From `nobody_freed` on, they were found by this model and by reading the first version of the
//! code that it models; the last one by random merges (`ci/run hazards`), before the model knew that a stop takes a
//! request to stop with it.

use super::explore::explore;
use super::new::{New, Pitfall};
use super::state::{Act, Fault, Machine, Work};
use super::{ANYTHING, must_find};

/// No pitfall needs more than two actions of the bully.
const FEW: Machine = Machine {
    most_acts: 2,
    ..ANYTHING
};
const PAUSES: Machine = Machine {
    work: Work::Pause,
    ..FEW
};
const DISPATCHES: Machine = Machine {
    dispatch: true,
    ..FEW
};
const SEQUENCE: Machine = Machine {
    work: Work::Sequence,
    ..FEW
};
const LOCKS: Machine = Machine {
    locks_future: true,
    acts: 0,
    ..FEW
};
const DIFFERS: Machine = Machine {
    differs: true,
    acts: 0,
    ..FEW
};
const REFUSES: Machine = Machine {
    refuses_clone: true,
    ..FEW
};

/// Defines a test for each pitfall: on which machine it leads to which fault.
macro_rules! pitfalls {
    ($($name:ident: $pitfall:ident, $machine:expr, in_place = $in_place:expr => $fault:ident;)*) => {
        $(
            #[test]
            fn $name() {
                let protocol = New::on($machine, $in_place, Pitfall::$pitfall);
                must_find(&explore(&protocol, Some(Fault::$fault)), Fault::$fault);
            }
        )*
    };
}

pitfalls! {
    raw_call: RawCall, FEW, in_place = true => ForeignRegisters;
    handler_counts_as_call: HandlerCountsAsCall, FEW, in_place = true => SignalLost;
    nobody_parked_and_mremap: NobodyParked, FEW, in_place = true => MovedAway;
    nobody_parked_and_fork: NobodyParked, FEW, in_place = true => ForkedZeros;
    fresh_mapping_unwatched_and_read: FreshUnwatched, FEW, in_place = false => ReadAsZeros;
    fresh_mapping_unwatched_and_written: FreshUnwatched, FEW, in_place = false => WriteLost;
    fresh_mapping_is_new_memory: FreshIsMapped, LOCKS, in_place = false => PageOut;
    fresh_mapping_not_joined: UnjoinedMoved, DIFFERS, in_place = false => PageOut;
    esrch_taken_for_the_end: TakesEsrchForEnd, FEW, in_place = true => MovedAway;
    sequence_forgotten_without_abort: SequenceForgotten, SEQUENCE, in_place = true => NotAborted;
    second_vmarea_sweeps_blindly: SweepsBlindly, FEW, in_place = true => StubGone;
    second_vmarea_overlooks_handlers: HandlersOverlooked, FEW, in_place = true => StubGone;
    interrupted_call_kept_in_stub: CallKept, PAUSES, in_place = true => RestartInStub;
    restart_by_hand: RestartByHand, PAUSES, in_place = true => WakeUpLost;
    dispatch_kept_in_stub: DispatchKept, DISPATCHES, in_place = true => Dispatched;
    dispatch_switched_off_by_the_tracer: DispatchByTracer, DISPATCHES, in_place = true => Dispatched;
    stop_believed: StopBelieved, FEW, in_place = true => StopLost;
    nobody_freed_by_an_agent_that_does_not_begin: NobodyFreed, FEW, in_place = true => NotBack;
    thread_sent_to_clone_again: ClonesAgain, REFUSES, in_place = true => WentBack;
    signal_taken_before_it_is_passed_on: SignalTaken, FEW, in_place = true => SignalLost;
    stop_taken_before_it_is_passed_on: SignalTaken, FEW, in_place = true => StopLost;
    detached_without_a_look: DetachesBlindly, FEW, in_place = true => SignalLost;
    asked_once_to_stop: AsksOnce, FEW, in_place = true => NotBack;
}

/// Checks that a window which remains is found if it is not passed over.
fn remains(work: Work, dispatch: bool, acts: &[Act], fault: Fault) {
    let machine = Machine {
        work,
        dispatch,
        excuses: false,
        acts: acts.iter().fold(0, |all, &act| all | act as u16),
        ..FEW
    };
    let protocol = New::on(machine, true, Pitfall::Nothing);
    must_find(&explore(&protocol, Some(fault)), fault);
}

#[test]
fn remains_dispatch_and_registers_are_two_calls() {
    remains(Work::Plain, true, &[Act::KillTracer], Fault::Dispatched);
}

#[test]
fn remains_pause_fails_with_eintr_if_the_tracer_dies() {
    remains(Work::Pause, false, &[Act::KillTracer], Fault::SpuriousEintr);
}

#[test]
fn remains_read_is_repeated_after_a_handler_if_the_tracer_dies() {
    let acts = [Act::KillTracer, Act::Ordinary];
    remains(Work::Read, false, &acts, Fault::WakeUpLost);
}
