//! The table of events.

use crate::column::Column;
use crate::columns::{batch, strings};
use arrow_array::RecordBatch;
use arrow_array::builder::{
    BooleanBuilder, Int32Builder, Int64Builder, StringViewBuilder, UInt32Builder, UInt64Builder,
};
use arrow_schema::{DataType, SchemaRef};
use vmarea_trace::event::{Access, Event, Order, Origin, SnapReason};
use vmarea_trace::sysno;

pub(crate) const COLUMNS: [Column; 24] = [
    Column::always(
        "event",
        DataType::UInt64,
        "Position of the event in the trace, counted from 1.",
    ),
    Column::always(
        "kind",
        DataType::Utf8View,
        "`call`, `fault`, `touch` (an access without a fault), `snapshot` (the kernel's list of \
         mappings), `mm_start`, `mm_end`, `task_start`, `task_end`, `inode`, `lost`, `note` or `end`.",
    ),
    Column::sometimes(
        "time",
        DataType::UInt64,
        "Nanoseconds of `CLOCK_MONOTONIC`. Events are in the order in which they took effect, which \
         is not always that of their times.",
    ),
    Column::sometimes(
        "mm",
        DataType::UInt32,
        "The trace's number for the address space.",
    ),
    Column::sometimes("tid", DataType::Int32, "The thread."),
    Column::sometimes(
        "pid",
        DataType::Int32,
        "`task_start`: the thread group of the thread.",
    ),
    Column::sometimes(
        "call",
        DataType::Utf8View,
        "`call`: name of the system call, if it is one that affects address spaces.",
    ),
    Column::sometimes(
        "number",
        DataType::UInt32,
        "`call`: number of the system call on the recorded machine.",
    ),
    Column::sometimes("arg0", DataType::UInt64, "`call`: first argument."),
    Column::sometimes("arg1", DataType::UInt64, "`call`: second argument."),
    Column::sometimes("arg2", DataType::UInt64, "`call`: third argument."),
    Column::sometimes("arg3", DataType::UInt64, "`call`: fourth argument."),
    Column::sometimes("arg4", DataType::UInt64, "`call`: fifth argument."),
    Column::sometimes("arg5", DataType::UInt64, "`call`: sixth argument."),
    Column::sometimes(
        "result",
        DataType::Int64,
        "`call`: result, or negative errno.",
    ),
    Column::sometimes(
        "address",
        DataType::UInt64,
        "`fault`, `touch`: address of the access.",
    ),
    Column::sometimes(
        "bytes",
        DataType::UInt64,
        "`touch`: length of the access; `inode`: size of the file.",
    ),
    Column::sometimes(
        "access",
        DataType::Utf8View,
        "`fault`, `touch`: `read`, `write`, `exec` or `unknown`.",
    ),
    Column::sometimes(
        "in_kernel",
        DataType::Boolean,
        "`fault`: whether the fault was taken in kernel mode.",
    ),
    Column::sometimes(
        "exact",
        DataType::Boolean,
        "`call`, `fault`, `touch`: whether the position in the trace is certain; `snapshot`: whether \
         all other threads stood still.",
    ),
    Column::sometimes(
        "inode",
        DataType::UInt32,
        "`inode`: the trace's number for the file; `call`: the file behind the descriptor argument.",
    ),
    Column::sometimes(
        "status",
        DataType::Int32,
        "`task_end`, `end`: wait status, as `wait4` returns it.",
    ),
    Column::sometimes(
        "count",
        DataType::UInt64,
        "`snapshot`: number of mappings; `lost`: number of lost samples; `mm_start` after a fork: \
         the address space that was copied.",
    ),
    Column::sometimes(
        "text",
        DataType::Utf8View,
        "`inode`: path; `note`: the remark; `snapshot`: `exec`, `attach`, `checkpoint` or `exit`; \
         `mm_start`: `exec`, `fork` or `attach`.",
    ),
];

/// One row. Fields that do not concern an event are `None`.
#[derive(Default)]
struct Row<'a> {
    kind: &'static str,
    time: Option<u64>,
    mm: Option<u32>,
    tid: Option<i32>,
    pid: Option<i32>,
    number: Option<u32>,
    args: Option<[u64; 6]>,
    result: Option<i64>,
    address: Option<u64>,
    bytes: Option<u64>,
    access: Option<Access>,
    in_kernel: Option<bool>,
    exact: Option<bool>,
    inode: Option<u32>,
    status: Option<i32>,
    count: Option<u64>,
    text: Option<&'a str>,
}

/// The rows that were not handed out yet.
pub(crate) struct Events {
    schema: SchemaRef,
    event: UInt64Builder,
    kind: StringViewBuilder,
    time: UInt64Builder,
    mm: UInt32Builder,
    tid: Int32Builder,
    pid: Int32Builder,
    call: StringViewBuilder,
    number: UInt32Builder,
    args: [UInt64Builder; 6],
    result: Int64Builder,
    address: UInt64Builder,
    bytes: UInt64Builder,
    access: StringViewBuilder,
    in_kernel: BooleanBuilder,
    exact: BooleanBuilder,
    inode: UInt32Builder,
    status: Int32Builder,
    count: UInt64Builder,
    text: StringViewBuilder,
    rows: usize,
}

impl Events {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            event: UInt64Builder::new(),
            kind: strings(),
            time: UInt64Builder::new(),
            mm: UInt32Builder::new(),
            tid: Int32Builder::new(),
            pid: Int32Builder::new(),
            call: strings(),
            number: UInt32Builder::new(),
            args: std::array::from_fn(|_| UInt64Builder::new()),
            result: Int64Builder::new(),
            address: UInt64Builder::new(),
            bytes: UInt64Builder::new(),
            access: strings(),
            in_kernel: BooleanBuilder::new(),
            exact: BooleanBuilder::new(),
            inode: UInt32Builder::new(),
            status: Int32Builder::new(),
            count: UInt64Builder::new(),
            text: strings(),
            rows: 0,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds an event with its position in the trace.
    pub(crate) fn add(&mut self, position: u64, event: &Event) {
        let row = row(event);
        self.event.append_value(position);
        self.kind.append_value(row.kind);
        self.time.append_option(row.time);
        self.mm.append_option(row.mm);
        self.tid.append_option(row.tid);
        self.pid.append_option(row.pid);
        self.call.append_option(row.number.and_then(sysno::name));
        self.number.append_option(row.number);
        for (nr, column) in self.args.iter_mut().enumerate() {
            column.append_option(row.args.map(|args| args[nr]));
        }
        self.result.append_option(row.result);
        self.address.append_option(row.address);
        self.bytes.append_option(row.bytes);
        self.access.append_option(row.access.map(access));
        self.in_kernel.append_option(row.in_kernel);
        self.exact.append_option(row.exact);
        self.inode.append_option(row.inode);
        self.status.append_option(row.status);
        self.count.append_option(row.count);
        self.text.append_option(row.text);
        self.rows += 1;
    }

    pub(crate) fn finish(&mut self) -> RecordBatch {
        self.rows = 0;
        let [arg0, arg1, arg2, arg3, arg4, arg5] = &mut self.args;
        batch(
            &self.schema,
            &mut [
                &mut self.event,
                &mut self.kind,
                &mut self.time,
                &mut self.mm,
                &mut self.tid,
                &mut self.pid,
                &mut self.call,
                &mut self.number,
                arg0,
                arg1,
                arg2,
                arg3,
                arg4,
                arg5,
                &mut self.result,
                &mut self.address,
                &mut self.bytes,
                &mut self.access,
                &mut self.in_kernel,
                &mut self.exact,
                &mut self.inode,
                &mut self.status,
                &mut self.count,
                &mut self.text,
            ],
        )
    }
}

fn row(event: &Event) -> Row<'_> {
    let exact = |order: Order| Some(order == Order::Exact);
    match event {
        Event::Call(call) => Row {
            kind: "call",
            time: Some(call.t),
            mm: Some(call.mm.0),
            tid: Some(call.tid.0),
            number: Some(call.nr),
            args: Some(call.args),
            result: Some(call.ret),
            exact: exact(call.order),
            inode: call.file.map(|file| file.inode.0),
            ..Row::default()
        },
        Event::Fault(fault) => Row {
            kind: "fault",
            time: Some(fault.t),
            mm: Some(fault.mm.0),
            tid: Some(fault.tid.0),
            address: Some(fault.addr),
            access: Some(fault.access),
            in_kernel: Some(fault.kernel),
            exact: exact(fault.order),
            ..Row::default()
        },
        Event::Touch(touch) => Row {
            kind: "touch",
            time: Some(touch.t),
            mm: Some(touch.mm.0),
            tid: Some(touch.tid.0),
            address: Some(touch.addr),
            bytes: Some(touch.len),
            access: Some(touch.access),
            exact: exact(touch.order),
            ..Row::default()
        },
        Event::Snapshot(snapshot) => Row {
            kind: "snapshot",
            time: Some(snapshot.t),
            mm: Some(snapshot.mm.0),
            exact: Some(snapshot.exact),
            count: Some(snapshot.vmas.len() as u64),
            text: Some(reason(snapshot.reason)),
            ..Row::default()
        },
        other => rare_row(other),
    }
}

fn rare_row(event: &Event) -> Row<'_> {
    match event {
        Event::MmStart(start) => {
            let (text, count) = match start.origin {
                Origin::Exec => ("exec", None),
                Origin::Fork { parent } => ("fork", Some(u64::from(parent.0))),
                Origin::Attach => ("attach", None),
            };
            Row {
                kind: "mm_start",
                time: Some(start.t),
                mm: Some(start.mm.0),
                count,
                text: Some(text),
                ..Row::default()
            }
        }
        Event::MmEnd { mm, t } => Row {
            kind: "mm_end",
            time: Some(*t),
            mm: Some(mm.0),
            ..Row::default()
        },
        Event::Inode(inode) => Row {
            kind: "inode",
            bytes: Some(inode.size),
            inode: Some(inode.id.0),
            text: Some(&inode.path),
            ..Row::default()
        },
        Event::Lost { count, t } => Row {
            kind: "lost",
            time: Some(*t),
            count: Some(*count),
            ..Row::default()
        },
        Event::Note(text) => Row {
            kind: "note",
            text: Some(text),
            ..Row::default()
        },
        Event::End { status, t } => Row {
            kind: "end",
            time: Some(*t),
            status: Some(*status),
            ..Row::default()
        },
        other => task_row(other),
    }
}

fn task_row(event: &Event) -> Row<'_> {
    match event {
        Event::TaskStart { tid, pid, mm, t } => Row {
            kind: "task_start",
            time: Some(*t),
            mm: Some(mm.0),
            tid: Some(tid.0),
            pid: Some(pid.0),
            ..Row::default()
        },
        Event::TaskEnd { tid, status, t } => Row {
            kind: "task_end",
            time: Some(*t),
            tid: Some(tid.0),
            status: Some(*status),
            ..Row::default()
        },
        // The other events have their rows above.
        _ => Row::default(),
    }
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::Exec => "exec",
        Access::Unknown => "unknown",
    }
}

fn reason(reason: SnapReason) -> &'static str {
    match reason {
        SnapReason::Exec => "exec",
        SnapReason::Attach => "attach",
        SnapReason::Checkpoint => "checkpoint",
        SnapReason::Exit => "exit",
    }
}
