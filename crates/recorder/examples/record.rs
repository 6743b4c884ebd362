//! Records a command and prints the result: `record [-v] [-n N] COMMAND ARGS...`.
//!
//! `-v` prints every event as it arrives; `-n N` takes a snapshot of an address space after every N
//! calls. The example is meant for inspecting the recorder itself; to write a trace file, use
//! `vmarea record`.

use std::ffi::OsString;
use std::io;
use std::time::Instant;
use vmarea_recorder::{Options, Progress, Sink, record};
use vmarea_trace::event::{Event, Header, Order};

#[derive(Default)]
struct Printer {
    verbose: bool,
    snapshots: u64,
    vmas: u64,
    overlapping: u64,
}

impl Sink for Printer {
    fn header(&mut self, header: &Header) -> io::Result<()> {
        if self.verbose {
            println!("{header:?}");
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        let order = match event {
            Event::Call(call) => call.order,
            Event::Fault(fault) => fault.order,
            Event::Touch(touch) => touch.order,
            Event::Snapshot(snapshot) => {
                self.snapshots += 1;
                self.vmas += snapshot.vmas.len() as u64;
                Order::Exact
            }
            _ => Order::Exact,
        };
        self.overlapping += u64::from(order == Order::Overlapping);
        if self.verbose {
            println!("{event:?}");
        }
        Ok(())
    }
}

fn main() {
    let mut printer = Printer::default();
    let mut options = Options::default();
    let mut words = std::env::args_os().skip(1).peekable();
    while let Some(word) = words.next_if(|w| w == "-v" || w == "-n") {
        if word == "-v" {
            printer.verbose = true;
        } else {
            let every = words.next().unwrap_or_default();
            options.checkpoint = every.to_string_lossy().parse().ok();
        }
    }
    options.command = words.collect::<Vec<OsString>>();
    let begun = Instant::now();
    let outcome = record(&options, &mut printer, &mut |progress| {
        if let Progress::Note(note) = progress {
            eprintln!("note: {note}");
        }
    });
    match outcome {
        Ok(outcome) => {
            let Printer {
                snapshots,
                vmas,
                overlapping,
                ..
            } = printer;
            eprintln!(
                "status {:#x}, {:?}, {snapshots} snapshots of {vmas} mappings, {overlapping} \
                 overlapping, {:?}",
                outcome.status,
                outcome.counts,
                begun.elapsed()
            );
        }
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
    }
}
