//! The commands, one file each.

mod compare;
mod explain;
mod export;
mod keep_merged;
mod merge;
mod record;
mod recording;
mod replay;
mod replaying;
mod run;
#[cfg(feature = "schema")]
pub mod schemas;
mod show;
mod top;
mod trace;

use anyhow::anyhow;
use clap::Subcommand;
use vmarea_process::processes;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::Result;

/// The commands.
///
/// The help text is on the argument types; a doc comment on a variant would hide all but its first
/// line.
#[derive(Debug, Subcommand)]
pub enum Command {
    Explain(explain::Explain),
    Merge(merge::Merge),
    Top(top::Top),
    Run(run::Run),
    Record(record::Record),
    Replay(replay::Replay),
    Compare(compare::Compare),
    /// Show an address space: its mappings, its anatomy, or its graph of anon_vmas
    #[command(subcommand)]
    Show(show::Show),
    Export(export::Export),
    /// Inspect trace files, or convert other tools' logs to them
    #[command(subcommand)]
    Trace(trace::Trace),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// Fails if the command fails; the failure carries its exit status.
    pub fn run(&self, console: &Console) -> Result {
        if self.looks_at_processes() && !processes::are_shown() {
            let how = "mount it: mount -t proc proc /proc";
            return Err(anyhow!("/proc shows no processes: {how}").into());
        }
        match self {
            Self::Run(run) => run.run(console),
            Self::Record(record) => record.run(console),
            Self::Replay(replay) => replay.run(console),
            Self::Compare(compare) => compare.run(console),
            Self::Explain(explain) => explain.run(console),
            Self::Show(show) => show.run(console),
            Self::Merge(merge) => merge.run(console),
            Self::Top(top) => top.run(console),
            Self::Export(export) => export.run(console),
            Self::Trace(trace) => trace.run(console),
        }
    }

    /// True if the command inspects processes and so needs `/proc`; commands that only read files
    /// do not.
    fn looks_at_processes(&self) -> bool {
        match self {
            Self::Run(_) | Self::Record(_) | Self::Merge(_) | Self::Top(_) => true,
            Self::Explain(explain) => !explain.reads_a_file(),
            Self::Show(show) => !show.reads_a_file(),
            Self::Replay(_) | Self::Compare(_) | Self::Export(_) | Self::Trace(_) => false,
        }
    }
}
