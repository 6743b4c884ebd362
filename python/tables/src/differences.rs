//! The table of differences from the kernel.

use crate::column::Column;
use crate::columns::{batch, strings};
use arrow_array::RecordBatch;
use arrow_array::builder::{StringViewBuilder, UInt32Builder, UInt64Builder};
use arrow_schema::{DataType, SchemaRef};
use vmarea_replay::Difference;

pub(crate) const COLUMNS: [Column; 9] = [
    Column::always(
        "event",
        DataType::UInt64,
        "Position in the trace, counted from 1, of the event that shows the difference.",
    ),
    Column::always(
        "mm",
        DataType::UInt32,
        "The trace's number for the address space.",
    ),
    Column::always(
        "cause",
        DataType::Utf8View,
        "Description, equal for all differences with the same cause.",
    ),
    Column::sometimes(
        "call",
        DataType::Utf8View,
        "The call whose result differs, with its arguments.",
    ),
    Column::sometimes(
        "call_before",
        DataType::Utf8View,
        "The call before it in this address space.",
    ),
    Column::sometimes(
        "list_read_after",
        DataType::Utf8View,
        "The last call before the kernel's list of mappings was read, if the lists differ.",
    ),
    Column::always("kernel", DataType::Utf8View, "The kernel's result."),
    Column::always("vmarea", DataType::Utf8View, "The core's result."),
    Column::sometimes(
        "reason",
        DataType::Utf8View,
        "The core's reason for its result, if it is known.",
    ),
];

/// The rows that were not handed out yet.
pub(crate) struct Differences {
    schema: SchemaRef,
    event: UInt64Builder,
    mm: UInt32Builder,
    texts: [StringViewBuilder; 7],
    rows: usize,
}

impl Differences {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            event: UInt64Builder::new(),
            mm: UInt32Builder::new(),
            texts: std::array::from_fn(|_| strings()),
            rows: 0,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn add(&mut self, difference: &Difference) {
        let Difference {
            event,
            mm,
            cause,
            call,
            call_before,
            list_read_after,
            kernel,
            ours,
            reason,
        } = difference;
        self.event.append_value(*event);
        self.mm.append_value(*mm);
        let texts = [
            Some(cause),
            call.as_ref(),
            call_before.as_ref(),
            list_read_after.as_ref(),
            Some(kernel),
            Some(ours),
            reason.as_ref(),
        ];
        for (column, text) in self.texts.iter_mut().zip(texts) {
            column.append_option(text);
        }
        self.rows += 1;
    }

    pub(crate) fn finish(&mut self) -> RecordBatch {
        self.rows = 0;
        let [cause, call, before, list, kernel, ours, reason] = &mut self.texts;
        batch(
            &self.schema,
            &mut [
                &mut self.event,
                &mut self.mm,
                cause,
                call,
                before,
                list,
                kernel,
                ours,
                reason,
            ],
        )
    }
}
