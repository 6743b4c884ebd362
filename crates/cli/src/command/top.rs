//! `vmarea top`: processes and their numbers of mappings relative to the limit.

use crate::dashboard;
use anyhow::Context;
use clap::Args;
use std::io::{self, IsTerminal};
use std::time::Duration;
use vmarea_explain::rows::Table;
use vmarea_explain::text::count;
use vmarea_explain::top::{Look, Sampler, openmetrics};
use vmarea_process::kernel;
use vmarea_terminal::console::Console;
use vmarea_terminal::duration::{OF_INTERVALS, length};
use vmarea_terminal::exit::{Exit, Result};
use vmarea_terminal::kind::Kind;
use vmarea_terminal::outputs::{JsonArg, Output, Target, text_to_stdout};

/// Show the processes with the most mappings relative to the limit, and update them continuously.
///
/// Reads the lists of mappings of all processes that you are allowed to inspect, but never smaps.
/// MERGEABLE counts the mappings that all repairs of `vmarea merge` together would save, as
/// `vmarea explain -p PID` does; it is `-` where these lists do not show it and the kernel's own data
/// cannot be read. Enter explains the selected process. Press ? for the other keys. However many processes
/// there are, the samples take at most 5 % of one core: if need be, the interval becomes longer.
#[derive(Debug, Args)]
pub struct Top {
    /// Take one sample and exit, as without a terminal; without this option, --json writes one line
    /// per sample
    #[arg(long)]
    once: bool,

    /// Time between two samples, at least (500ms, 2s, 1m)
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = length(OF_INTERVALS))]
    interval: Duration,

    /// Number of processes to show; 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value = "40")]
    processes: usize,

    #[command(flatten)]
    json: JsonArg,

    /// Write OpenMetrics text to FILE at each sample, for the textfile collector of Prometheus'
    /// node exporter; the file is replaced atomically
    #[arg(long, value_name = "FILE|-", conflicts_with = "json")]
    openmetrics: Option<Target>,
}

impl Top {
    pub(super) fn run(&self, console: &Console) -> Result {
        let mut sampler = Sampler::default();
        let quiet = self.json.json.is_some() || self.openmetrics.is_some();
        let once = self.once || !quiet && !io::stdout().is_terminal();
        if !once && !quiet {
            dashboard::show(&mut sampler, self.interval, console)?;
            return Ok(Exit::Ok);
        }
        if let Some(remark) = kernel::rules().remark() {
            console.note(&remark);
        }
        loop {
            let look = sampler.look().context("cannot list the processes")?;
            self.print(console, look)?;
            if once {
                return Ok(Exit::Ok);
            }
            std::thread::sleep(sampler.pause(self.interval));
        }
    }

    fn print(&self, console: &Console, mut look: Look) -> Result<()> {
        if self.processes > 0 {
            look.rows.truncate(self.processes);
        }
        if let Some(target) = &self.json.json {
            return Output::open(target, Kind::JSON)?.write_json(console, &look);
        }
        match &self.openmetrics {
            Some(target) => write_openmetrics(console, target, &look),
            None => text_to_stdout(console, |out| {
                table(console, &look).write_text(out)?;
                writeln!(out, "{}", dashboard::summary(&look))
            }),
        }
    }
}

fn write_openmetrics(console: &Console, target: &Target, look: &Look) -> Result<()> {
    let mut text = String::new();
    openmetrics::write(look, &mut text)?;
    Output::open(target, Kind::OPENMETRICS)?.write(console, text.as_bytes())
}

fn table(console: &Console, look: &Look) -> Table {
    let rows = look.rows.iter().map(|row| {
        vec![
            row.pid.to_string(),
            count(row.mappings),
            format!("{:.1} %", row.percent_of_limit),
            row.joinable.map_or_else(|| "-".to_owned(), count),
            console.size(row.virtual_bytes).to_string(),
            row.user.clone(),
            row.name.clone(),
        ]
    });
    Table {
        headings: vec![
            "PID",
            "MAPPINGS",
            "OF LIMIT",
            "MERGEABLE",
            "SIZE",
            "USER",
            "NAME",
        ],
        rows: rows.collect(),
    }
}
