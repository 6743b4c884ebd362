//! `vmarea show maps`: the mappings of a process.

use super::page;
use super::target::TargetArgs;
use clap::Args;
use vmarea_process::mappings::Smaps;
use vmarea_report::maps;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Result};
use vmarea_terminal::kind::Kind;
use vmarea_terminal::outputs::{JsonArg, Output, Outputs, PageArg};

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

    #[command(flatten)]
    page: PageArg,
}

impl Maps {
    pub(super) fn run(&self, console: &Console) -> Result {
        let html = self.page.html.as_ref();
        let outputs = Outputs::open_beside(self.json.json.as_ref(), &[html])?;
        let html = Output::open_if_given(html, Kind::HTML)?;
        let smaps = if self.rss {
            Smaps::Always
        } else {
            Smaps::Never
        };
        let shown = self.target.shown(console, smaps)?;
        let maps = maps::Maps::new(&shown);
        let size = |bytes| console.size(bytes).to_string();
        outputs.write(console, &maps, |out| maps.write_text(out, &size))?;
        if let Some(html) = html {
            html.write(console, page::page(&shown).as_bytes())?;
        }
        Ok(Exit::Ok)
    }
}
