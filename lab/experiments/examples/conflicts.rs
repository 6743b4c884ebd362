//! Pairs of calls on separate ranges, for finding the cache lines that both calls use.
//!
//! `conflicts KIND PLACEMENT` makes each pair of calls once, in two threads, one call after the
//! other: once in the same address space, on ranges that are far from each other, and once in two
//! address spaces of one machine. It marks the beginning and the end of each call by a store to
//! [`MARKS`], and prints the pairs in the order in which it makes them. `ci/run conflicts` runs it
//! in a tool that logs every access to memory, and finds the lines that both calls use and at
//! least one of them writes.
//!
//! A call is logged only when its thread has made it once before, so that free lists, tables and
//! index nodes are there: what the first call of a thread allocates is not part of the comparison.
//!
//! ```text
//! MARKS[0] MARKS[1]   the first thread's call begins, ends
//! MARKS[2] MARKS[3]   the second thread's call begins, ends; then the pair is complete
//! ```

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use vmarea::fault::Access;
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::{MmapRequest, Placement};
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::writers::{OneWriter, Regions, Writers};
use vmarea::types::{Errno, MmId, NoBytes, PAGE_SIZE, WithVmaLock};
use vmarea::vma::lock::VmaLock;
use vmarea::{Space, System};

const USAGE: &str = "usage: conflicts mmap_lock|parts exact|arena";
/// Distance of a thread's mapping from the start of its part, in bytes.
const INSIDE: u64 = 1 << 30;
/// Pages of a thread's mapping.
const PAGES: u64 = 8;
/// Part of the address space with the heap. The threads use the parts before it.
const HEAP_PART: usize = 4;

/// One cache line for each mark, so that a store to it is no store to anything else.
#[repr(align(64))]
struct Mark(AtomicU64);
static MARKS: [Mark; 4] = [const { Mark(AtomicU64::new(0)) }; 4];

fn mark(number: usize) {
    MARKS[number].0.store(1, Ordering::SeqCst);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    MmapSearch,
    MmapFixed,
    Munmap,
    MunmapFound,
    MprotectSplit,
    MprotectMerge,
    MadviseFlags,
    MadviseDontneed,
    MremapGrow,
    MremapShrink,
    Brk,
    WriteFault,
    ReadFault,
}
use Call::*;

/// The calls with their names in the table.
const CALLS: [(Call, &str); 13] = [
    (MmapSearch, "mmap"),
    (MmapFixed, "mmap-fixed"),
    (Munmap, "munmap"),
    (MunmapFound, "munmap-found"),
    (MprotectSplit, "mprotect-split"),
    (MprotectMerge, "mprotect-merge"),
    (MadviseFlags, "madvise-flags"),
    (MadviseDontneed, "madvise-dontneed"),
    (MremapGrow, "mremap-grow"),
    (MremapShrink, "mremap-shrink"),
    (Brk, "brk"),
    (WriteFault, "write-fault"),
    (ReadFault, "read-fault"),
];

/// Two calls on one address space commute unless both move the break, or both concern what a search
/// of the same part for the highest free range finds.
fn commute(a: Call, b: Call, placement: Placed) -> bool {
    match (a, b) {
        (Brk, Brk) => false,
        (MmapSearch | MunmapFound, MmapSearch | MunmapFound) => placement == Placed::Arena,
        _ => true,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Placed {
    Exact,
    Arena,
}

type Machine<K> = Space<WithVmaLock<VmaLock, K>>;

/// What one of the two threads does.
#[derive(Clone, Copy, Debug)]
struct Caller {
    call: Call,
    mm: MmId,
    /// Start of the thread's mapping.
    addr: u64,
    /// Arena of a search; `None` for exact placement.
    arena: Option<usize>,
    /// End of the heap, which only `brk` moves.
    heap_end: u64,
    /// Start of the mapping for which the call found a place.
    found: u64,
}

impl Caller {
    /// Maps where a search finds room.
    fn search<K: Writers>(&self, space: &Machine<K>) -> Result<u64, Errno> {
        let request = MmapRequest {
            placement: self.arena.map_or(Placement::Search, Placement::Arena),
            ..MmapRequest::anonymous(PAGES * PAGE_SIZE)
        };
        space.mmap(self.mm, &request)
    }

    /// Puts the address space into the state that the call needs.
    fn prepare<K: Writers>(&mut self, space: &Machine<K>) -> Result<(), Errno> {
        let len = PAGES * PAGE_SIZE;
        let middle = self.addr + 4 * PAGE_SIZE;
        space.munmap(self.mm, self.addr, 2 * len)?;
        if !matches!(self.call, MmapFixed | MmapSearch | MunmapFound | Brk) {
            map_at(space, self.mm, self.addr, len)?;
        }
        match self.call {
            MunmapFound => self.found = self.search(space)?,
            MprotectMerge => space.mprotect(self.mm, middle, PAGE_SIZE, Prot::READ, None)?,
            MadviseDontneed => drop(space.fault(self.mm, middle, Access::Write)?),
            WriteFault | ReadFault => {
                // The page table is there; only the page is missing.
                space.fault(self.mm, self.addr, Access::Write)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn make<K: Writers>(&mut self, space: &Machine<K>) -> Result<(), Errno> {
        let (mm, addr, len) = (self.mm, self.addr, PAGES * PAGE_SIZE);
        let middle = addr + 4 * PAGE_SIZE;
        match self.call {
            MmapSearch => self.search(space).map(drop),
            MmapFixed => map_at(space, mm, addr, len),
            Munmap => space.munmap(mm, addr, len),
            MunmapFound => space.munmap(mm, self.found, len),
            MprotectSplit => space.mprotect(mm, middle, PAGE_SIZE, Prot::READ, None),
            MprotectMerge => space.mprotect(mm, middle, PAGE_SIZE, Prot::READ | Prot::WRITE, None),
            MadviseFlags => space.madvise(mm, middle, PAGE_SIZE, Advice::DontFork),
            MadviseDontneed => space.madvise(mm, middle, PAGE_SIZE, Advice::DontNeed),
            MremapGrow => remap(space, mm, addr, PAGES, PAGES + 1),
            MremapShrink => remap(space, mm, addr, PAGES, PAGES - 1),
            Brk => {
                self.heap_end += PAGE_SIZE;
                space.brk(mm, self.heap_end).map(drop)
            }
            WriteFault => space.fault(mm, middle, Access::Write).map(drop),
            ReadFault => space.fault(mm, middle, Access::Read).map(drop),
        }
    }
}

fn map_at<K: Writers>(space: &Machine<K>, mm: MmId, addr: u64, len: u64) -> Result<(), Errno> {
    let request = MmapRequest {
        addr,
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
        ..MmapRequest::anonymous(len)
    };
    space.mmap(mm, &request).map(drop)
}

fn remap<K: Writers>(
    space: &Machine<K>,
    mm: MmId,
    addr: u64,
    old: u64,
    new: u64,
) -> Result<(), Errno> {
    let request = MremapRequest {
        addr,
        old_len: old * PAGE_SIZE,
        new_len: new * PAGE_SIZE,
        ..MremapRequest::default()
    };
    space.mremap(mm, &request).map(drop)
}

fn heap_start() -> u64 {
    Regions::bounds(HEAP_PART).start + INSIDE
}

/// Creates an address space with a mapping in each part that a thread uses.
fn address_space<K: Writers>(space: &Machine<K>) -> Result<MmId, Errno> {
    let layout = Layout {
        mmap_base: System::default().task_size - (1 << 32),
        start_brk: heap_start(),
        brk: heap_start(),
        ..Layout::default()
    };
    let mm = space.mm_create(layout, Limits::default())?;
    for part in 1..=HEAP_PART {
        map_at(
            space,
            mm,
            Regions::bounds(part).start + 4 * INSIDE,
            PAGE_SIZE,
        )?;
    }
    // The part in which exact placement searches.
    space.mmap(mm, &MmapRequest::anonymous(PAGE_SIZE))?;
    space.brk(mm, heap_start() + PAGE_SIZE)?;
    Ok(mm)
}

/// One of the two threads: makes its call once for each message, and answers when it is made.
fn serve<K: Writers>(
    space: &Machine<K>,
    number: usize,
    mut caller: Caller,
    asked: &Receiver<bool>,
    done: &Sender<Result<(), Errno>>,
) {
    for measured in asked {
        let made = caller.prepare(space).and_then(|()| {
            if measured {
                // The main thread waits for the answer by then, and makes no access to memory.
                std::thread::sleep(Duration::from_millis(5));
                mark(2 * number);
            }
            let made = caller.make(space);
            if measured {
                mark(2 * number + 1);
            }
            made
        });
        done.send(made).expect("the other end is in this program");
    }
}

fn pair<K: Writers>(calls: [Call; 2], placed: Placed, same: bool) -> Result<(), Errno> {
    let space = Machine::<K>::in_environment(Policy::LINUX, System::default(), Box::new(NoBytes));
    let first = address_space(&space)?;
    let second = if same { first } else { address_space(&space)? };
    let callers = [0, 1].map(|number: usize| Caller {
        call: calls[number],
        mm: [first, second][number],
        addr: Regions::arena(number).start + INSIDE,
        arena: (placed == Placed::Arena).then_some(number),
        heap_end: heap_start() + PAGE_SIZE * (1 + number as u64),
        found: 0,
    });
    std::thread::scope(|scope| {
        let (done, answers) = channel();
        let askers = [0, 1].map(|number: usize| {
            let (ask, asked) = channel();
            let (space, caller, done) = (&space, callers[number], done.clone());
            scope.spawn(move || serve(space, number, caller, &asked, &done));
            ask
        });
        for measured in [false, false, true] {
            for ask in &askers {
                ask.send(measured).expect("the thread waits");
                answers.recv().expect("the thread answers")?;
            }
        }
        Ok(())
    })
}

fn all<K: Writers>(placed: Placed) -> Result<(), Errno> {
    for same in [true, false] {
        for (at, &(a, first)) in CALLS.iter().enumerate() {
            for &(b, second) in &CALLS[at..] {
                if same && !commute(a, b, placed) {
                    continue;
                }
                let place = if same { "same" } else { "different" };
                println!("pair {first} {second} {place}");
                pair::<K>([a, b], placed, same)?;
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let placed = match args.get(1).map(String::as_str) {
        Some("exact") => Placed::Exact,
        Some("arena") => Placed::Arena,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    println!("marks {:#x}", MARKS.as_ptr() as usize);
    let made = match args[0].as_str() {
        OneWriter::NAME => all::<OneWriter>(placed),
        Regions::NAME => all::<Regions>(placed),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("conflicts: {error}");
            ExitCode::FAILURE
        }
    }
}
