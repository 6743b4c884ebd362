//! The break test: related processes move their break, as in the published AIM7 measurement.
//!
//! Children of one parent raise their break page by page; only these calls are measured. Each child
//! has touched its heap, so the heap has an anon_vma. Two rules for the anon_vma's lock are
//! compared: every change of a range takes the lock, or only a change that needs it does. In the
//! kernel of the published measurement, the heaps shared the parent's anon_vma. In current kernels,
//! a heap that grows after a fork has its own anon_vma, so the processes do not contend for one
//! anon_vma lock. They can contend only with reverse-map walks; therefore one process is also
//! measured while another thread walks the reverse map continuously.

use super::parallel::{Ratios, Speed, joined, together};
use super::ratio::median;
use serde::Serialize;
use std::hint::black_box;
use std::marker::PhantomData;
use std::thread;
use thiserror::Error;
use vmarea::fault::Access;
use vmarea::mm::{Layout, Limits};
use vmarea::page::Pte;
use vmarea::policy::AdjustLock;
use vmarea::policy::Policy;
use vmarea::types::{Errno, MmId, NoBytes, WithVmaLock};
use vmarea::vma::lock::{
    AlignedRwLock, BoxedRwLock, FlaggedVmaLock, MmapLockOnly, VmaLock, VmaLockKind,
};
use vmarea::{HugePages, Space, System};
use vmarea_oracle::{Oracle, OracleError, Series};

pub(crate) const PAGE: u64 = 4096;
/// Start of the heap.
pub(crate) const HEAP: u64 = 0x10_0000_0000;
/// Initial break of a child.
pub(crate) const FIRST: u64 = HEAP + 2 * PAGE;
const BRK: i64 = 12;
/// Maximum number of calls that a process makes in a round.
pub const MOST_CALLS: u64 = 1 << 20;

/// Parameters of the test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Setup {
    /// Number of times that each process raises its break in a round.
    pub calls: u64,
    /// Number of rounds.
    pub rounds: usize,
}

/// Reason why the break test produced no results.
#[derive(Debug, Error)]
pub enum BrkError {
    /// The number of calls is too small or too large.
    #[error("{0} calls cannot be measured: take 1 to 1,048,576")]
    Calls(u64),
    /// The number of rounds is zero.
    #[error("no rounds: take 1 or more")]
    Rounds,
    /// The core refused a call.
    #[error("the core refused a call with the lock \"{0}\": {1}")]
    Core(&'static str, Errno),
}

/// Results for the kernel, or for one kind of VMA lock with one rule for the reverse-map lock.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// Name of the kind of lock, or `kernel` for the running kernel.
    pub who: String,
    /// True if every change of a range takes the reverse-map lock; `None` for the kernel.
    pub always: Option<bool>,
    /// Median wall-clock time of a call with one process, in nanoseconds.
    pub nanoseconds: f64,
    /// Combined speed of two processes, relative to the speed of one.
    pub two: Ratios,
    /// Speed of one process while another thread walks the reverse map from the heap, relative to
    /// its speed without such walks.
    pub walked: Option<Ratios>,
    /// Speed during reverse-map walks if the reverse-map lock is taken only when needed, relative
    /// to the speed during such walks if every change takes the lock.
    pub shortcut: Option<Ratios>,
    /// Number of times that the reverse-map lock was taken, per thousand calls.
    pub locked_per_mille: Option<f64>,
}

/// Results of the test.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Parameters of the test.
    pub setup: Setup,
    /// Two rows for each kind of lock, then one row for the kernel.
    pub rows: Vec<Row>,
    /// Reason why the kernel's row is missing, if it is.
    pub without_kernel: Option<String>,
}

/// Results of one subject, from all rounds.
#[derive(Default)]
struct Rounds {
    one: Vec<Speed>,
    two: Vec<Speed>,
    walked: Vec<Speed>,
    locked: u64,
}

/// Interface to the core that hides the kind of VMA lock.
trait Subject {
    fn name(&self) -> &'static str;
    /// Returns the speed and the number of times that the reverse-map lock was taken.
    fn run(&self, lock: AdjustLock, work: Work, calls: u64) -> Result<(Speed, u64), BrkError>;
}

/// Processes that raise their break during a measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    One,
    Two,
    /// One process, while another thread walks the reverse map from the first page of its heap.
    Walked,
}

struct Core<K>(PhantomData<fn() -> K>);

/// A space whose VMAs have the lock `K`, and the ids of its processes.
type Family<K> = (Space<WithVmaLock<K>>, Vec<MmId>);

/// Creates a parent whose heap has one touched page, and forks children from it. Each child has
/// raised its break to [`FIRST`] and touched the new page.
pub(crate) fn family<K: VmaLockKind>(lock: AdjustLock, children: u64) -> Result<Family<K>, Errno> {
    let policy = Policy {
        adjust_lock: lock,
        ..Policy::LINUX
    };
    let system = System {
        huge_pages: HugePages::Never,
        ..System::default()
    };
    let space = Space::<WithVmaLock<K>>::in_environment(policy, system, Box::new(NoBytes));
    let layout = Layout {
        mmap_base: 0x7f00_0000_0000,
        start_brk: HEAP,
        brk: HEAP,
        ..Layout::default()
    };
    let parent = space.mm_create(layout, Limits::default())?;
    space.brk(parent, HEAP + PAGE)?;
    space.fault(parent, HEAP, Access::Write)?;
    let child = |_| {
        let child = space.fork(parent)?;
        space.brk(child, FIRST)?;
        space.fault(child, FIRST - PAGE, Access::Write)?;
        Ok::<MmId, Errno>(child)
    };
    let mms = (0..children).map(child).collect::<Result<_, _>>()?;
    Ok((space, mms))
}

impl<K: VmaLockKind> Subject for Core<K> {
    fn name(&self) -> &'static str {
        K::NAME
    }

    fn run(&self, lock: AdjustLock, work: Work, calls: u64) -> Result<(Speed, u64), BrkError> {
        let processes = if work == Work::Two { 2 } else { 1 };
        let refused = |errno| BrkError::Core(K::NAME, errno);
        let (space, mms) = family::<K>(lock, processes).map_err(refused)?;
        let raise = |process: u64, n: u64| {
            let brk = FIRST + (n + 1) * PAGE;
            let now = space.brk(mms[process as usize], brk).map_err(refused)?;
            if now == brk {
                Ok(())
            } else {
                Err(refused(Errno::ENOMEM))
            }
        };
        let entry = |mm| Some(space.mmap_read_lock(mm)?.pages().get(FIRST - PAGE));
        let frame = match mms.first().copied().and_then(entry) {
            Some(Pte::Anon { frame, .. }) => frame,
            _ => return Err(refused(Errno::EFAULT)),
        };
        let walk: &(dyn Fn(u64) -> Result<(), BrkError> + Sync) = &|_| {
            space.rmap_walk(frame, |mapping| {
                black_box(mapping);
            });
            Ok(())
        };
        let beside = (work == Work::Walked).then_some(walk);
        let speed = together((processes, calls), &raise, beside)?;
        let locked = |mm: &MmId| {
            let r = space.mmap_read_lock(*mm)?;
            Some(r.state().stats.adjusts_locked)
        };
        Ok((speed, mms.iter().filter_map(locked).sum()))
    }
}

/// Runs all measurements.
///
/// # Errors
/// If the parameters are out of range or the core refuses a call.
pub fn run(setup: &Setup) -> Result<Report, BrkError> {
    if !(1..=MOST_CALLS).contains(&setup.calls) {
        return Err(BrkError::Calls(setup.calls));
    }
    if setup.rounds == 0 {
        return Err(BrkError::Rounds);
    }
    let subjects: [Box<dyn Subject>; 5] = [
        Box::new(Core::<MmapLockOnly>(PhantomData)),
        Box::new(Core::<FlaggedVmaLock<BoxedRwLock>>(PhantomData)),
        Box::new(Core::<FlaggedVmaLock<AlignedRwLock>>(PhantomData)),
        Box::new(Core::<FlaggedVmaLock>(PhantomData)),
        Box::new(Core::<VmaLock>(PhantomData)),
    ];
    let mut rounds: Vec<[Rounds; 2]> = subjects.iter().map(|_| Default::default()).collect();
    let mut kernel = Rounds::default();
    let mut without_kernel = None;
    for _ in 0..setup.rounds {
        for (subject, rounds) in subjects.iter().zip(&mut rounds) {
            let ways = [AdjustLock::Always, AdjustLock::WhenNeeded];
            for (lock, to) in ways.into_iter().zip(rounds) {
                to.one.push(subject.run(lock, Work::One, setup.calls)?.0);
                to.walked
                    .push(subject.run(lock, Work::Walked, setup.calls)?.0);
                let (speed, locked) = subject.run(lock, Work::Two, setup.calls)?;
                to.two.push(speed);
                to.locked += locked;
            }
        }
        if without_kernel.is_none() {
            without_kernel = on_kernel(setup, &mut kernel).err().map(|e| e.to_string());
        }
    }
    let mut rows = Vec::new();
    for (subject, [always, needed]) in subjects.iter().zip(&rounds) {
        rows.push(row(setup, subject.name(), always, Some(true)));
        let shortcut = Ratios::of_pairs(&needed.walked, &always.walked);
        rows.push(Row {
            shortcut: Some(shortcut),
            ..row(setup, subject.name(), needed, Some(false))
        });
    }
    if without_kernel.is_none() {
        rows.push(row(setup, "kernel", &kernel, None));
    }
    Ok(Report {
        setup: *setup,
        rows,
        without_kernel,
    })
}

fn row(setup: &Setup, who: &str, rounds: &Rounds, always: Option<bool>) -> Row {
    let mut times: Vec<f64> = rounds.one.iter().map(|speed| 1e9 / speed.clock).collect();
    times.sort_by(f64::total_cmp);
    let calls = (2 * setup.calls * setup.rounds as u64) as f64;
    Row {
        who: who.to_owned(),
        always,
        nanoseconds: median(&times),
        two: Ratios::of_pairs(&rounds.two, &rounds.one),
        walked: always.map(|_| Ratios::of_pairs(&rounds.walked, &rounds.one)),
        shortcut: None,
        locked_per_mille: always.map(|_| rounds.locked as f64 * 1000.0 / calls),
    }
}

/// Measures one process and then two processes on the kernel.
///
/// A separate thread of this program controls each process. The processor time of the processes is
/// not measured; wall-clock time is used instead.
fn on_kernel(setup: &Setup, to: &mut Rounds) -> Result<(), OracleError> {
    let raise = |oracle: &mut Oracle| {
        let now = oracle.call(0, BRK, [0; 6])?.unwrap_or(0);
        let series = Series {
            first: [now + PAGE, 0, 0, 0, 0, 0],
            step: [PAGE, 0, 0, 0, 0, 0],
            times: setup.calls,
        };
        let went = oracle.calls(0, BRK, &series)?;
        let _ = oracle.call(0, BRK, [now, 0, 0, 0, 0, 0])?;
        Ok::<f64, OracleError>(setup.calls as f64 / went.time.as_secs_f64().max(1e-9))
    };
    let speed = |times: f64| Speed {
        clock: times,
        processor: times,
    };
    let (mut first, mut second) = (Oracle::start()?, Oracle::start()?);
    to.one.push(speed(raise(&mut first)?));
    let both = thread::scope(|scope| {
        let other = scope.spawn(|| raise(&mut second));
        let one = raise(&mut first);
        Ok::<f64, OracleError>(one? + joined(other)?)
    })?;
    to.two.push(speed(both));
    Ok(())
}
