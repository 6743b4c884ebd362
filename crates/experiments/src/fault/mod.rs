//! The page-fault test: threads that touch pages, under each kind of VMA lock, and on the kernel.
//!
//! One thread and two, in one VMA each and in one that they share, and one thread while another maps
//! and unmaps elsewhere. All that is compared ran in the same round, one after the other.
//!
//! How much threads cost each other shows the more, the less a fault does beside. So pages cost nothing
//! at first, then a filling with zeros, and then as many fillings as make a fault as long as the kernel's,
//! which stands beside them.

mod subject;

use super::parallel::{Ratios, Speed};
use super::ratio::median;
use serde::Serialize;
use subject::{Core, Kernel, Page, Subject};
use thiserror::Error;
use vmarea::types::Errno;
use vmarea::vma::lock::{
    AlignedRwLock, BoxedRwLock, FlaggedVmaLock, MmapLockOnly, VmaLock, VmaLockKind,
};

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Setup {
    /// Pages that each thread touches in a round; beside one that maps, a sixteenth of them, as under
    /// `mmap_lock` only it hardly comes forward.
    pub pages: u64,
    /// Rounds.
    pub rounds: usize,
}

impl Setup {
    fn pages_of(&self, work: &Work) -> u64 {
        match work.beside {
            Beside::Nothing => self.pages,
            Beside::Mapping => (self.pages / 16).max(64),
        }
    }
}

/// Most pages of a thread: 4 GiB.
pub const MOST_PAGES: u64 = 1 << 20;

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum FaultError {
    /// Too few or too many.
    #[error("{0} pages cannot be measured: take 64 to 1,048,576")]
    Pages(u64),
    /// No rounds.
    #[error("no rounds: take 1 or more")]
    Rounds,
    /// The core refused.
    #[error("the core refused a call with the lock \"{0}\": {1}")]
    Core(&'static str, Errno),
    /// The kernel refused memory.
    #[error("cannot map memory to touch: {0}")]
    Memory(#[from] std::io::Error),
}

/// Where the threads work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Each in a VMA of its own.
    Own,
    /// All in one.
    Shared,
}

/// What else happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beside {
    /// Nothing.
    Nothing,
    /// Another thread maps and unmaps elsewhere.
    Mapping,
}

/// One measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Work {
    pub(crate) threads: u64,
    pub(crate) place: Place,
    pub(crate) beside: Beside,
}

const ALONE: Work = Work {
    threads: 1,
    place: Place::Own,
    beside: Beside::Nothing,
};
/// What is compared with [`ALONE`].
const OTHERS: [Work; 3] = [
    Work {
        threads: 2,
        ..ALONE
    },
    Work {
        threads: 2,
        place: Place::Shared,
        ..ALONE
    },
    Work {
        beside: Beside::Mapping,
        ..ALONE
    },
];

/// One kind of lock, or the kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which.
    pub who: String,
    /// What a fault of one thread alone costs, median, nanoseconds of the clock.
    pub nanoseconds: f64,
    /// Two threads with a VMA each, to one thread.
    pub own: Ratios,
    /// Two threads in one VMA, to one thread.
    pub shared: Ratios,
    /// One thread beside one that maps and unmaps, to itself alone.
    pub disturbed: Ratios,
    /// Faults in a thousand of those beside the mapping thread that took `mmap_lock`.
    pub fell_back_per_mille: Option<f64>,
}

/// All kinds, with one cost of a page.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// What a page costs beside the fault.
    pub page: String,
    /// Pages that each thread touched in a round.
    pub pages: u64,
    /// Kinds of lock, then the kernel where it fills pages as this does.
    pub rows: Vec<Row>,
}

/// What it came to.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was done.
    pub setup: Setup,
    /// Pages that cost nothing, pages that are filled with zeros, and pages that cost as much as the kernel's.
    pub tables: Vec<Table>,
}

/// Measures everything.
///
/// # Errors
/// Where the setup cannot be measured, or somebody refuses memory.
pub fn run(setup: &Setup) -> Result<Report, FaultError> {
    if !(64..=MOST_PAGES).contains(&setup.pages) {
        return Err(FaultError::Pages(setup.pages));
    }
    if setup.rounds == 0 {
        return Err(FaultError::Rounds);
    }
    let fills = fills_of_a_kernel_fault(setup.pages)?;
    let long = Page { fills };
    let like_kernel: Vec<Box<dyn Subject>> = vec![
        Box::new(Core::<MmapLockOnly>::new(long)),
        Box::new(Core::<VmaLock>::new(long)),
        Box::new(Kernel),
    ];
    let table = |page: &str, part: u64, subjects: Vec<Box<dyn Subject>>| {
        let setup = Setup {
            pages: (setup.pages / part).max(64),
            ..*setup
        };
        let rows = measure(&setup, &subjects)?;
        Ok::<_, FaultError>(Table {
            page: page.to_owned(),
            pages: setup.pages,
            rows,
        })
    };
    let filled =
        format!("pages are filled with zeros {fills} times, which costs as much as the kernel's");
    Ok(Report {
        setup: *setup,
        tables: vec![
            table("pages cost nothing", 1, cores(Page { fills: 0 }))?,
            table("pages are filled with zeros", 1, cores(Page { fills: 1 }))?,
            table(&filled, 8, like_kernel)?,
        ],
    })
}

/// How often a page has to be filled with zeros so that a fault takes as long as one of the kernel's.
fn fills_of_a_kernel_fault(pages: u64) -> Result<u32, FaultError> {
    let best = |subject: &dyn Subject| {
        let nanoseconds = |_| Ok::<_, FaultError>(1e9 / subject.run(&ALONE, pages)?.0.clock);
        let times = (0..3).map(nanoseconds).collect::<Result<Vec<f64>, _>>()?;
        Ok::<_, FaultError>(times.into_iter().fold(f64::INFINITY, f64::min))
    };
    let none = best(&Core::<VmaLock>::new(Page { fills: 0 }))?;
    let few = best(&Core::<VmaLock>::new(Page { fills: 4 }))?;
    let fill = ((few - none) / 4.0).max(1.0);
    Ok(((best(&Kernel)? - none) / fill).clamp(1.0, 1000.0) as u32)
}

/// One thread alone writes to so many new pages: what a counter of instructions looks at, in `touch_all`.
pub type Once = fn(u64) -> Result<(), FaultError>;

/// The kinds of lock, `mmap_lock` only first, and [`Once`] under each.
pub fn kinds() -> [(&'static str, Once); 5] {
    fn kind<K: VmaLockKind>() -> (&'static str, Once) {
        (K::NAME, subject::once::<K>)
    }
    [
        kind::<MmapLockOnly>(),
        kind::<FlaggedVmaLock<BoxedRwLock>>(),
        kind::<FlaggedVmaLock<AlignedRwLock>>(),
        kind::<FlaggedVmaLock>(),
        kind::<VmaLock>(),
    ]
}

fn cores(page: Page) -> Vec<Box<dyn Subject>> {
    vec![
        Box::new(Core::<MmapLockOnly>::new(page)),
        Box::new(Core::<FlaggedVmaLock<BoxedRwLock>>::new(page)),
        Box::new(Core::<FlaggedVmaLock<AlignedRwLock>>::new(page)),
        Box::new(Core::<FlaggedVmaLock>::new(page)),
        Box::new(Core::<VmaLock>::new(page)),
    ]
}

/// What one subject did in all rounds.
#[derive(Default)]
struct Rounds {
    alone: Vec<Speed>,
    others: [Vec<Speed>; OTHERS.len()],
    fell_back: u64,
}

fn measure(setup: &Setup, subjects: &[Box<dyn Subject>]) -> Result<Vec<Row>, FaultError> {
    let mut rounds: Vec<Rounds> = subjects.iter().map(|_| Rounds::default()).collect();
    for _ in 0..setup.rounds {
        for (subject, to) in subjects.iter().zip(&mut rounds) {
            to.alone.push(subject.run(&ALONE, setup.pages)?.0);
            for (work, to_speeds) in OTHERS.iter().zip(&mut to.others) {
                let (speed, fell_back) = subject.run(work, setup.pages_of(work))?;
                to_speeds.push(speed);
                if work.beside == Beside::Mapping {
                    to.fell_back += fell_back;
                }
            }
        }
    }
    let rows = subjects.iter().zip(&rounds);
    Ok(rows
        .map(|(subject, rounds)| row(setup, subject.as_ref(), rounds))
        .collect())
}

fn row(setup: &Setup, subject: &dyn Subject, rounds: &Rounds) -> Row {
    let ratios = |of: &[Speed]| Ratios::of_pairs(of, &rounds.alone);
    let mut times: Vec<f64> = rounds.alone.iter().map(|s| 1e9 / s.clock).collect();
    times.sort_by(f64::total_cmp);
    let faults = (setup.pages_of(&OTHERS[2]) * setup.rounds as u64) as f64;
    Row {
        who: subject.name().to_owned(),
        nanoseconds: median(&times),
        own: ratios(&rounds.others[0]),
        shared: ratios(&rounds.others[1]),
        disturbed: ratios(&rounds.others[2]),
        fell_back_per_mille: subject
            .counts()
            .then(|| rounds.fell_back as f64 * 1000.0 / faults),
    }
}
