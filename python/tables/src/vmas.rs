//! The table of the numbers of VMAs over time.

use crate::column::Column;
use crate::columns::{batch, strings};
use arrow_array::RecordBatch;
use arrow_array::builder::{StringViewBuilder, UInt32Builder, UInt64Builder};
use arrow_schema::{DataType, SchemaRef};
use std::collections::HashMap;
use vmarea_replay::Replayer;
use vmarea_trace::event::MmId;

pub(crate) const COLUMNS: [Column; 5] = [
    Column::always(
        "event",
        DataType::UInt64,
        "Position in the trace, counted from 1, of the event with which the number changed.",
    ),
    Column::sometimes(
        "time",
        DataType::UInt64,
        "Time of the event in nanoseconds of `CLOCK_MONOTONIC`.",
    ),
    Column::always(
        "mm",
        DataType::UInt32,
        "The trace's number for the address space.",
    ),
    Column::always(
        "policy",
        DataType::Utf8View,
        "Name of the policy; `linux` stands for the recorded kernel's rules.",
    ),
    Column::always(
        "vmas",
        DataType::UInt64,
        "Number of VMAs after the event; 0 when the address space has ended.",
    ),
];

/// The rows that were not handed out yet, and the last numbers of each live address space.
pub(crate) struct Vmas {
    schema: SchemaRef,
    event: UInt64Builder,
    time: UInt64Builder,
    mm: UInt32Builder,
    policy: StringViewBuilder,
    vmas: UInt64Builder,
    rows: usize,
    last: HashMap<MmId, Vec<u64>>,
}

impl Vmas {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            event: UInt64Builder::new(),
            time: UInt64Builder::new(),
            mm: UInt32Builder::new(),
            policy: strings(),
            vmas: UInt64Builder::new(),
            rows: 0,
            last: HashMap::new(),
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds the numbers that differ from the last ones, after an event of this address space.
    pub(crate) fn add(&mut self, position: u64, time: Option<u64>, mm: MmId, replayer: &Replayer) {
        let last = self.last.entry(mm).or_default();
        let mut ended = true;
        for (nr, (policy, now)) in replayer.vmas(mm).enumerate() {
            if last.len() <= nr {
                last.push(0);
            }
            ended &= now == 0;
            if std::mem::replace(&mut last[nr], now) == now {
                continue;
            }
            self.event.append_value(position);
            self.time.append_option(time);
            self.mm.append_value(mm.0);
            self.policy.append_value(policy);
            self.vmas.append_value(now);
            self.rows += 1;
        }
        if ended {
            self.last.remove(&mm);
        }
    }

    pub(crate) fn finish(&mut self) -> RecordBatch {
        self.rows = 0;
        batch(
            &self.schema,
            &mut [
                &mut self.event,
                &mut self.time,
                &mut self.mm,
                &mut self.policy,
                &mut self.vmas,
            ],
        )
    }
}
