//! The table of VMAs, with the events that made and ended each of them.

use crate::column::Column;
use crate::columns::{batch, strings};
use arrow_array::RecordBatch;
use arrow_array::builder::{StringViewBuilder, UInt32Builder, UInt64Builder};
use arrow_schema::{DataType, SchemaRef};
use vmarea_replay::Replayer;
use vmarea_replay::lifetimes::{Lifetime, Lifetimes as Following, Moment};
use vmarea_trace::event::MmId;

pub(crate) const COLUMNS: [Column; 14] = [
    Column::always(
        "policy",
        DataType::Utf8View,
        "Name of the policy; `linux` stands for the recorded kernel's rules.",
    ),
    Column::always(
        "vma",
        DataType::UInt64,
        "Number of the VMA under this policy, counted from 1 in the order in which they were made.",
    ),
    Column::always(
        "mm",
        DataType::UInt32,
        "The trace's number for the address space.",
    ),
    Column::always(
        "made",
        DataType::UInt64,
        "Position in the trace, counted from 1, of the event that made the VMA, which is the first \
         list of mappings if the recording found the VMA there.",
    ),
    Column::sometimes(
        "made_time",
        DataType::UInt64,
        "Time of this event in nanoseconds of `CLOCK_MONOTONIC`.",
    ),
    Column::sometimes(
        "ended",
        DataType::UInt64,
        "Position of the event that ended the VMA: it was unmapped, another VMA took it in, or the \
         address space ended; null if it exists at the end of the trace.",
    ),
    Column::sometimes(
        "ended_time",
        DataType::UInt64,
        "Time of this event in nanoseconds of `CLOCK_MONOTONIC`.",
    ),
    Column::always(
        "start",
        DataType::UInt64,
        "First address of the VMA when it was made.",
    ),
    Column::always("end", DataType::UInt64, "Address after this range."),
    Column::always(
        "last_start",
        DataType::UInt64,
        "First address before the VMA ended; it may have grown, shrunk or taken in others.",
    ),
    Column::always("last_end", DataType::UInt64, "Address after this range."),
    Column::always(
        "perm",
        DataType::Utf8View,
        "Permissions when it was made, as in `/proc/PID/maps`, for example `rw-p`.",
    ),
    Column::always(
        "offset",
        DataType::UInt64,
        "Offset in the file when it was made, in bytes; for anonymous VMAs the page offset in bytes.",
    ),
    Column::sometimes(
        "inode",
        DataType::UInt32,
        "The trace's number for the file; null for anonymous VMAs, and for files without a number.",
    ),
];

/// The VMAs that exist, and the rows that were not handed out yet.
pub(crate) struct Lifetimes {
    following: Option<Following>,
    rows: Rows,
}

/// The rows that were not handed out yet.
struct Rows {
    schema: SchemaRef,
    policy: StringViewBuilder,
    vma: UInt64Builder,
    mm: UInt32Builder,
    made: [UInt64Builder; 2],
    ended: [UInt64Builder; 2],
    first: [UInt64Builder; 2],
    last: [UInt64Builder; 2],
    perm: StringViewBuilder,
    offset: UInt64Builder,
    inode: UInt32Builder,
    count: usize,
}

impl Lifetimes {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        let two = || [UInt64Builder::new(), UInt64Builder::new()];
        let rows = Rows {
            schema,
            policy: strings(),
            vma: UInt64Builder::new(),
            mm: UInt32Builder::new(),
            made: two(),
            ended: two(),
            first: two(),
            last: two(),
            perm: strings(),
            offset: UInt64Builder::new(),
            inode: UInt32Builder::new(),
            count: 0,
        };
        let following = None;
        Self { following, rows }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows.count
    }

    /// Starts to follow the VMAs of a replay, before its first event.
    pub(crate) fn follow(&mut self, replayer: &mut Replayer) {
        self.following = Some(replayer.follow_lifetimes());
    }

    /// Adds the VMAs that an event ended.
    pub(crate) fn add(
        &mut self,
        event: u64,
        time: Option<u64>,
        mm: Option<MmId>,
        replayer: &Replayer,
    ) {
        if let Some(following) = &mut self.following {
            let now = Moment { event, time };
            following.event(replayer, now, mm, &mut |lifetime| self.rows.add(&lifetime));
        }
    }

    /// Adds the VMAs that exist at the end of the trace.
    pub(crate) fn add_existing(&mut self, replayer: &Replayer) {
        if let Some(following) = self.following.take() {
            following.finish(replayer, &mut |lifetime| self.rows.add(&lifetime));
        }
    }

    pub(crate) fn finish(&mut self) -> RecordBatch {
        self.rows.finish()
    }
}

impl Rows {
    fn add(&mut self, lifetime: &Lifetime) {
        let Lifetime {
            policy,
            mm,
            number,
            made,
            ended,
            first,
            last,
            perms,
            offset,
            inode,
        } = lifetime;
        self.policy.append_value(policy);
        self.vma.append_value(*number);
        self.mm.append_value(mm.0);
        let [event, time] = &mut self.made;
        event.append_value(made.event);
        time.append_option(made.time);
        let [event, time] = &mut self.ended;
        event.append_option(ended.map(|ended| ended.event));
        time.append_option(ended.and_then(|ended| ended.time));
        for (columns, range) in [(&mut self.first, first), (&mut self.last, last)] {
            let [start, end] = columns;
            start.append_value(range.start);
            end.append_value(range.end);
        }
        self.perm.append_value(perms.to_string());
        self.offset.append_value(*offset);
        self.inode.append_option(inode.map(|inode| inode.0));
        self.count += 1;
    }

    fn finish(&mut self) -> RecordBatch {
        self.count = 0;
        let [made, made_time] = &mut self.made;
        let [ended, ended_time] = &mut self.ended;
        let [start, end] = &mut self.first;
        let [last_start, last_end] = &mut self.last;
        batch(
            &self.schema,
            &mut [
                &mut self.policy,
                &mut self.vma,
                &mut self.mm,
                made,
                made_time,
                ended,
                ended_time,
                start,
                end,
                last_start,
                last_end,
                &mut self.perm,
                &mut self.offset,
                &mut self.inode,
            ],
        )
    }
}
