//! Moments of a recording, and the address spaces at each moment.

use vmarea_report::graph::recorded::{Moment, Recorded, Survey};
use vmarea_report::shown::{self, Choice, Finder};
use vmarea_trace::event::{
    Access, Event, Fault, Header, MmId, MmStart, Order, Origin, Perms, SnapKind, SnapReason,
    SnapVma, Snapshot, Tid,
};

fn header() -> Header {
    Header {
        kernel_release: "6.18.0".into(),
        machine: "x86_64".into(),
        page_size: 4096,
        command: vec!["a".into(), "program".into()],
        ..Header::default()
    }
}

fn start(mm: u32, origin: Origin) -> Event {
    let mm = MmId(mm);
    Event::MmStart(MmStart { mm, origin, t: 0 })
}

fn forked(mm: u32, parent: u32) -> Event {
    let parent = MmId(parent);
    start(mm, Origin::Fork { parent })
}

fn end(mm: u32) -> Event {
    Event::MmEnd { mm: MmId(mm), t: 0 }
}

fn task(tid: i32, mm: u32) -> Event {
    Event::TaskStart {
        tid: Tid(tid),
        pid: Tid(tid),
        mm: MmId(mm),
        t: 0,
    }
}

const START: u64 = 0x7f00_0000_0000;

fn list(mm: u32, reason: SnapReason, pages: u64) -> Event {
    let vma = SnapVma {
        start: START,
        end: START + pages * 4096,
        perms: Perms {
            read: true,
            write: true,
            ..Perms::default()
        },
        offset: 0,
        inode: None,
        kind: SnapKind::Plain,
        kernel: None,
    };
    Event::Snapshot(Snapshot {
        mm: MmId(mm),
        reason,
        t: 0,
        exact: true,
        info: None,
        vmas: vec![vma],
    })
}

fn write(mm: u32) -> Event {
    Event::Fault(Fault {
        tid: Tid(1),
        mm: MmId(mm),
        addr: START,
        access: Access::Write,
        kernel: false,
        t: 0,
        order: Order::Exact,
    })
}

/// Returns events of a parent, a child and a grandchild; three unrelated programs run
/// before the first fork.
fn events() -> Vec<Event> {
    vec![
        start(1, Origin::Exec),
        task(10, 1),
        list(1, SnapReason::Exec, 1),
        write(1),
        start(2, Origin::Exec),
        start(3, Origin::Exec),
        start(4, Origin::Exec),
        end(2),
        end(3),
        end(4),
        forked(5, 1),
        task(11, 5),
        write(5),
        forked(6, 5),
        task(12, 6),
        write(6),
        end(6),
        end(5),
        list(1, SnapReason::Exit, 1),
        end(1),
    ]
}

fn survey(events: &[Event]) -> Survey {
    let mut survey = Survey::default();
    events.iter().for_each(|event| survey.event(event));
    survey
}

#[test]
fn the_widest_moment_is_that_of_forks_and_not_of_programs() {
    let all = events();
    let until = |events: &[Event], moment| survey(events).events_until(moment);
    assert_eq!(until(&all, Moment::Widest), 16, "before mm6 ends");
    assert_eq!(until(&all, Moment::End), 19, "before mm1 ends");
    assert_eq!(until(&all, Moment::Event(3)), 3);
    assert_eq!(until(&all, Moment::Event(u64::MAX)), 20);
    // A truncated recording.
    assert_eq!(until(&all[..15], Moment::Widest), 15);
    assert_eq!(until(&all[..15], Moment::End), 15);
    assert_eq!(until(&[], Moment::Widest), 0);
}

#[test]
fn the_graph_of_a_recording_has_its_forks() {
    let all = events();
    let mut recorded = Recorded::new(&header()).unwrap();
    for event in &all[..16] {
        recorded.event(event).unwrap();
    }
    let graph = recorded.graph();
    let names: Vec<_> = graph.processes.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(
        names,
        ["mm1 (process 10)", "mm5 (process 11)", "mm6 (process 12)"]
    );
    let parents: Vec<_> = graph.processes.iter().map(|p| p.parent).collect();
    assert_eq!(parents, [None, Some(0), Some(1)]);
    let lengths: Vec<_> = graph
        .processes
        .iter()
        .map(|p| p.vmas[0].chain.len())
        .collect();
    assert_eq!(lengths, [1, 2, 3]);
    assert!(
        graph
            .notes
            .iter()
            .any(|note| note.contains("no kernel's view"))
    );
}

#[test]
fn a_list_is_that_of_the_moment_and_of_the_command() {
    let found = |choice: Choice| {
        let mut finder = Finder::new(&header(), choice);
        let mut events = events();
        events.insert(16, list(6, SnapReason::Exit, 6));
        events.insert(18, list(1, SnapReason::Checkpoint, 3));
        events.iter().for_each(|event| finder.event(event));
        let shown = finder.finish()?;
        let mapping = &shown.process.mappings[0].entry;
        Some((mapping.end - mapping.start) / 4096)
    };
    let at = |moment| Choice { moment, mm: None };
    assert_eq!(found(at(shown::Moment::Exec)), Some(1));
    assert_eq!(found(at(shown::Moment::Event(19))), Some(3));
    assert_eq!(found(at(shown::Moment::Event(2))), None);
    assert_eq!(found(at(shown::Moment::End)), Some(1));
    let of = |mm| Choice {
        moment: shown::Moment::End,
        mm: Some(MmId(mm)),
    };
    assert_eq!(found(of(6)), Some(6));
    assert_eq!(found(of(5)), None);
}
