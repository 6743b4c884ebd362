//! Tests the order of the stream with synthetic samples and stops.

use super::*;
use vmarea_trace::event::{Call, MmStart, Origin};

const MM: MmId = MmId(1);
/// A call that changes the page at 0x1000.
const SHAPES: Flight = Flight::ChangesMappings(MM, CallRange::Ranges([(0x1000, 0x2000), (0, 0)]));

/// Creates a timeline of one address space that threads 1 and 2 share, with lock tracepoints.
fn shared() -> Timeline {
    let mut timeline = Timeline::default();
    timeline.expect_locks();
    timeline.share(MM);
    timeline.residence.moves(1, 0, Place::In(MM));
    timeline.residence.moves(2, 0, Place::In(MM));
    timeline
}

fn call(tid: i32, nr: i64, args: [u64; 6]) -> Event {
    Event::Call(Call {
        tid: Tid(tid),
        mm: MM,
        nr: nr as u32,
        args,
        ret: 0,
        t: 0,
        order: Order::Exact,
        file: None,
        data: Vec::new(),
    })
}

fn unmap(tid: i32) -> Event {
    call(tid, libc::SYS_munmap, [0x1000, 0x1000, 0, 0, 0, 0])
}

fn ended(exit: Nanos, events: Vec<Event>) -> Ended {
    Ended {
        mm: MM,
        exit,
        alone: Alone::Yes,
        child: None,
        events,
    }
}

fn fault(t: Nanos, tid: i32, addr: u64) -> Sample {
    Sample::Fault {
        t,
        pid: 1,
        tid,
        addr,
        write: Some(true),
        exec: false,
        present: false,
        kernel: false,
    }
}

fn lock(t: Nanos, tid: i32, write: bool) -> Sample {
    Sample::LockTaken {
        t,
        pid: 1,
        tid,
        mm: 0,
        write,
        late: false,
    }
}

fn all(mut timeline: Timeline) -> Vec<Event> {
    let mut events = Vec::new();
    timeline.finish(&mut |event| events.push(event));
    events
}

/// Lists the thread, time and order of each call and fault.
fn summary(events: &[Event]) -> Vec<(char, i32, Nanos, Order)> {
    let of = |event: &Event| match event {
        Event::Call(call) => ('c', call.tid.0, call.t, call.order),
        Event::Fault(fault) => ('f', fault.tid.0, fault.t, fault.order),
        Event::MmStart(start) => ('m', 0, start.t, Order::Exact),
        event => panic!("{event:?}"),
    };
    events.iter().map(of).collect()
}

#[test]
fn a_call_counts_when_it_took_the_lock() {
    let mut timeline = shared();
    timeline.call_begins(1, 100, SHAPES);
    timeline.call_ends(1, ended(200, vec![unmap(1)]));
    let mut samples = vec![
        fault(110, 2, 0x1000),
        lock(120, 1, true),
        fault(150, 2, 0x8000),
        fault(160, 2, 0x1000),
        lock(190, 2, false),
        fault(195, 2, 0x1000),
        fault(300, 2, 0x1000),
    ];
    timeline.samples(&mut samples, 400);
    let (exact, overlapping) = (Order::Exact, Order::Overlapping);
    assert_eq!(
        summary(&all(timeline)),
        [
            ('f', 2, 110, exact),
            ('c', 1, 120, exact),
            // This fault is in another range, so the order does not matter.
            ('f', 2, 150, exact),
            // This fault has its own lock sample, so its range does not matter.
            ('f', 2, 190, exact),
            // This fault is in the range that is unmapped, and there is no evidence of the order.
            ('f', 2, 195, overlapping),
            ('f', 2, 300, exact),
        ]
    );
}

#[test]
fn without_evidence_both_are_marked() {
    let mut timeline = Timeline::default();
    timeline.share(MM);
    timeline.residence.moves(2, 0, Place::In(MM));
    timeline.call_begins(1, 100, SHAPES);
    timeline.call_ends(1, ended(200, vec![unmap(1)]));
    let mut samples = vec![
        fault(140, 2, 0x8000),
        fault(150, 2, 0x1000),
        fault(250, 2, 0x1000),
    ];
    timeline.samples(&mut samples, 300);
    assert_eq!(
        summary(&all(timeline)),
        [
            // This fault is in another range.
            ('f', 2, 140, Order::Exact),
            ('f', 2, 150, Order::Overlapping),
            ('c', 1, 200, Order::Overlapping),
            ('f', 2, 250, Order::Exact),
        ]
    );
}

#[test]
fn a_child_touches_nothing_before_it_is_born() {
    let mut timeline = Timeline::default();
    timeline.residence.moves(1, 0, Place::In(MM));
    timeline.call_begins(1, 100, Flight::MovesTask);
    timeline.samples(&mut vec![fault(150, 7, 0x8000)], 500);
    let mut early_stops = Vec::new();
    timeline.advance(500, &mut |event| early_stops.push(event));
    assert!(early_stops.is_empty());
    timeline.residence.moves(7, 100, Place::In(MmId(2)));
    let origin = Origin::Fork { parent: MM };
    let start = MmStart {
        mm: MmId(2),
        origin,
        t: 0,
    };
    let mut end = ended(
        200,
        vec![call(1, libc::SYS_fork, [0; 6]), Event::MmStart(start)],
    );
    end.child = Some(7);
    timeline.call_ends(1, end);
    let events = all(timeline);
    let kinds: String = summary(&events).iter().map(|s| s.0).collect();
    assert_eq!(kinds, "cmf");
}

#[test]
fn the_lock_taken_at_the_end_of_a_thread_is_not_its_last_faults() {
    let mut timeline = shared();
    timeline.residence.moves(2, 150, Place::Nowhere);
    timeline.samples(&mut vec![fault(110, 2, 0x1000), lock(160, 2, true)], 400);
    assert_eq!(summary(&all(timeline)), [('f', 2, 110, Order::Exact)]);
}

#[test]
fn a_call_that_blocks_does_not_hold_the_stream_for_ever() {
    let mut timeline = shared();
    timeline.call_begins(1, 100, SHAPES);
    timeline.samples(&mut vec![fault(150, 2, 0x8000)], 10 * LONGEST_HOLD);
    let mut events = Vec::new();
    timeline.advance(LONGEST_HOLD / 2, &mut |event| events.push(event));
    assert!(events.is_empty());
    timeline.advance(2 * LONGEST_HOLD, &mut |event| events.push(event));
    assert_eq!(events.len(), 1);
    let late = 10 * LONGEST_HOLD;
    timeline.call_ends(1, ended(late + 1, vec![unmap(1)]));
    timeline.finish(&mut |event| events.push(event));
    assert_eq!(summary(&events)[1], ('c', 1, late + 1, Order::Exact));
}

#[test]
fn a_call_in_which_a_thread_is_killed_comes_before_the_end_of_its_memory() {
    let mut timeline = shared();
    timeline.call_begins(1, 100, SHAPES);
    timeline.call_ends(1, ended(200, vec![unmap(1)]));
    timeline.push(200, vec![Event::MmEnd { mm: MM, t: 200 }]);
    let events = all(timeline);
    assert!(
        matches!(events[..], [Event::Call(_), Event::MmEnd { .. }]),
        "{events:?}"
    );
}

#[test]
fn a_lock_from_before_the_stream_is_no_evidence() {
    let mut timeline = shared();
    timeline.call_begins(1, 100, SHAPES);
    timeline.call_begins(2, 300, SHAPES);
    timeline.call_ends(2, ended(400, vec![unmap(2)]));
    // The faults are outside the call's range, inside it, and after the call.
    let faults = [
        fault(500, 2, 0x8000),
        fault(600, 2, 0x1000),
        fault(20 * LONGEST_HOLD, 2, 0x1000),
    ];
    let mut samples = vec![lock(150, 1, true), lock(350, 2, true)];
    samples.extend(faults);
    timeline.samples(&mut samples, 10 * LONGEST_HOLD);
    let mut events = Vec::new();
    timeline.advance(2 * LONGEST_HOLD, &mut |event| events.push(event));
    assert_eq!(events.len(), 3, "{events:?}");
    timeline.call_ends(1, ended(10 * LONGEST_HOLD + 1, vec![unmap(1)]));
    timeline.finish(&mut |event| events.push(event));
    let (exact, overlapping) = (Order::Exact, Order::Overlapping);
    let orders: Vec<_> = summary(&events).iter().map(|s| (s.0, s.1, s.3)).collect();
    assert_eq!(
        orders,
        [
            ('c', 2, overlapping),
            ('f', 2, exact),
            ('f', 2, overlapping),
            ('c', 1, overlapping),
            ('f', 2, exact),
        ]
    );
}

#[test]
fn a_lock_that_is_told_too_late_is_no_evidence() {
    let mut timeline = shared();
    timeline.call_begins(1, 100, SHAPES);
    let alone = Alone::No;
    let events = vec![unmap(1)];
    timeline.call_ends(
        1,
        Ended {
            alone,
            ..ended(200, events)
        },
    );
    let mut late = lock(120, 1, true);
    if let Sample::LockTaken { late, .. } = &mut late {
        *late = true;
    }
    timeline.samples(&mut vec![late], 400);
    assert_eq!(summary(&all(timeline)), [('c', 1, 200, Order::Overlapping)]);
}

#[test]
fn times_never_go_back() {
    let mut timeline = shared();
    timeline.push(500, vec![unmap(1)]);
    timeline.samples(&mut Vec::new(), 10 * GRACE);
    let mut events = Vec::new();
    timeline.advance(10 * GRACE, &mut |event| events.push(event));
    timeline.push(400, vec![unmap(2)]);
    timeline.finish(&mut |event| events.push(event));
    let times: Vec<Nanos> = summary(&events).iter().map(|s| s.2).collect();
    assert_eq!(times.len(), 2);
    assert!(times[0] <= times[1], "{times:?}");
}
