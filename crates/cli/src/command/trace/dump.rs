//! `vmarea trace dump`: the events of a trace, one a line.

use super::{failure, open};
use crate::console::Console;
use crate::exit::{Exit, Result};
use clap::Args;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use vmarea_trace::{Reader, dump};

/// Print the events of a trace, one a line.
#[derive(Debug, Args)]
pub struct Dump {
    /// The trace file
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// Print each event as a line of JSON, the header first
    #[arg(long)]
    json: bool,
}

impl Dump {
    pub(super) fn run(&self, console: &Console) -> Result {
        let reader = open(&self.trace)?;
        let out = BufWriter::new(console.data());
        if self.json {
            self.dump_json(reader, out)?;
        } else {
            dump::dump(reader, out).map_err(|error| failure(&self.trace, error))?;
        }
        Ok(Exit::Ok)
    }

    fn dump_json(&self, reader: Reader<File>, mut out: impl Write) -> Result<()> {
        writeln!(out, "{}", serde_json::to_string(reader.header())?)?;
        for event in reader {
            let event = event.map_err(|error| failure(&self.trace, error))?;
            writeln!(out, "{}", serde_json::to_string(&event)?)?;
        }
        out.flush()?;
        Ok(())
    }
}
