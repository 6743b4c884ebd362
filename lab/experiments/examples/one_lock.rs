//! Page faults in a single thread under one kind of VMA lock, for counting instructions.
//!
//! Without arguments, `one_lock` prints the kinds of lock, one per line. `one_lock KIND PAGES`
//! creates a VMA whose lock is of the kind on line KIND of that output (counted from 1), and writes
//! to PAGES untouched pages of the VMA. An instruction counter that is limited to `touch_all`
//! counts only the page faults. `ci/run instructions` runs this program to compare the kinds of
//! lock.
//!
//! ```text
//! cargo run --release --manifest-path lab/Cargo.toml -p vmarea-experiments --example one_lock -- 5 10000
//! ```

use std::process::ExitCode;
use vmarea_experiments::fault::{MOST_PAGES, kinds};

const USAGE: &str = "usage: one_lock | one_lock KIND PAGES";

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("one_lock: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    match args {
        [] => kinds().iter().for_each(|(name, _)| println!("{name}")),
        [kind, pages] => {
            let kind = kind.parse::<usize>()?.checked_sub(1);
            let (_, once) = kind.and_then(|at| kinds().get(at).copied()).ok_or(USAGE)?;
            once(pages.parse::<u64>()?.min(MOST_PAGES))?;
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}
