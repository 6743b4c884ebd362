//! Imports text from standard input as a trace:
//! `strace -f true 2>&1 >/dev/null | import strace out.vmtrace`. Without the last argument, prints
//! the events instead.

use std::process::ExitCode;
use vmarea_trace::dump::Printer;
use vmarea_trace::import::{Format, Import};
use vmarea_trace::{Error, Writer};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let format = match args.first().map(String::as_str) {
        Some("strace") => Format::Strace,
        Some("perf-script") => Format::PerfScript,
        Some("perf-trace") => Format::PerfTrace,
        _ => {
            eprintln!("usage: import strace|perf-script|perf-trace [FILE] < TEXT");
            return ExitCode::from(2);
        }
    };
    match import(format, args.get(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("import: {error}");
            ExitCode::FAILURE
        }
    }
}

fn import(format: Format, path: Option<&String>) -> Result<(), Error> {
    let import = Import::new(format, std::io::stdin().lock())?;
    let Some(path) = path else {
        let mut printer = Printer::new(std::io::stdout().lock());
        printer.header(import.header()).map_err(Error::Print)?;
        for event in import {
            printer.event(&event?).map_err(Error::Print)?;
        }
        return Ok(());
    };
    let mut writer = Writer::create(path, import.header())?;
    for event in import {
        writer.write(&event?)?;
    }
    writer.finish()?;
    Ok(())
}
