//! Calls of a single thread under one kind of writers, for counting instructions.
//!
//! Without arguments, `one_writer` prints the works, one per line, each with the kinds of writers
//! that do it. `one_writer WORK KIND ROUNDS` does one of them ROUNDS times. Two runs with different
//! ROUNDS differ only by the rounds, not by the setup. `ci/run instructions -- writers` runs this
//! program to compare the kinds.
//!
//! - `map`: maps four pages in the middle of a part, and unmaps them
//! - `protect`: makes the middle page of a mapping read-only, which splits the mapping in three,
//!   and writable again, which merges the three
//! - `remap`: grows and shrinks a mapping in place, with four parts in use
//! - `remap-all`: the same with all parts in use
//!
//! ```text
//! cargo run --release --manifest-path lab/Cargo.toml -p vmarea-experiments --example one_writer -- protect parts 1000
//! ```

use std::hint::black_box;
use std::process::ExitCode;
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::platform::Environment;
use vmarea::types::writers::{OneWriter, Regions, Writers};
use vmarea::types::{Errno, MmId, NoBytes, PAGE_SIZE, WithVmaLock};
use vmarea::vma::lock::VmaLock;
use vmarea::{Space, System};

const USAGE: &str = "usage: one_writer | one_writer WORK KIND ROUNDS";
const WORKS: [&str; 4] = ["map", "protect", "remap", "remap-all"];
/// The part in which the calls are.
const PART: usize = 2;
/// Distance of the calls' mapping from the start of its part, in bytes.
const INSIDE: u64 = 1 << 30;
/// Pages of the calls' mapping.
const PAGES: u64 = 4;

type Machine<K> = Space<WithVmaLock<VmaLock, K>>;

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("one_writer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    match args {
        [] => WORKS
            .iter()
            .for_each(|work| println!("{work} {} {}", OneWriter::NAME, Regions::NAME)),
        [work, kind, count] if WORKS.contains(&work.as_str()) => {
            let count = count.parse()?;
            match kind.as_str() {
                OneWriter::NAME => measure::<OneWriter>(work, count)?,
                Regions::NAME => measure::<Regions>(work, count)?,
                _ => return Err(USAGE.into()),
            }
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn measure<K: Writers>(work: &str, count: u64) -> Result<(), Errno> {
    let space = Machine::<K>::in_environment(Policy::LINUX, System::default(), Box::new(NoBytes));
    let mm = space.mm_create(Layout::default(), Limits::default())?;
    let parts = match work {
        "remap-all" => Regions::PARTS,
        _ => 4,
    };
    // One mapping in each part, so that the part is in use.
    for part in 0..parts {
        map(&space, mm, Regions::bounds(part).start + 4 * INSIDE)?;
    }
    let addr = Regions::bounds(PART).start + INSIDE;
    if work != "map" {
        map(&space, mm, addr)?;
    }
    // The first round is not like the others: it allocates.
    once(&space, mm, work, addr)?;
    for _ in 0..count {
        once(&space, mm, work, addr)?;
    }
    space.validate_all().map_err(|_| Errno::EINVAL)
}

fn map<E: Environment>(space: &Space<E>, mm: MmId, addr: u64) -> Result<(), Errno> {
    let request = MmapRequest {
        addr,
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
        ..MmapRequest::anonymous(PAGES * PAGE_SIZE)
    };
    space.mmap(mm, black_box(&request)).map(|_| ())
}

fn once<E: Environment>(space: &Space<E>, mm: MmId, work: &str, addr: u64) -> Result<(), Errno> {
    match work {
        "map" => {
            map(space, mm, addr)?;
            space.munmap(mm, black_box(addr), PAGES * PAGE_SIZE)
        }
        "protect" => {
            let middle = addr + PAGE_SIZE;
            for prot in [Prot::READ, Prot::READ | Prot::WRITE] {
                space.mprotect(mm, middle, PAGE_SIZE, black_box(prot), None)?;
            }
            Ok(())
        }
        _ => {
            for (old, new) in [(PAGES, PAGES + 1), (PAGES + 1, PAGES)] {
                let request = MremapRequest {
                    addr,
                    old_len: old * PAGE_SIZE,
                    new_len: new * PAGE_SIZE,
                    ..MremapRequest::default()
                };
                space.mremap(mm, black_box(&request))?;
            }
            Ok(())
        }
    }
}
