//! `vmarea show maps`: the mappings of a process.

use super::target::TargetArgs;
use crate::console::Console;
use crate::exit::{Exit, Result};
use crate::outputs::JsonArg;
use clap::Args;
use vmarea_process::mappings::Smaps;
use vmarea_report::maps;

/// List the mappings of a process, with details that only the kernel knows.
///
/// In addition to /proc's data, shows the page offset, the flags by name, and the anon_vma of each
/// mapping as a number. These details need the kernel's own data (CAP_BPF and CAP_PERFMON, or root)
/// or a recording that contains them.
#[derive(Debug, Args)]
pub struct Maps {
    #[command(flatten)]
    pub(super) target: TargetArgs,

    /// Also read smaps, which shows resident memory; takes seconds for a large process
    #[arg(long, requires = "pid")]
    rss: bool,

    #[command(flatten)]
    json: JsonArg,
}

impl Maps {
    pub(super) fn run(&self, console: &Console) -> Result {
        let outputs = self.json.open()?;
        let smaps = if self.rss {
            Smaps::Always
        } else {
            Smaps::Never
        };
        let shown = self.target.shown(console, smaps)?;
        let maps = maps::Maps::new(&shown);
        let size = |bytes| console.size(bytes).to_string();
        outputs.write(console, &maps, |out| maps.write_text(out, &size))?;
        Ok(Exit::Ok)
    }
}
