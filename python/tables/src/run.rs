//! Replay of a trace that fills tables.

use crate::collector::Collector;
use crate::table::Table;
use arrow_array::RecordBatch;
use std::io::Read;
use vmarea_replay::{Options, Replayer, Report};
use vmarea_trace::Reader;

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum Error<E> {
    /// The trace cannot be read at all.
    #[error(transparent)]
    Trace(#[from] vmarea_trace::Error),
    /// The trace cannot be replayed.
    #[error(transparent)]
    Replay(#[from] vmarea_replay::Error),
    /// The trace has a header, but no events.
    #[error("the trace has no events")]
    Empty,
    /// The receiver of the tables failed, or the caller wants the replay to end.
    #[error(transparent)]
    Receiver(E),
}

/// The result of a replay.
#[derive(Debug)]
pub struct Replayed {
    /// The report.
    pub report: Report,
    /// Why the trace ended early, if it was cut off or damaged; the report then covers the events
    /// before that point.
    pub end: Option<vmarea_trace::Error>,
}

/// Replays a trace. Batches of the wanted tables go to `receive`; `go_on` is called after every 4096
/// events with their number, and can end the replay by an error.
///
/// # Errors
/// Fails if the trace cannot be read or replayed, and returns the errors of the two functions.
pub fn replay<R: Read, E>(
    reader: &mut Reader<R>,
    options: &Options,
    tables: &[Table],
    receive: &mut dyn FnMut(Table, RecordBatch) -> Result<(), E>,
    go_on: &mut dyn FnMut(u64) -> Result<(), E>,
) -> Result<Replayed, Error<E>> {
    const EVENTS_A_CHECK: u64 = 4096;
    let mut collector = Collector::new(tables);
    let options = Options {
        log: collector.needs_log(),
        ..options.clone()
    };
    let mut replayer = Replayer::new(reader.header(), &options)?;
    collector.follow(&mut replayer);
    let (mut events, mut end) = (0u64, None);
    for event in reader {
        let event = match event {
            Ok(event) => event,
            Err(
                cut @ (vmarea_trace::Error::CutOff { .. } | vmarea_trace::Error::Damaged { .. }),
            ) if events > 0 => {
                end = Some(cut);
                break;
            }
            Err(error) => return Err(error.into()),
        };
        replayer.event(&event)?;
        if !tables.is_empty() {
            collector.event(&event, receive).map_err(Error::Receiver)?;
            collector
                .replayed(&event, &mut replayer, receive)
                .map_err(Error::Receiver)?;
        }
        events += 1;
        if events.is_multiple_of(EVENTS_A_CHECK) {
            go_on(events).map_err(Error::Receiver)?;
        }
    }
    if events == 0 {
        return Err(Error::Empty);
    }
    let finished = collector.finish(&replayer, receive);
    finished.map_err(Error::Receiver)?;
    Ok(Replayed {
        report: replayer.finish(),
        end,
    })
}
