//! Address spaces whose calls were lost, and the beginning of their recording anew.
//!
//! What lost calls did is unknown, so the address spaces that existed at the time end in the trace
//! ([`super::emitter`]). Programs that are executed later begin with a list of mappings as always.
//! For the others, the recorder stops the threads that run, reads the list of mappings while no
//! thread is inside of a call that changes it, and records the address space from there on, as
//! another one. A sleeping thread is not stopped, because a stop would interrupt its call.
//!
//! # Picture
//! ```text
//!   mm 1  ---calls---[ ring overflows ]      threads stopped | list
//!                    ^ mm 1 ends                             ^ mm 2 begins (attach) ---calls---
//! ```

use super::actions::Action;
use super::attach::{interrupt, sleeping};
use super::call_table::{self, Role};
use super::calls::is_running;
use super::clock::clock;
use super::lifecycle::task_start;
use super::residence::Place;
use super::tasks::{Space, UNRECORDED};
use super::tracer::Tracer;
use std::collections::BTreeSet;
use vmarea_trace::event::{Event, MmId, MmStart, Nanos, Origin, SnapReason};

/// Longest time for which threads are kept stopped while others do not stop.
const PATIENCE: Nanos = 50_000_000;
/// Time between two attempts.
const SPACING: Nanos = 100_000_000;

impl Tracer<'_> {
    /// Begins to record anew the address spaces that existed at time `until`, because calls before
    /// it were lost. Returns the newest of them.
    pub(super) fn record_anew(&mut self, until: Nanos) -> MmId {
        let newest = self.stale.newest_at(until);
        self.stale.up_to = self.stale.up_to.max(newest);
        newest
    }

    /// Takes over the address spaces whose threads rest, and asks the others to stop.
    pub(super) fn take_over_stale(&mut self) {
        let now = clock();
        if self.stale.up_to == UNRECORDED || now < self.stale.due {
            return;
        }
        let users = self.tasks.values().filter(|task| !task.leaving);
        let mut mms: BTreeSet<MmId> = users.map(|task| task.mm).collect();
        mms.retain(|mm| self.stale.contains(*mm));
        if mms.is_empty() {
            (self.stale.up_to, self.stale.since) = (UNRECORDED, None);
            return self.end_stops();
        }
        let since = *self.stale.since.get_or_insert(now);
        for mm in mms {
            self.take_over_if_at_rest(mm);
        }
        if now - since > PATIENCE {
            self.stale.since = None;
            self.stale.due = now + SPACING;
            self.end_stops();
        }
    }

    fn take_over_if_at_rest(&mut self, mm: MmId) {
        let Some(before) = self.rest(mm) else {
            return;
        };
        let tids: Vec<i32> = before.iter().map(|(tid, _)| *tid).collect();
        let Some(&tid) = tids.first() else {
            return;
        };
        let t = clock();
        let Some(mut list) = self.snapshot(tid, mm, SnapReason::Attach, t) else {
            return;
        };
        if self.rest(mm).as_ref() != Some(&before) {
            return;
        }
        let new = self.new_mm();
        (list.mm, list.exact) = (new, true);
        self.replace_space(mm, new, &tids, t);
        let origin = Origin::Attach;
        let mut events = vec![Event::MmStart(MmStart { mm: new, origin, t })];
        for tid in tids {
            let pid = self.tasks.get(&tid).map_or(tid, |task| task.pid);
            events.push(task_start(tid, pid, new, t));
        }
        events.push(Event::Snapshot(list));
        self.push(t, events);
    }

    /// Returns the users of an address space, each with its number of context switches if it
    /// sleeps; `None` if one of them may be changing the address space. Asks those that run to stop.
    fn rest(&mut self, mm: MmId) -> Option<Vec<(i32, Option<u64>)>> {
        if !self.spaces.get(&mm)?.inside.is_empty() {
            return None;
        }
        let users = self.tasks.iter_mut().filter(|(_, task)| task.mm == mm);
        let mut resting = Some(Vec::new());
        for (&tid, task) in users {
            let state = match task.call.as_ref() {
                _ if task.leaving => continue,
                // A thread that waits to enter its call is stopped.
                Some(call) => (call.entry == 0).then_some(None),
                None if task.kept.is_some() || task.listens => Some(None),
                None => sleeping(tid).filter(|_| !changes_mappings(tid)).map(Some),
            };
            match state {
                Some(switches) => {
                    if let Some(resting) = &mut resting {
                        resting.push((tid, switches));
                    }
                }
                None => {
                    resting = None;
                    if task.call.is_none() && !task.interrupted && is_running(tid) {
                        interrupt(tid, task);
                    }
                }
            }
        }
        let mut resting = resting?;
        resting.sort_unstable();
        Some(resting)
    }

    /// Lets all users of an address space use a new one in the stream from time `t` on.
    fn replace_space(&mut self, old: MmId, new: MmId, tids: &[i32], t: Nanos) {
        if let Some(mut space) = self.spaces.remove(&old) {
            space.fallback_snapshot = None;
            self.spaces.insert(new, Space { calls: 0, ..space });
        }
        for task in self.tasks.values_mut().filter(|task| task.mm == old) {
            task.mm = new;
        }
        for &tid in tids {
            self.timeline.residence.moves(tid, t, Place::In(new));
            self.call_discarded(tid, t);
        }
        if tids.len() > 1 {
            self.timeline.share(new);
        }
        self.at(t, Action::MmEnded(old));
        for &tid in tids {
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.interrupted = false;
                if let Some(how) = task.kept.take() {
                    self.let_run(tid, how);
                }
            }
        }
    }

    /// Lets the threads continue that were stopped, unless they are stopped for another reason.
    fn end_stops(&mut self) {
        if !self.throttle.is_active() {
            self.release_threads();
        }
    }
}

/// True if a sleeping thread may be inside of a call that changes mappings.
fn changes_mappings(tid: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{tid}/syscall")).unwrap_or_default();
    let mut words = text.split_whitespace();
    // A thread inside of a page fault has the number -1: the fault may attach an anon_vma.
    let Some(Ok(nr)) = words.next().map(str::parse::<u64>) else {
        return true;
    };
    let mut args = [0; 6];
    for (arg, word) in args.iter_mut().zip(words) {
        *arg = u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or(0);
    }
    call_table::rule_for(nr, &args).is_some_and(|rule| rule.role == Role::ChangesMappings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, RecordBy, RecordError, Sink};
    use std::time::Duration;
    use vmarea_replay::Replayer;
    use vmarea_trace::event::Header;

    /// Length of the mappings that the program makes.
    const LEN: u64 = 12288;
    /// A program that makes 40,000 calls at once, and then 3,000 slowly.
    const PROGRAM: &str = "import mmap, time\n\
        for _ in range(20000): mmap.mmap(-1, 12288).close()\n\
        for _ in range(1500): mmap.mmap(-1, 12288).close(); time.sleep(0.001)";
    /// Size of rings that do not have room for all calls at once.
    const RING_BYTES: usize = 256 << 10;

    /// Sink that does not return from the first of the program's calls for some time.
    #[derive(Default)]
    struct Slow {
        header: Header,
        events: Vec<Event>,
        has_slept: bool,
    }

    impl Sink for Slow {
        fn header(&mut self, header: &Header) -> std::io::Result<()> {
            self.header = header.clone();
            Ok(())
        }

        fn event(&mut self, event: &Event) -> std::io::Result<()> {
            if is_unmapping(event) && !std::mem::replace(&mut self.has_slept, true) {
                std::thread::sleep(Duration::from_millis(500));
            }
            self.events.push(event.clone());
            Ok(())
        }
    }

    fn is_unmapping(event: &Event) -> bool {
        matches!(event, Event::Call(call)
            if i64::from(call.nr) == libc::SYS_munmap && call.args[1] == LEN)
    }

    #[test]
    fn what_follows_lost_calls_is_recorded_anew() {
        let options = Options {
            command: ["python3", "-c", PROGRAM].map(Into::into).to_vec(),
            by: RecordBy::Observing,
            ..Options::default()
        };
        let mut sink = Slow::default();
        let mut ignored = |_| {};
        let tracer = Tracer::start_with(&options, Some(RING_BYTES), &mut sink, &mut ignored);
        let tracer = match tracer {
            Err(RecordError::NotObservable(error)) => return println!("skipped: {error}"),
            tracer => tracer.expect("a command"),
        };
        let outcome = tracer.follow().expect("a recording");
        assert_eq!(outcome.status, 0, "{outcome:?}");
        let told = outcome.notes.iter();
        let told = told.filter(|note| note.contains("calls were lost"));
        assert_eq!(told.count(), 1, "{outcome:?}");
        let lost = |event: &Event| matches!(event, Event::Lost { .. });
        let first = sink.events.iter().position(lost).expect("a loss");
        let after = &sink.events[first..];
        assert!(matches!(after[1], Event::MmEnd { .. }), "{:?}", after[1]);
        let anew = after.iter().position(
            |event| matches!(event, Event::MmStart(start) if start.origin == Origin::Attach),
        );
        let anew = &after[anew.expect("an address space that is recorded anew")..];
        assert!(anew.iter().any(is_unmapping), "{outcome:?}");
        let options = vmarea_replay::Options::default();
        let mut replayer = Replayer::new(&sink.header, &options).expect("a replay");
        for event in &sink.events {
            replayer.event(event).expect("an event that fits");
        }
        let report = replayer.finish();
        assert_eq!(report.verify.differences, 0, "{report:#?}");
    }
}
