//! The table of merge attempts.

use crate::column::Column;
use crate::columns::{batch, strings};
use arrow_array::RecordBatch;
use arrow_array::builder::{StringViewBuilder, UInt32Builder, UInt64Builder};
use arrow_schema::{DataType, SchemaRef};
use vmarea_replay::attempts::Attempted;

pub(crate) const COLUMNS: [Column; 11] = [
    Column::always(
        "attempt",
        DataType::UInt64,
        "Number of the attempt in the trace, counted from 1; equal in the rows of all policies.",
    ),
    Column::always(
        "event",
        DataType::UInt64,
        "Position in the trace, counted from 1, of the event that made the attempt.",
    ),
    Column::sometimes(
        "time",
        DataType::UInt64,
        "Time of the event in nanoseconds of `CLOCK_MONOTONIC`.",
    ),
    Column::sometimes(
        "mm",
        DataType::UInt32,
        "The trace's number for the address space.",
    ),
    Column::always(
        "call",
        DataType::Utf8View,
        "Kind of call: `mmap`, `mprotect`, `mremap move`, ...",
    ),
    Column::always(
        "start",
        DataType::UInt64,
        "First address of the range that the call maps or changes.",
    ),
    Column::always("end", DataType::UInt64, "Address after this range."),
    Column::always(
        "policy",
        DataType::Utf8View,
        "Name of the policy; `linux` stands for the recorded kernel's rules, whose verdict the replay \
         carries out.",
    ),
    Column::sometimes(
        "merge",
        DataType::Utf8View,
        "Kind of merge; null if the policy merges with neither neighbour.",
    ),
    Column::sometimes(
        "refused_previous",
        DataType::Utf8View,
        "Reason against a merge with the previous VMA; null if they merge or are not adjacent.",
    ),
    Column::sometimes(
        "refused_next",
        DataType::Utf8View,
        "Reason against a merge with the next VMA; null if they merge or are not adjacent.",
    ),
];

/// The rows that were not handed out yet.
pub(crate) struct Merges {
    schema: SchemaRef,
    attempt: UInt64Builder,
    event: UInt64Builder,
    time: UInt64Builder,
    mm: UInt32Builder,
    call: StringViewBuilder,
    start: UInt64Builder,
    end: UInt64Builder,
    policy: StringViewBuilder,
    merge: StringViewBuilder,
    refused_previous: StringViewBuilder,
    refused_next: StringViewBuilder,
    rows: usize,
    attempts: u64,
}

impl Merges {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            attempt: UInt64Builder::new(),
            event: UInt64Builder::new(),
            time: UInt64Builder::new(),
            mm: UInt32Builder::new(),
            call: strings(),
            start: UInt64Builder::new(),
            end: UInt64Builder::new(),
            policy: strings(),
            merge: strings(),
            refused_previous: strings(),
            refused_next: strings(),
            rows: 0,
            attempts: 0,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds an attempt, made by the event at this position.
    pub(crate) fn add(&mut self, position: u64, time: Option<u64>, attempted: &Attempted) {
        self.attempts += 1;
        for judged in &attempted.verdicts {
            self.attempt.append_value(self.attempts);
            self.event.append_value(position);
            self.time.append_option(time);
            self.mm.append_option(attempted.mm.map(|mm| mm.0));
            self.call.append_value(attempted.call);
            self.start.append_value(attempted.start);
            self.end.append_value(attempted.end);
            self.policy.append_value(judged.policy);
            self.merge.append_option(judged.merged);
            self.refused_previous.append_option(judged.refused_previous);
            self.refused_next.append_option(judged.refused_next);
            self.rows += 1;
        }
    }

    pub(crate) fn finish(&mut self) -> RecordBatch {
        self.rows = 0;
        batch(
            &self.schema,
            &mut [
                &mut self.attempt,
                &mut self.event,
                &mut self.time,
                &mut self.mm,
                &mut self.call,
                &mut self.start,
                &mut self.end,
                &mut self.policy,
                &mut self.merge,
                &mut self.refused_previous,
                &mut self.refused_next,
            ],
        )
    }
}
