//! `vmarea trace dump`: the events of a trace, one per line.

use super::{failure, open};
use clap::Args;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Result};
use vmarea_terminal::fit::{self, Fitted};
use vmarea_terminal::kind::Kind;
use vmarea_terminal::outputs::{Output, Target};
use vmarea_trace::{Reader, dump};

/// Print the events of a trace, one per line.
#[derive(Debug, Args)]
pub struct Dump {
    /// The trace file
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// Write JSON to FILE, or without FILE (or with `-`) to standard output in place of the text:
    /// the header, then one line per event
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = "-")]
    json: Option<Target>,
}

impl Dump {
    pub(super) fn run(&self, console: &Console) -> Result {
        let reader = open(&self.trace)?;
        match Output::open_if_given(self.json.as_ref(), Kind::JSON)? {
            None => {
                let mut data = BufWriter::new(console.data());
                let mut out = Fitted::new(&mut data, fit::width(&io::stdout()));
                dump::dump(reader, &mut out).map_err(|error| failure(&self.trace, error))?;
                out.finish()?;
                data.flush()?;
            }
            Some(Output::Stdout) => self.dump_json(reader, BufWriter::new(console.data()))?,
            Some(Output::Draft(mut draft)) => {
                let dumped = self.dump_json(reader, BufWriter::new(draft.file()));
                draft.keep(console, dumped)?;
            }
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
