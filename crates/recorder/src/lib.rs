//! Records the address-space operations of a command and its descendants.
//!
//! A seccomp filter stops the command's threads only at calls that change an address space.
//! `ptrace` reads arguments and results. Perf rings deliver page faults and lock acquisitions.
//! `/proc` and a BPF iterator show the resulting mappings. The recorder orders all of this into
//! one stream of [`Event`]s and passes it to the caller's [`Sink`]. `vmarea-replay` interprets the
//! stream.
//!
//! # Picture
//! ```text
//!   filter (table) -> stops -> tracer --- calls, tasks, snapshots --\
//!                                                                    timeline -> Sink
//!   perf rings ----------------------- faults, locks taken ---------/
//! ```
//!
//! # Invariants
//! [`attach`] records a process that is already running, which has no filter and therefore stops at
//! every system call. That process runs on without the recorder: see [`RecordBy`].
//!
//! The command does not notice the recorder: signals, job control, exit status and standard streams
//! pass through unchanged; `docs/differences.md` lists the exceptions. A seccomp filter cannot be removed, and without a tracer every call that
//! it stops fails with `ENOSYS`, so the recorder traces every thread until it exits. The recording
//! lasts until the last task of the tree has exited. If the recorder itself is killed, the kernel
//! kills the process tree as well (`PTRACE_O_EXITKILL`).
//!
//! # Linux
//! The recorder does not see writes to `/proc/PID/mem`, direct I/O through `io_uring`, calls that a
//! `SECCOMP_RET_USER_NOTIF` supervisor lets continue, memory calls made by 32-bit code, or pages
//! that a userfaultfd fills. A recorded process cannot trace other processes, because a task has
//! only one tracer. This rules out debuggers, `strace` and AddressSanitizer's leak check, which
//! traces its own threads.
#![forbid(unsafe_code)]

mod actions;
mod aio_ring;
mod attach;
mod attachment;
mod call_queue;
mod call_range;
mod call_rings;
mod call_table;
mod calls;
mod clock;
mod clone_untraced;
mod command;
mod creation;
mod deferral;
mod emitter;
mod exit;
mod files;
mod filter;
mod filter_stop;
mod finish;
mod kernel_access;
mod lifecycle;
mod mapped_files;
mod mapping_calls;
mod memory;
mod observe;
mod observed_calls;
mod pauses;
mod pid_namespace;
mod program_filters;
mod resample;
mod residence;
mod resumption;
pub mod samples;
mod settings_watch;
mod signals;
mod sleep;
mod snapshot;
mod sources;
mod stops;
mod tasks;
mod throttle;
mod timeline;
mod tracer;

pub use attach::{AttachOptions, attach};

use std::ffi::OsString;
use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;
use vmarea_trace::event::{Event, Header};

/// Receiver of a recording's events.
pub trait Sink {
    /// Receives the header: all data known before the first event.
    ///
    /// The recorder calls this method once, before all others.
    ///
    /// # Errors
    /// Any failure to store the header. The recording then ends with [`RecordError::Sink`].
    fn header(&mut self, header: &Header) -> io::Result<()> {
        let _ = header;
        Ok(())
    }

    /// Receives the next event.
    ///
    /// # Errors
    /// Any failure to store the event, for example a full disk. The command then continues
    /// unrecorded, and the recording ends with [`RecordError::Sink`].
    fn event(&mut self, event: &Event) -> io::Result<()>;

    /// Lets a sink flush its buffers. Called several times a second, even without events.
    ///
    /// # Errors
    /// The same as for [`Sink::event`].
    fn tick(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Receives the stack of a thread at a call, if [`Options::stacks`] requests it.
    ///
    /// The recorder calls this method once for each call that becomes an event, in the order of the
    /// thread's calls, while the thread is stopped at the end of the call. The event itself
    /// follows later.
    fn stack(&mut self, stack: &CallStack) {
        let _ = stack;
    }
}

/// The stack of a thread at a call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallStack {
    /// Id of the thread.
    pub tid: i32,
    /// Thread group of the thread.
    pub pid: i32,
    /// Id of the thread's address space, as used in events.
    pub mm: u32,
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer register; a general-purpose register if the program has no frame pointers.
    pub bp: u64,
    /// Stack memory from the stack pointer upwards, as much as could be copied.
    pub bytes: Vec<u8>,
}

impl Sink for Vec<Event> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.push(event.clone());
        Ok(())
    }
}

/// Options of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Command line: the path of the program, and its arguments.
    pub command: Vec<OsString>,
    /// Number of calls between periodic snapshots of an address space; `None` disables them.
    pub checkpoint: Option<NonZeroU64>,
    /// Whether to record page faults.
    pub faults: Faults,
    /// Whether to read the kernel's own view of address spaces.
    pub kernel_view: InKernel,
    /// Whether to copy stacks at calls.
    pub stacks: Stacks,
    /// Method of recording.
    pub by: RecordBy,
}

/// Method of recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RecordBy {
    /// `Observing` if it is permitted and the other options need no stops, otherwise `Tracing`.
    ///
    /// A note gives the reason, except for a command that an ordinary user starts.
    #[default]
    Auto,
    /// `ptrace`: threads stop at calls that change an address space. A process that was running
    /// before stops at each system call. Permitted to the owner of the process.
    Tracing,
    /// BPF programs: no thread stops at the calls that programs make often. Permitted to root.
    ///
    /// A program that [`record`] starts still stops when it executes a program, creates a task,
    /// maps a file or exits. A process that was running before does not stop at all. It is recorded
    /// from the first moment on at which none of its threads is inside a call that changes its
    /// address space. If there is no such moment, `ptrace` stops the threads once.
    ///
    /// If a program that [`record`] starts makes calls faster than the recorder can handle them, the
    /// recorder stops the threads from time to time. If calls are lost nevertheless, the address
    /// spaces end in the trace where the first call may be missing, and are recorded anew, as others,
    /// from a list of their mappings on; with [`Stacks::Copy`], the trace ends. A note says so.
    Observing,
}

/// Whether the recorder copies the stack at each recorded call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stacks {
    /// Do not copy stacks.
    #[default]
    Skip,
    /// Copy up to 16 KiB of stack per call and pass the copy to [`Sink::stack`].
    Copy,
}

/// Whether the recorder records page faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Faults {
    /// Use the best permitted source; if none is permitted, add a note to the trace.
    #[default]
    Record,
    /// Do not record page faults.
    Skip,
}

/// Whether snapshots include the kernel's own view of the address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InKernel {
    /// Read the kernel's view if permitted; otherwise add a note to the trace.
    #[default]
    Read,
    /// Do not read the kernel's view.
    Skip,
}

/// Progress of a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Counters, reported at intervals.
    Counts(Counts),
    /// A note for the user, which is also part of the trace.
    Note(String),
    /// The command has exited. The recording waits for descendants that are still running.
    CommandEnded {
        /// Wait status of the command from `wait4`.
        status: i32,
        /// Process IDs of the descendants that are still running.
        left: Vec<i32>,
    },
    /// The process that the recorder attached to has exited, which ends the recording.
    ProcessEnded,
}

/// Counters of a recording so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Number of events of all kinds.
    pub events: u64,
    /// Number of system calls.
    pub calls: u64,
    /// Number of page faults.
    pub faults: u64,
    /// Number of memory accesses that caused no page fault.
    pub touches: u64,
    /// Number of lost samples.
    pub lost: u64,
    /// Number of address spaces.
    pub address_spaces: u64,
    /// Number of threads currently traced.
    pub tasks: u64,
}

/// A complete recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Wait status of the command or process from `wait4`; 0 if the process still runs.
    pub status: i32,
    /// Final counters.
    pub counts: Counts,
    /// Notes for the user, in order.
    pub notes: Vec<String>,
}

/// Error from a recording that failed or is incomplete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The caller specified no command.
    #[error("no command to record: give one after --")]
    NoCommand,
    /// The program does not exist.
    #[error("{0}: command not found: check the name, or give a path")]
    NotFound(String),
    /// The program cannot be executed.
    #[error("{path}: cannot be executed: {cause}")]
    NotExecutable {
        /// Path of the program.
        path: PathBuf,
        /// Error from the attempt to execute the program.
        cause: io::Error,
    },
    /// A set-user-ID or set-group-ID program would be traced by an ordinary user.
    ///
    /// The kernel ignores the set-user-ID and set-group-ID bits if an ordinary user traces the
    /// program.
    #[error("{0}: only root can record set-user-ID programs: run vmarea as root")]
    Setuid(PathBuf),
    /// The program is not 64-bit.
    #[error("{0}: a 32-bit program cannot be recorded: use a 64-bit build of it")]
    ThirtyTwoBit(PathBuf),
    /// `ptrace` is not permitted.
    #[error(
        "tracing is not permitted: {0} (is vmarea itself being traced, or running in a container \
         without CAP_SYS_PTRACE?)"
    )]
    TracingForbidden(io::Error),
    /// The command cannot be started.
    #[error("cannot start the command: {0}")]
    Start(io::Error),
    /// There is no process with this id.
    #[error(
        "there is no process {0} (inside of a container it has another number: see NSpid in \
         /proc/*/status)"
    )]
    NoProcess(i32),
    /// The process ended before the recording could begin.
    #[error("process {0} has ended")]
    Ended(i32),
    /// The process executed a program while its threads were being seized.
    #[error("process {0} has executed another program meanwhile: try again")]
    Executed(i32),
    /// The id is that of a thread, not of a process.
    #[error("{tid} is a thread of process {pid}: give the number of the process")]
    Thread {
        /// The given id.
        tid: i32,
        /// The process to which the thread belongs.
        pid: i32,
    },
    /// The process is a kernel thread.
    #[error("process {0} is a kernel thread: it has no mappings")]
    KernelThread(i32),
    /// The process is the recorder itself.
    #[error("process {0} is vmarea itself, which cannot record itself")]
    OwnProcess(i32),
    /// Another program traces the process.
    #[error("process {pid} is traced by process {tracer} already: end that first")]
    TracedAlready {
        /// The process to record.
        pid: i32,
        /// The process that traces it.
        tracer: i32,
    },
    /// The caller is not permitted to trace the process.
    #[error("no permission to trace process {pid}: needs CAP_SYS_PTRACE ({remedy})")]
    NotPermitted {
        /// The process to record.
        pid: i32,
        /// Advice on how to get the permission.
        remedy: String,
    },
    /// The process to attach to runs a 32-bit program.
    #[error("process {0} runs a 32-bit program, which cannot be recorded")]
    ThirtyTwoBitProcess(i32),
    /// The kernel does not let the caller observe the process.
    #[error("the process cannot be observed without stopping it: {0}")]
    NotObservable(samples::SamplesError),
    /// A thread of the process does not stop.
    #[error(
        "thread {tid} of process {pid} does not stop (it may be waiting for a device, or for a \
         child of vfork): try again later"
    )]
    DoesNotStop {
        /// The process to record.
        pid: i32,
        /// The thread.
        tid: i32,
    },
    /// The rings of all threads need more descriptors than this process may have.
    #[error(
        "too many open files: the threads of the process need about {needed}, and {limit} are \
         permitted (ulimit -n {needed})"
    )]
    TooManyFiles {
        /// Number of descriptors that are needed.
        needed: u64,
        /// The limit.
        limit: u64,
    },
    /// The recorder itself failed.
    #[error("cannot follow the command: {0}")]
    Follow(io::Error),
    /// The sink accepts no more events.
    #[error("{}", of_sink(.0))]
    Sink(io::Error),
}

/// Returns the message about a sink's error. An error of the trace says by itself what it is about.
fn of_sink(error: &io::Error) -> String {
    match error.get_ref() {
        Some(inner) if inner.is::<vmarea_trace::Error>() => inner.to_string(),
        _ if error.raw_os_error() == Some(libc::EMFILE) => {
            format!("cannot write the trace: {error}: raise the limit (ulimit -n)")
        }
        _ => format!("cannot write the trace: {error}"),
    }
}

impl RecordError {
    /// True if a permission is missing; the message names it.
    pub fn is_permission(&self) -> bool {
        use samples::SamplesError;
        matches!(
            self,
            RecordError::TracingForbidden(_)
                | RecordError::Setuid(_)
                | RecordError::TracedAlready { .. }
                | RecordError::NotPermitted { .. }
                | RecordError::NotObservable(
                    SamplesError::Permission { .. } | SamplesError::CallsForbidden,
                )
        )
    }
}

/// Runs a command, records it and its descendants, and passes the events to `sink`.
///
/// Returns when the last descendant has exited. Several threads can record at once: each recording
/// follows only its own children. During the recording `SIGINT`, `SIGQUIT`, `SIGHUP` and `SIGTERM`
/// are meant for the command: if only this process receives such a signal, it forwards the signal.
/// Two interrupts within a second, or a second `SIGTERM`, kill the process tree; the recording is
/// complete nevertheless.
///
/// # Errors
/// See [`RecordError`]. After [`RecordError::Sink`] the command has run to its end.
pub fn record(
    options: &Options,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, RecordError> {
    tracer::Tracer::start(options, sink, progress)?.follow()
}
