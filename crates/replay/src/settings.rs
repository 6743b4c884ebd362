//! Settings of the machine that are written during a recording.
//!
//! A note says between which times a setting was written. The trace has the calls of this time before
//! the note, so differences are held until the end: those of this time are undecided then.

use super::Replayer;
use super::doubt::Doubt;
use super::machine;
use super::report::{Difference, MostShown, Report};
use std::collections::VecDeque;
use vmarea_trace::event::{MmId, Nanos};
use vmarea_trace::setting::SettingWritten;

/// Maximum number of differences that are held. The oldest ones are then differences for good.
const MOST: usize = 10_000;

/// Differences that a later note can make undecided, each with its time and address space.
#[derive(Debug, Default)]
pub(crate) struct Held(VecDeque<(Nanos, MmId, Difference)>);

impl Held {
    /// Adds a difference.
    pub(crate) fn add(
        &mut self,
        (t, mm): (Nanos, MmId),
        difference: Difference,
        (report, shown): (&mut Report, MostShown),
    ) {
        report.log(&difference);
        self.0.push_back((t, mm, difference));
        if self.0.len() > MOST
            && let Some((.., oldest)) = self.0.pop_front()
        {
            report.differs(oldest, shown);
        }
    }

    /// Moves all differences to the report.
    pub(crate) fn release(&mut self, report: &mut Report, shown: MostShown) {
        for (.., difference) in self.0.drain(..) {
            report.differs(difference, shown);
        }
    }
}

impl Replayer {
    /// Gives all worlds a new value of a setting; differences since its last reading are undecided.
    pub(super) fn setting_written(&mut self, written: SettingWritten) {
        for (t, mm, difference) in std::mem::take(&mut self.held.0) {
            if t < written.since {
                self.report.differs(difference, self.shown);
                continue;
            }
            self.report.verify.undecided(Doubt::Setting);
            // What the core and the kernel did differently has consequences.
            if let Some(known) = self.known.get_mut(&mm) {
                known.doubtful.get_or_insert(Doubt::Setting);
                known.unordered.get_or_insert(Doubt::Setting);
            }
        }
        self.header.settings.insert(written.name, written.value);
        let system = machine::system(&self.header);
        for world in &mut self.worlds {
            world.space.set_system(system);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Report;
    use super::*;
    use vmarea_trace::event::{
        Call, Event, Header, MmStart, Order, Origin, SnapReason, Snapshot, Tid,
    };
    use vmarea_trace::sysno;

    const MM: MmId = MmId(1);

    /// Returns a successful mapping of more memory than the machine has, to a fixed address.
    fn map(t: Nanos) -> Event {
        const THERE: u64 = 0x1000_0000;
        Event::Call(Call {
            tid: Tid(1),
            mm: MM,
            nr: sysno::MMAP,
            args: [THERE, 1 << 40, 3, 0x32, u64::MAX, 0],
            ret: THERE as i64,
            t,
            order: Order::Exact,
            file: None,
            data: Vec::new(),
        })
    }

    /// Replays mappings at times 15 and 30 on a machine where overcommit is permitted between `since`
    /// and time 20.
    fn replay(since: Nanos) -> Report {
        let written = SettingWritten {
            name: "vm.overcommit_memory".to_owned(),
            value: "1".to_owned(),
            since,
            until: 20,
        };
        let (mm, origin) = (MM, Origin::Exec);
        let events = [
            Event::MmStart(MmStart { mm, origin, t: 0 }),
            Event::Snapshot(Snapshot {
                mm,
                reason: SnapReason::Exec,
                t: 0,
                exact: true,
                info: None,
                vmas: Vec::new(),
            }),
            map(15),
            Event::Note(written.to_string()),
            map(30),
        ];
        let settings = [("vm.overcommit_memory", "0"), ("mem.total_pages", "1000")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let header = Header {
            page_size: 4096,
            settings: settings.into(),
            ..Header::default()
        };
        Replayer::report(&header, &events)
    }

    #[test]
    fn a_difference_at_the_time_of_a_write_is_undecided_and_later_calls_see_the_new_value() {
        let verify = replay(10).verify;
        assert_eq!((verify.differences, verify.results_compared), (0, 2));
        assert_eq!(verify.reasons[&Doubt::Setting.to_string()].undecided, 1);
        assert_eq!(verify.undecided, 1, "{verify:?}");
    }

    #[test]
    fn a_difference_before_the_write_stays_one() {
        let report = replay(16);
        assert_eq!(report.verify.differences, 1);
        assert_eq!(report.verify.undecided, 0, "{:?}", report.verify);
        assert!(report.first_difference.is_some());
    }
}
