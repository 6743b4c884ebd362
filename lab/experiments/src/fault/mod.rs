//! The page-fault test: threads touch pages in the core, with each kind of VMA lock, and in the
//! running kernel.
//!
//! The test measures one thread, two threads with one VMA each, two threads in a shared VMA, and
//! one thread while another thread maps and unmaps memory elsewhere. Measurements that are compared
//! with each other are made in the same round, one after the other.
//!
//! The less other work a page fault does, the more visible the contention between threads is.
//! Therefore the test produces three tables. In the first table, a fault does not fill its page; in
//! the second, it fills the page with zeros once. In the third, it fills the page so many times
//! that the fault takes as long as in the kernel; this table also shows the kernel's results.

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

/// Parameters of the test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Setup {
    /// Number of pages that each thread touches in a round.
    ///
    /// While another thread maps memory, a thread touches only a sixteenth of this number of pages,
    /// because it makes little progress if every fault takes `mmap_lock`.
    pub pages: u64,
    /// Number of rounds.
    pub rounds: usize,
}

impl Setup {
    fn check(&self) -> Result<(), FaultError> {
        match (self.pages, self.rounds) {
            (_, 0) => Err(FaultError::Rounds),
            (pages, _) if !(64..=MOST_PAGES).contains(&pages) => Err(FaultError::Pages(pages)),
            _ => Ok(()),
        }
    }

    fn pages_of(&self, work: &Work) -> u64 {
        match work.beside {
            Beside::Nothing => self.pages,
            Beside::Mapping => (self.pages / 16).max(64),
        }
    }
}

/// Maximum number of pages per thread: 4 GiB of memory.
pub const MOST_PAGES: u64 = 1 << 20;

/// Reason why the page-fault test produced no results.
#[derive(Debug, Error)]
pub enum FaultError {
    /// The number of pages is too small or too large.
    #[error("{0} pages cannot be measured: take 64 to 1,048,576")]
    Pages(u64),
    /// The number of rounds is zero.
    #[error("no rounds: take 1 or more")]
    Rounds,
    /// The core refused a call.
    #[error("the core refused a call with the lock \"{0}\": {1}")]
    Core(&'static str, Errno),
    /// The kernel refused to map memory.
    #[error("cannot map memory to touch: {0}")]
    Memory(#[from] std::io::Error),
}

/// Placement of the threads' pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Each thread uses its own VMA.
    Own,
    /// All threads use one VMA.
    Shared,
}

/// Concurrent activity during a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beside {
    /// No concurrent activity.
    Nothing,
    /// Another thread maps and unmaps memory elsewhere.
    Mapping,
}

/// Configuration of one measurement.
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
/// Configurations whose speed is compared with the speed of [`ALONE`].
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

/// Results for one kind of lock, or for the kernel.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// Name of the kind of lock, or `kernel` for the running kernel.
    pub who: String,
    /// Median wall-clock time of a fault with one thread, in nanoseconds.
    pub nanoseconds: f64,
    /// Speed of two threads, each with its own VMA, relative to the speed of one thread.
    pub own: Ratios,
    /// Speed of two threads in one VMA, relative to the speed of one thread.
    pub shared: Ratios,
    /// Speed of one thread while another thread maps memory, relative to its speed without that
    /// thread.
    pub disturbed: Ratios,
    /// Number of faults per thousand that took `mmap_lock` while another thread mapped memory;
    /// `None` for the kernel if its uses of `mmap_lock` cannot be counted.
    pub fell_back_per_mille: Option<f64>,
}

/// Results for several kinds of lock and one way of filling pages.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Table {
    /// Description of how a fault fills its page.
    pub page: String,
    /// Number of pages that each thread touched in a round.
    pub pages: u64,
    /// One row per kind of lock; the last table also has a row for the kernel.
    pub rows: Vec<Row>,
}

/// Results of the test.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Parameters of the test.
    pub setup: Setup,
    /// Three tables: for pages that are not filled, for pages that are filled with zeros once, and
    /// for pages that are filled so many times that a fault takes as long as in the kernel.
    pub tables: Vec<Table>,
    /// Reason why the kernel's uses of `mmap_lock` are not counted; `None` if they are counted.
    pub kernel_uncounted: Option<String>,
}

/// Runs all measurements.
///
/// # Errors
/// If the parameters are out of range, or the core or the kernel refuses a call.
pub fn run(setup: &Setup) -> Result<Report, FaultError> {
    setup.check()?;
    let fills = fills_of_a_kernel_fault(setup.pages)?;
    let long = Page { fills };
    let kernel = Kernel::new();
    let kernel_uncounted = kernel.uncounted().map(str::to_owned);
    let like_kernel: Vec<Box<dyn Subject>> = vec![
        Box::new(Core::<MmapLockOnly>::new(long)),
        Box::new(Core::<VmaLock>::new(long)),
        Box::new(kernel),
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
        kernel_uncounted,
    })
}

/// Speed with one kind of lock, relative to the speed with the separately allocated lock.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// Name of the kind of lock.
    pub who: &'static str,
    /// Ratios of the speeds by processor time, one per round: for one thread, for two threads with
    /// their own VMAs, and for two threads in one VMA.
    pub ratios: [Vec<f64>; 3],
}

/// Compares each kind of lock with the separately allocated lock; pages are zeroed once.
///
/// # Errors
/// If the parameters are out of range, or the core refuses a call.
pub fn pairs(setup: &Setup) -> Result<Vec<Pair>, FaultError> {
    setup.check()?;
    let works = [ALONE, OTHERS[0], OTHERS[1]];
    let subjects = cores(Page { fills: 1 });
    let mut pairs: Vec<Pair> = kinds()
        .map(|(who, _)| Pair {
            who,
            ratios: Default::default(),
        })
        .into();
    let allocated = FlaggedVmaLock::<BoxedRwLock>::NAME;
    let base = pairs.iter().position(|pair| pair.who == allocated);
    let base = base.unwrap_or_default();
    for round in 0..setup.rounds {
        for (nr, work) in works.iter().enumerate() {
            let mut speeds = vec![0.0; subjects.len()];
            for turn in 0..subjects.len() {
                // Each round starts with another kind of lock.
                let at = (round + turn) % subjects.len();
                speeds[at] = subjects[at].run(work, setup.pages)?.0.processor;
            }
            for (pair, speed) in pairs.iter_mut().zip(&speeds) {
                pair.ratios[nr].push(speed / speeds[base]);
            }
        }
    }
    Ok(pairs)
}

/// Returns the number of zero fills with which a fault in the core takes as long as in the kernel.
fn fills_of_a_kernel_fault(pages: u64) -> Result<u32, FaultError> {
    let best = |subject: &dyn Subject| {
        let nanoseconds = |_| Ok::<_, FaultError>(1e9 / subject.run(&ALONE, pages)?.0.clock);
        let times = (0..3).map(nanoseconds).collect::<Result<Vec<f64>, _>>()?;
        Ok::<_, FaultError>(times.into_iter().fold(f64::INFINITY, f64::min))
    };
    let none = best(&Core::<VmaLock>::new(Page { fills: 0 }))?;
    let few = best(&Core::<VmaLock>::new(Page { fills: 4 }))?;
    let fill = ((few - none) / 4.0).max(1.0);
    Ok(((best(&Kernel::new())? - none) / fill).clamp(1.0, 1000.0) as u32)
}

/// Function that writes to a given number of new pages in a single thread.
///
/// The function calls `touch_all`. An instruction counter that is limited to `touch_all` counts
/// only the page faults.
pub type Once = fn(u64) -> Result<(), FaultError>;

/// Returns the name and the [`Once`] function of each kind of lock, starting with `mmap_lock`
/// alone.
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

/// Results of one subject, from all rounds.
#[derive(Default)]
struct Rounds {
    alone: Vec<Speed>,
    others: [Vec<Speed>; OTHERS.len()],
    fell_back: Option<u64>,
}

fn measure(setup: &Setup, subjects: &[Box<dyn Subject>]) -> Result<Vec<Row>, FaultError> {
    let mut rounds: Vec<Rounds> = subjects.iter().map(|_| Rounds::default()).collect();
    for _ in 0..setup.rounds {
        for (subject, to) in subjects.iter().zip(&mut rounds) {
            to.alone.push(subject.run(&ALONE, setup.pages)?.0);
            for (work, to_speeds) in OTHERS.iter().zip(&mut to.others) {
                let (speed, fell_back) = subject.run(work, setup.pages_of(work))?;
                to_speeds.push(speed);
                if let (Beside::Mapping, Some(more)) = (work.beside, fell_back) {
                    *to.fell_back.get_or_insert(0) += more;
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
        fell_back_per_mille: rounds.fell_back.map(|n| n as f64 * 1000.0 / faults),
    }
}
