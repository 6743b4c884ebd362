//! The tables of one replay, filled event by event.

use crate::differences::Differences;
use crate::events::Events;
use crate::lifetimes::Lifetimes;
use crate::merges::Merges;
use crate::table::Table;
use crate::vmas::Vmas;
use arrow_array::RecordBatch;
use vmarea_replay::Replayer;
use vmarea_trace::event::{Event, MmId};

/// Number of rows after which a batch is handed out.
pub const BATCH_ROWS: usize = 1 << 16;

/// Receiver of full batches.
type Receiver<'a, E> = dyn FnMut(Table, RecordBatch) -> Result<(), E> + 'a;

/// The tables of one replay.
pub struct Collector {
    events: Option<Events>,
    vmas: Option<Vmas>,
    lifetimes: Option<Lifetimes>,
    merges: Option<Merges>,
    differences: Option<Differences>,
    position: u64,
}

impl Collector {
    /// Prepares these tables.
    pub fn new(tables: &[Table]) -> Self {
        let wanted = |table: Table| tables.contains(&table).then(|| table.schema());
        Self {
            events: wanted(Table::Events).map(Events::new),
            vmas: wanted(Table::Vmas).map(Vmas::new),
            lifetimes: wanted(Table::Lifetimes).map(Lifetimes::new),
            merges: wanted(Table::Merges).map(Merges::new),
            differences: wanted(Table::Differences).map(Differences::new),
            position: 0,
        }
    }

    /// True if the tables need the log of the replay
    /// ([`Options::log`](vmarea_replay::Options::log)).
    pub fn needs_log(&self) -> bool {
        self.merges.is_some() || self.differences.is_some()
    }

    /// True if the tables are made of the replay, not only of the trace.
    pub fn needs_replay(&self) -> bool {
        self.needs_log() || self.vmas.is_some() || self.lifetimes.is_some()
    }

    /// Prepares a replay whose events will follow.
    pub fn follow(&mut self, replayer: &mut Replayer) {
        if let Some(lifetimes) = &mut self.lifetimes {
            lifetimes.follow(replayer);
        }
    }

    /// Adds the rows of an event of the trace. Batches that are full go to `receive`.
    ///
    /// # Errors
    /// Returns the error of `receive`.
    pub fn event<E>(&mut self, event: &Event, receive: &mut Receiver<'_, E>) -> Result<(), E> {
        self.position += 1;
        if let Some(events) = &mut self.events {
            events.add(self.position, event);
            if events.rows() >= BATCH_ROWS {
                receive(Table::Events, events.finish())?;
            }
        }
        Ok(())
    }

    /// Adds the rows of the replay of the last event. Batches that are full go to `receive`.
    ///
    /// # Errors
    /// Returns the error of `receive`.
    pub fn replayed<E>(
        &mut self,
        event: &Event,
        replayer: &mut Replayer,
        receive: &mut Receiver<'_, E>,
    ) -> Result<(), E> {
        let (mm, time) = place(event);
        if let (Some(vmas), Some(mm)) = (&mut self.vmas, mm) {
            vmas.add(self.position, time, mm, replayer);
            if vmas.rows() >= BATCH_ROWS {
                receive(Table::Vmas, vmas.finish())?;
            }
        }
        if let Some(lifetimes) = &mut self.lifetimes {
            lifetimes.add(self.position, time, mm, replayer);
            if lifetimes.rows() >= BATCH_ROWS {
                receive(Table::Lifetimes, lifetimes.finish())?;
            }
        }
        if !self.needs_log() {
            return Ok(());
        }
        let log = replayer.take_log();
        if let Some(merges) = &mut self.merges {
            for attempted in &log.attempts {
                merges.add(self.position, time, attempted);
            }
            if merges.rows() >= BATCH_ROWS {
                receive(Table::Merges, merges.finish())?;
            }
        }
        if let Some(differences) = &mut self.differences {
            for difference in &log.differences {
                differences.add(difference);
            }
            if differences.rows() >= BATCH_ROWS {
                receive(Table::Differences, differences.finish())?;
            }
        }
        Ok(())
    }

    /// Adds the rows of what exists at the end of the replay, and passes the remaining rows to
    /// `receive`.
    ///
    /// # Errors
    /// Returns the error of `receive`.
    pub fn finish<E>(
        mut self,
        replayer: &Replayer,
        receive: &mut Receiver<'_, E>,
    ) -> Result<(), E> {
        if let Some(events) = self.events.as_mut().filter(|table| table.rows() > 0) {
            receive(Table::Events, events.finish())?;
        }
        if let Some(vmas) = self.vmas.as_mut().filter(|table| table.rows() > 0) {
            receive(Table::Vmas, vmas.finish())?;
        }
        if let Some(lifetimes) = &mut self.lifetimes {
            lifetimes.add_existing(replayer);
            if lifetimes.rows() > 0 {
                receive(Table::Lifetimes, lifetimes.finish())?;
            }
        }
        if let Some(merges) = self.merges.as_mut().filter(|table| table.rows() > 0) {
            receive(Table::Merges, merges.finish())?;
        }
        if let Some(differences) = self.differences.as_mut().filter(|table| table.rows() > 0) {
            receive(Table::Differences, differences.finish())?;
        }
        Ok(())
    }
}

/// Returns the address space and the time of an event.
fn place(event: &Event) -> (Option<MmId>, Option<u64>) {
    match event {
        Event::Call(call) => (Some(call.mm), Some(call.t)),
        Event::Fault(fault) => (Some(fault.mm), Some(fault.t)),
        Event::Touch(touch) => (Some(touch.mm), Some(touch.t)),
        Event::Snapshot(snapshot) => (Some(snapshot.mm), Some(snapshot.t)),
        Event::MmStart(start) => (Some(start.mm), Some(start.t)),
        Event::MmEnd { mm, t } | Event::TaskStart { mm, t, .. } => (Some(*mm), Some(*t)),
        Event::TaskEnd { t, .. } | Event::Lost { t, .. } | Event::End { t, .. } => (None, Some(*t)),
        Event::Inode(_) | Event::Note(_) => (None, None),
    }
}
