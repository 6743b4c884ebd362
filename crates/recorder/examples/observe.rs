//! Observes a running process and prints the counters: `observe [-t] PID SECONDS`.
//!
//! `-t` traces the process with `ptrace` instead, for comparison.

use std::io;
use std::time::{Duration, Instant};
use vmarea_recorder::{AttachOptions, Progress, RecordBy, Sink, attach};
use vmarea_trace::event::Event;

struct Discard;

impl Sink for Discard {
    fn event(&mut self, _: &Event) -> io::Result<()> {
        Ok(())
    }
}

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let traced = words.first().is_some_and(|word| word == "-t");
    words.drain(..usize::from(traced));
    let number = |n: usize| words.get(n).and_then(|word| word.parse::<u32>().ok());
    let (Some(pid), Some(seconds)) = (number(0), number(1)) else {
        eprintln!("usage: observe [-t] PID SECONDS");
        std::process::exit(2);
    };
    let options = AttachOptions {
        duration: Some(Duration::from_secs(seconds.into())),
        by: match traced {
            true => RecordBy::Tracing,
            false => RecordBy::Observing,
        },
        ..AttachOptions::new(pid.cast_signed())
    };
    let begun = Instant::now();
    let outcome = attach(&options, &mut Discard, &mut |progress| {
        if let Progress::Note(note) = progress {
            eprintln!("note: {note}");
        }
    });
    match outcome {
        Ok(outcome) => println!("{:?} in {:?}", outcome.counts, begun.elapsed()),
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
    }
}
