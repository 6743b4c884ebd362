//! The lookups of a recorded program with one lookup cache, for counting instructions.
//!
//! Without arguments, `one_cache` prints the caches, one per line. `one_cache TRACE LOG` replays a
//! trace and writes its lookups and index changes to a file. `one_cache CACHE LOG` repeats them
//! with the cache on line CACHE of the first output (counted from 1), and `one_cache 0 LOG` only
//! the changes; the difference between the instructions of the two is that of the lookups.
//!
//! ```text
//! cargo run --release --manifest-path lab/Cargo.toml -p vmarea-experiments --example one_cache -- corpus/gcc.vmtrace /tmp/log
//! ```

use std::fs::File;
use std::process::ExitCode;
use vmarea_experiments::cache::cost::{Finds, SIDES};
use vmarea_experiments::cache::{Log, count};
use vmarea_trace::Reader;

const USAGE: &str = "usage: one_cache | one_cache TRACE LOG | one_cache CACHE LOG";

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("one_cache: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    match args {
        [] => SIDES.iter().for_each(|side| println!("{}", side.cache)),
        [what, log] => match what.parse::<usize>() {
            Ok(0) => SIDES[0].once(&Log::read(File::open(log)?)?, Finds::LeftOut),
            Ok(cache) => {
                let side = SIDES.get(cache - 1).ok_or(USAGE)?;
                side.once(&Log::read(File::open(log)?)?, Finds::Made);
            }
            Err(_) => {
                let counted = count(Reader::new(File::open(what)?)?)?;
                counted.log.write(File::create(log)?)?;
                println!("{}", counted.log.lookups());
            }
        },
        _ => return Err(USAGE.into()),
    }
    Ok(())
}
