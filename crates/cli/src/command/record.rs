//! `vmarea record`: records a program or a running process into a trace file.

use super::recording::{self, Attached, Method, Started};
use crate::pid::pid;
use crate::sink::{TRACE, TraceSink};
use clap::Args;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;
use vmarea_recorder::Stacks;
use vmarea_terminal::console::Console;
use vmarea_terminal::duration::{OF_RECORDINGS, length};
use vmarea_terminal::exit::{self, Exit, Result};
use vmarea_terminal::files::Draft;

/// Record a program, or a process that is running, into a trace file.
///
/// The exit status is the program's own. The file grows while the program runs, and remains
/// readable if the disk becomes full or vmarea is killed. As root, the program does not stop at the
/// memory calls that programs make often; otherwise, it stops at each memory call.
///
/// With --pid, joins a process that is running, with all its threads and later children, and leaves
/// it running: after --for, at Ctrl-C, or when it ends. The exit status is then 0. As root, the
/// process is observed by tracepoints and does not stop, except once if its threads are never all
/// outside of memory calls. Otherwise, it stops at each system call. Also reads the kernel's list of
/// mappings at the beginning, every second and at the end; `vmarea replay` compares these lists.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("process").required(true))]
pub struct Record {
    /// The trace file
    #[arg(short, long, value_name = "FILE", default_value = "vmarea.vmtrace")]
    output: PathBuf,

    /// Also read the kernel's list of mappings after every N calls in an address space (for a
    /// program, it is always read after each exec and at the end)
    #[arg(long, value_name = "N")]
    checkpoint: Option<NonZeroU64>,

    /// The running process to join
    #[arg(short, long, value_name = "PID", group = "process", value_parser = pid)]
    pid: Option<i32>,

    /// With --pid: how long to record (500ms, 30s, 5m, 2h; at most 168h)
    #[arg(long = "for", value_name = "TIME", value_parser = length(OF_RECORDINGS), requires = "pid",
          conflicts_with = "command")]
    duration: Option<Duration>,

    /// Method of recording
    #[arg(long, value_name = "METHOD", value_enum, default_value_t)]
    by: Method,

    /// The program and its arguments
    #[arg(last = true, value_name = "-- COMMAND", group = "process")]
    command: Vec<OsString>,
}

impl Record {
    pub(super) fn run(&self, console: &Console) -> Result {
        let mut draft = Draft::create(&self.output, TRACE)?;
        let recorded = self.record(console, &mut draft);
        let (status, bytes) = draft.keep(console, recorded)?;
        console.note(&format!(
            "wrote {} to {path}; next: vmarea replay {path}",
            console.size(bytes),
            path = self.output.display()
        ));
        Ok(match self.pid {
            Some(_) => Exit::Ok,
            None => exit::of_program(status),
        })
    }

    fn record(&self, console: &Console, draft: &mut Draft) -> Result<(i32, u64)> {
        let mut sink = TraceSink::named(draft);
        let outcome = match self.pid {
            Some(pid) => recording::attach(
                console,
                Attached {
                    pid,
                    duration: self.duration,
                    checkpoint: self.checkpoint,
                    stacks: Stacks::Skip,
                    by: self.by,
                },
                &mut sink,
            )?,
            None => recording::record(
                console,
                Started {
                    command: &self.command,
                    checkpoint: self.checkpoint,
                    stacks: Stacks::Skip,
                    by: self.by,
                },
                &mut sink,
            )?,
        };
        for note in &outcome.notes {
            console.note(note);
        }
        let bytes = sink.finish()?;
        Ok((outcome.status, bytes))
    }
}
