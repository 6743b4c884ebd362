//! Measures how fast a trace file is read, and its size per event: `speed FILE`.

use std::process::ExitCode;
use std::time::Instant;
use vmarea_trace::event::Event;
use vmarea_trace::{Error, Reader};

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: speed FILE");
        return ExitCode::from(2);
    };
    match speed(&path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("speed: {path}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn speed(path: &str) -> Result<(), Error> {
    let file = std::fs::read(path).map_err(|source| Error::Open {
        path: path.into(),
        source,
    })?;
    let (mut events, mut faults, mut fastest) = (0u64, 0u64, f64::INFINITY);
    for _ in 0..10 {
        let begin = Instant::now();
        (events, faults) = (0, 0);
        // The sum keeps the compiler from removing the reads.
        let mut sum = 0u64;
        for event in Reader::new(&file[..])? {
            events += 1;
            if let Event::Fault(fault) = event? {
                faults += 1;
                sum = sum.wrapping_add(fault.addr ^ fault.t);
            }
        }
        std::hint::black_box(sum);
        fastest = fastest.min(begin.elapsed().as_secs_f64());
    }
    println!("{events} events, {faults} of them faults");
    println!("{:.2} bytes an event", file.len() as f64 / events as f64);
    println!("{:.1} million events/s", events as f64 / fastest / 1e6);
    Ok(())
}
