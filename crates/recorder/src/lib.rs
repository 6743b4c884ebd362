//! The recorder: what a command and everything that it starts does to its address spaces.
//!
//! A seccomp filter stops the threads of the command at the calls that change an address space and
//! nowhere else; `ptrace` reads arguments and results; page faults and lock acquisitions come from
//! perf rings; `/proc` and a BPF iterator show the resulting mappings. The recorder orders all of it
//! into one stream of [`Event`]s and hands it to the caller's [`Sink`]. `replay` interprets it.
//!
//! # Picture
//! ```text
//!   filter (table) -> stops -> tracer --- calls, tasks, looks --\
//!                                                                timeline -> Sink
//!   perf rings ---------------------- faults, locks taken ------/
//! ```
//!
//! # Invariants
//! The command does not notice: signals, job control, exit status and standard streams pass
//! untouched. A filter cannot be taken off, and without a tracer every call in it fails with
//! `ENOSYS`; so a program is never left behind untraced. The recording goes on until the last
//! task of the tree has gone, and if the recorder itself is killed the tree goes with it
//! (`PTRACE_O_EXITKILL`) rather than run on in pieces.
//!
//! # Linux
//! Not seen: writes to `/proc/PID/mem`, direct input by `io_uring`, calls that a supervisor of
//! `SECCOMP_RET_USER_NOTIF` lets continue, memory calls of 32-bit code, pages that a userfaultfd
//! fills. What cannot be done while recorded: tracing others (a debugger, `strace`, the leak check
//! of AddressSanitizer, which traces its own threads), for a task has one tracer.
#![forbid(unsafe_code)]

mod call_range;
mod call_table;
mod calls;
mod clone_untraced;
mod command;
mod emitter;
mod files;
mod filter;
mod filter_stop;
mod kernel_access;
mod lifecycle;
mod mapped_files;
mod mapping_calls;
mod memory;
mod pid_namespace;
mod program_filters;
mod resample;
mod residence;
pub mod samples;
mod signals;
mod snapshot;
mod sources;
mod stops;
mod tasks;
mod timeline;
mod tracer;

use std::ffi::OsString;
use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;
use vmarea_trace::event::{Event, Header};

/// Where events go.
pub trait Sink {
    /// Takes what is known before the first event. Called once, first.
    ///
    /// # Errors
    /// Whatever keeps it from being taken; the recording then ends with
    /// [`RecordError::Sink`].
    fn header(&mut self, header: &Header) -> io::Result<()> {
        let _ = header;
        Ok(())
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// Whatever keeps it from being taken, for example a full disk. The command runs on
    /// unrecorded, and the recording then ends with [`RecordError::Sink`].
    fn event(&mut self, event: &Event) -> io::Result<()>;

    /// Called some times a second while the command runs, whether there are events or not: for a
    /// sink that keeps some back.
    ///
    /// # Errors
    /// As [`Sink::event`].
    fn tick(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Takes the stack of a thread at a call, where [`Options::stacks`] asks for it: once for each
    /// call that becomes an event, in the order of the thread's calls, while the thread stands at
    /// the end of it. The event comes later.
    fn stack(&mut self, stack: &CallStack) {
        let _ = stack;
    }
}

/// The stack of a thread at a call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallStack {
    /// The thread.
    pub tid: i32,
    /// Its thread group.
    pub pid: i32,
    /// Number of its address space, as events have it.
    pub mm: u32,
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer, if the program keeps one there.
    pub bp: u64,
    /// The memory from the stack pointer upwards, as much as was copied.
    pub bytes: Vec<u8>,
}

impl Sink for Vec<Event> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.push(event.clone());
        Ok(())
    }
}

/// What to record, and how.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Look at an address space after every so many calls of it.
    pub checkpoint: Option<NonZeroU64>,
    /// Page faults.
    pub faults: Faults,
    /// The kernel's own view of address spaces.
    pub kernel_view: InKernel,
    /// Stacks at calls.
    pub stacks: Stacks,
}

/// Whether the stack is copied at each call that is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stacks {
    /// Not at all.
    #[default]
    Skip,
    /// Up to 16 KiB of it, for [`Sink::stack`].
    Copy,
}

/// Whether page faults are recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Faults {
    /// With the best source that is permitted; without any a note says so.
    #[default]
    Record,
    /// Not at all.
    Skip,
}

/// Whether the kernel's own view is read with the maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InKernel {
    /// Where it is permitted; otherwise a note says so.
    #[default]
    Read,
    /// Not at all.
    Skip,
}

/// How far a recording is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Now and then.
    Counts(Counts),
    /// A remark for people, which is in the trace as well.
    Note(String),
    /// The command has ended with this wait status, and left these processes running, for which
    /// the recording waits.
    CommandEnded {
        /// As `wait4` gives it.
        status: i32,
        /// Processes that run on.
        left: Vec<i32>,
    },
}

/// What was recorded so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Events of all kinds.
    pub events: u64,
    /// System calls.
    pub calls: u64,
    /// Page faults.
    pub faults: u64,
    /// Accesses without a fault.
    pub touches: u64,
    /// Samples that were lost.
    pub lost: u64,
    /// Address spaces.
    pub address_spaces: u64,
    /// Threads that are followed now.
    pub tasks: u64,
}

/// A recording that is whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Wait status of the command as `wait4` gives it.
    pub status: i32,
    /// What was recorded.
    pub counts: Counts,
    /// Remarks for people, in order.
    pub notes: Vec<String>,
}

/// Why there is no recording, or only a part of one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is no command.
    #[error("no command to record: give one after --")]
    NoCommand,
    /// The program does not exist.
    #[error("{0}: command not found: check the name, or give a path")]
    NotFound(String),
    /// The program cannot be executed.
    #[error("{path}: cannot be executed: {cause}")]
    NotExecutable {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The program is set-user-ID or set-group-ID, which does nothing when recorded by an
    /// ordinary user.
    #[error("{0}: set-user-ID programs can be recorded by root only: run vmarea as root")]
    Setuid(PathBuf),
    /// The program is not 64-bit.
    #[error("{0}: a 32-bit program cannot be recorded: use a 64-bit build of it")]
    ThirtyTwoBit(PathBuf),
    /// `ptrace` is forbidden.
    #[error(
        "tracing is not permitted: {0} (is vmarea itself being traced, or in a container \
         without CAP_SYS_PTRACE?)"
    )]
    TracingForbidden(io::Error),
    /// The command cannot be started.
    #[error("cannot start the command: {0}")]
    Start(io::Error),
    /// The recorder's own machinery failed.
    #[error("following the command: {0}")]
    Follow(io::Error),
    /// The sink took no more events.
    #[error("writing the trace: {0}")]
    Sink(io::Error),
}

/// Runs a command, records it and all that it starts, and hands the events to `sink`.
///
/// Returns when the last of them has ended. Use it from one thread at a time or from several:
/// each recording follows its own children only. While it runs, `SIGINT`, `SIGQUIT`, `SIGHUP`
/// and `SIGTERM` are the command's: what only this process gets is passed on. An interrupt twice
/// within a second, or a second `SIGTERM`, kills the tree, and the recording is whole nevertheless.
///
/// # Errors
/// See [`RecordError`]. With [`RecordError::Sink`] the command has run to its end.
pub fn record(
    options: &Options,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, RecordError> {
    tracer::Tracer::start(options, sink, progress)?.follow()
}
