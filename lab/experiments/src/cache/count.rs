//! Replays a trace once, with every lookup cache in front of the index.
//!
//! The core reports each lookup and each change of an index; each cache processes them as if it
//! were the only cache. The VMA that a cache returns is compared with the VMA from the index. A
//! *thread* here is the use of one thread id in one address space: after `execve`, a thread counts
//! as a new thread with empty caches.

use super::CacheError;
use super::log::Log;
use super::optimum::{self, Step};
use crate::vma_cache::{Cache, Checked, LastUsed, LastUsedAndLargest, NoCache, SLOTS, VmaCache};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vmarea::lookup::{Change, Observer, Vmas};
use vmarea::types::{MmId, VmRange, VmaId};
use vmarea_replay::{Options, Replayer};
use vmarea_trace::event::{Event, Tid};
use vmarea_trace::{Error as TraceError, Reader};

/// Hit and error counts of one cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counter {
    /// Name of the cache.
    pub name: &'static str,
    /// Number of lookups that hit in the cache.
    pub hits: u64,
    /// Number of hits in which the cache returned a VMA that differs from the VMA in the index.
    pub wrong: u64,
    /// Number of times that the lookups read a VMA: those that the cache tried but that did not
    /// contain the address, and the one that a lookup found.
    pub reads: u64,
}

/// Counts from one trace.
#[derive(Debug)]
pub struct Counted {
    /// Number of lookups by page faults.
    pub by_faults: u64,
    /// Number of lookups by calls.
    pub by_calls: u64,
    /// Number of threads that made lookups.
    pub threads: u64,
    /// Maximum number of VMAs in an address space.
    pub most_vmas: u64,
    /// Number of lookups that found a VMA which the same thread had found before, or which took the
    /// place of such a VMA.
    pub bound: u64,
    /// Most hits of a per-thread cache with as many entries as `vmacache` and vmarea's cache have.
    pub optimum: u64,
    /// Counts per cache; the first entry is for lookups without a cache.
    pub counters: Vec<Counter>,
    /// Log of the lookups and changes, for timing.
    pub log: Log,
}

/// The VMAs of an address space, with a count of the times that one is read.
struct Reads<'a> {
    vmas: &'a dyn Vmas,
    times: Cell<u64>,
}

impl Vmas for Reads<'_> {
    fn mm(&self) -> MmId {
        self.vmas.mm()
    }

    fn find(&self, addr: u64) -> Option<VmaId> {
        self.vmas.find(addr)
    }

    fn range(&self, vma: VmaId) -> Option<VmRange> {
        self.times.set(self.times.get() + 1);
        self.vmas.range(vma)
    }
}

/// Caches of one kind, in front of all address spaces of the replay.
trait Side: Send {
    fn enter(&mut self, thread: u32, mm: MmId);
    fn leave(&mut self, thread: u32);
    fn look(&mut self, thread: u32, vmas: &dyn Vmas, addr: u64, found: Option<VmaId>);
    fn change(&mut self, vmas: &dyn Vmas, change: Change);
    fn counter(&self) -> Counter;
}

struct Front<C: Cache> {
    mms: HashMap<MmId, C::Mm>,
    threads: HashMap<u32, C::Thread>,
    counter: Counter,
}

impl<C: Cache + 'static> Front<C> {
    fn boxed() -> Box<dyn Side> {
        Box::new(Front::<C> {
            mms: HashMap::new(),
            threads: HashMap::new(),
            counter: Counter {
                name: C::NAME,
                hits: 0,
                wrong: 0,
                reads: 0,
            },
        })
    }
}

impl<C: Cache> Side for Front<C> {
    fn enter(&mut self, thread: u32, mm: MmId) {
        let own = self.threads.entry(thread).or_default();
        C::enter(self.mms.entry(mm).or_default(), own, mm);
    }

    fn leave(&mut self, thread: u32) {
        self.threads.remove(&thread);
    }

    fn look(&mut self, thread: u32, vmas: &dyn Vmas, addr: u64, found: Option<VmaId>) {
        let shared = self.mms.entry(vmas.mm()).or_default();
        let own = self.threads.entry(thread).or_default();
        let vmas = Reads {
            vmas,
            times: Cell::new(0),
        };
        let cached = C::lookup(shared, own, &vmas, addr);
        match cached.or_else(|| C::look_again(shared, own, &vmas, addr)) {
            Some((hit, _)) => {
                self.counter.hits += 1;
                self.counter.wrong += u64::from(Some(hit) != found);
            }
            None => {
                let found = found.and_then(|vma| Some((vma, vmas.range(vma)?)));
                if let Some(found) = found {
                    C::found(shared, own, &vmas, addr, found);
                }
            }
        }
        self.counter.reads += vmas.times.get();
    }

    fn change(&mut self, vmas: &dyn Vmas, change: Change) {
        let shared = self.mms.entry(vmas.mm()).or_default();
        match change {
            Change::Unlinked { vma, prev } => C::unlinked(shared, vma, prev),
            Change::Unmapped => C::unmapped(shared),
            Change::Linked(_) | Change::Resized { .. } => {}
        }
    }

    fn counter(&self) -> Counter {
        self.counter
    }
}

/// Cause of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    Fault,
    Call,
}

/// State that the replay and its observer share.
struct State {
    sides: Vec<Box<dyn Side>>,
    log: Log,
    /// The thread whose event is being replayed, and the kind of event.
    now: Option<(u32, Cause)>,
    /// Log number and address space of each live thread, by thread id.
    threads: HashMap<Tid, (u32, MmId)>,
    numbers: u32,
    /// What each thread found, and what became of it.
    found: HashMap<u32, Vec<Step<VmaId>>>,
    /// The threads that have found a VMA.
    finders: HashMap<VmaId, HashSet<u32>>,
    by_faults: u64,
    by_calls: u64,
    sizes: HashMap<MmId, u64>,
    most_vmas: u64,
}

impl State {
    fn new() -> Self {
        State {
            sides: vec![
                Front::<NoCache>::boxed(),
                Front::<LastUsed>::boxed(),
                Front::<LastUsedAndLargest>::boxed(),
                Front::<VmaCache>::boxed(),
                Front::<Checked>::boxed(),
            ],
            log: Log::default(),
            now: None,
            threads: HashMap::new(),
            numbers: 0,
            found: HashMap::new(),
            finders: HashMap::new(),
            by_faults: 0,
            by_calls: 0,
            sizes: HashMap::new(),
            most_vmas: 0,
        }
    }

    /// Sets the thread and cause of the next event; the thread enters `own` unless it runs there
    /// already.
    fn begin(&mut self, tid: Tid, own: Option<MmId>, cause: Cause) {
        if let Some(mm) = own
            && self.threads.get(&tid).is_none_or(|(_, now)| *now != mm)
        {
            self.enter(tid, mm);
        }
        self.now = self.threads.get(&tid).map(|(thread, _)| (*thread, cause));
    }

    fn enter(&mut self, tid: Tid, mm: MmId) {
        self.leave(tid);
        let thread = self.numbers;
        self.numbers += 1;
        self.threads.insert(tid, (thread, mm));
        self.log.enter(thread, mm);
        for side in &mut self.sides {
            side.enter(thread, mm);
        }
    }

    fn leave(&mut self, tid: Tid) {
        if let Some((thread, _)) = self.threads.remove(&tid) {
            self.log.leave(thread);
            for side in &mut self.sides {
                side.leave(thread);
            }
        }
    }

    fn look(&mut self, vmas: &dyn Vmas, addr: u64, found: Option<VmaId>) {
        let Some((thread, cause)) = self.now else {
            return;
        };
        match cause {
            Cause::Fault => self.by_faults += 1,
            Cause::Call => self.by_calls += 1,
        }
        let contains = |vma| vmas.range(vma).is_some_and(|range| range.contains(addr));
        let steps = self.found.entry(thread).or_default();
        if let Some(vma) = found {
            steps.push(Step::Found(vma, contains(vma)));
            self.finders.entry(vma).or_default().insert(thread);
        }
        self.log.find(thread, vmas.mm(), addr);
        for side in &mut self.sides {
            side.look(thread, vmas, addr, found);
        }
    }

    fn change(&mut self, vmas: &dyn Vmas, change: Change) {
        let size = self.sizes.entry(vmas.mm()).or_default();
        match change {
            Change::Linked(_) => *size += 1,
            Change::Unlinked { vma, prev } => {
                *size = size.saturating_sub(1);
                let finders = self.finders.remove(&vma).unwrap_or_default();
                if let Some(prev) = prev {
                    for thread in &finders {
                        let steps = self.found.entry(*thread).or_default();
                        steps.push(Step::Removed(vma, prev));
                    }
                    self.finders.entry(prev).or_default().extend(finders);
                }
            }
            Change::Resized { .. } | Change::Unmapped => {}
        }
        self.most_vmas = self.most_vmas.max(*size);
        let by = self.now.map(|(thread, _)| thread);
        self.log.change(by, vmas, change);
        for side in &mut self.sides {
            side.change(vmas, change);
        }
    }
}

#[derive(Clone)]
struct Watch(Arc<Mutex<State>>);

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Watch {
    fn looked_up(&self, vmas: &dyn Vmas, addr: u64, found: Option<VmaId>) {
        self.state().look(vmas, addr, found);
    }

    fn changed(&self, vmas: &dyn Vmas, change: Change) {
        self.state().change(vmas, change);
    }
}

/// Replays a trace under the rules of the kernel that it was recorded on, and counts lookups.
///
/// A truncated trace is replayed up to the truncation.
///
/// # Errors
/// If the trace cannot be read or replayed, or a cache gave a wrong answer.
pub fn count(mut trace: Reader<impl Read>) -> Result<Counted, CacheError> {
    let mut replayer = Replayer::new(trace.header(), &Options::default())?;
    let watch = Watch(Arc::new(Mutex::new(State::new())));
    let (world, _) = replayer.recorded();
    world.space.set_lookup_observer(Box::new(watch.clone()));
    for (number, event) in (&mut trace).enumerate() {
        let event = match event {
            Ok(event) => event,
            Err(TraceError::CutOff { .. } | TraceError::Damaged { .. }) if number > 0 => break,
            Err(error) => return Err(error.into()),
        };
        // A thread may touch other processes' memory, but its faults and calls are in its own.
        let (tid, own, cause) = match &event {
            Event::Fault(fault) => (fault.tid, Some(fault.mm), Cause::Fault),
            Event::Call(call) => (call.tid, Some(call.mm), Cause::Call),
            Event::Touch(touch) => (touch.tid, None, Cause::Fault),
            Event::TaskEnd { tid, .. } => {
                watch.state().leave(*tid);
                (*tid, None, Cause::Call)
            }
            _ => (Tid(0), None, Cause::Call),
        };
        let own = own.and_then(|mm| replayer.recorded().0.existing(mm));
        watch.state().begin(tid, own, cause);
        replayer.event(&event)?;
    }
    drop(replayer);
    let mut state = watch.state();
    let counters: Vec<Counter> = state.sides.iter().map(|side| side.counter()).collect();
    if let Some(bad) = counters.iter().find(|counter| counter.wrong > 0) {
        return Err(CacheError::Wrong {
            cache: bad.name,
            times: bad.wrong,
        });
    }
    let best = |slots| {
        state
            .found
            .values()
            .map(|steps| optimum::hits(steps, slots))
            .sum()
    };
    Ok(Counted {
        by_faults: state.by_faults,
        by_calls: state.by_calls,
        threads: state.found.len() as u64,
        most_vmas: state.most_vmas,
        bound: best(usize::MAX),
        optimum: best(SLOTS),
        counters,
        log: std::mem::take(&mut state.log),
    })
}

#[cfg(test)]
mod tests {
    use super::super::cost;
    use super::*;
    use vmarea_trace::Writer;
    use vmarea_trace::event::{
        Access, Call, Fault, Header, MmId, MmStart, Order, Origin, SnapReason, SnapVma, Snapshot,
    };

    const MM: MmId = MmId(1);
    const MMAP: u32 = 9;
    const MUNMAP: u32 = 11;

    fn fault(tid: i32, addr: u64) -> Event {
        Event::Fault(Fault {
            tid: Tid(tid),
            mm: MM,
            addr,
            access: Access::Read,
            kernel: false,
            t: 0,
            order: Order::Exact,
        })
    }

    fn call(tid: i32, nr: u32, args: [u64; 6], ret: i64) -> Event {
        Event::Call(Call {
            tid: Tid(tid),
            mm: MM,
            nr,
            args,
            ret,
            t: 0,
            order: Order::Exact,
            file: None,
            data: Vec::new(),
        })
    }

    fn map(tid: i32, addr: u64, len: u64) -> Event {
        call(tid, MMAP, [addr, len, 3, 0x32, u64::MAX, 0], addr as i64)
    }

    /// Returns the events that create an empty address space.
    fn born() -> Vec<Event> {
        vec![
            Event::MmStart(MmStart {
                mm: MM,
                origin: Origin::Exec,
                t: 0,
            }),
            Event::Snapshot(Snapshot {
                mm: MM,
                reason: SnapReason::Exec,
                t: 0,
                exact: true,
                info: None,
                vmas: Vec::<SnapVma>::new(),
            }),
        ]
    }

    fn counted(events: &[Event]) -> Counted {
        let mut trace = Vec::new();
        let header = Header {
            page_size: 4096,
            machine: "x86_64".to_owned(),
            ..Header::default()
        };
        let mut writer = Writer::new(&mut trace, &header).unwrap();
        for event in events {
            writer.write(event).unwrap();
        }
        writer.flush().unwrap();
        drop(writer);
        count(Reader::new(trace.as_slice()).unwrap()).unwrap()
    }

    /// Returns the number of hits of each cache, and the upper bound.
    ///
    /// The caches are `NoCache`, `LastUsed`, `LastUsedAndLargest`, `VmaCache` and `Checked`.
    fn hits(counted: &Counted) -> (Vec<u64>, u64) {
        let hits = counted.counters.iter().map(|c| c.hits).collect();
        assert_eq!(hits, cost::hits(&counted.log), "timing repeats the replay");
        (hits, counted.bound)
    }

    const A: u64 = 0x10_0000_0000;
    const B: u64 = 0x20_0000_0000;

    #[test]
    fn two_threads_in_two_mappings() {
        let mut events = born();
        events.extend([map(1, A, 0x10000), map(1, B, 0x10000)]);
        for page in 0..8 {
            events.extend([fault(1, A + page * 4096), fault(2, B + page * 4096)]);
        }
        let counted = counted(&events);
        assert_eq!((counted.by_faults, counted.threads), (16, 2));
        // The threads evict each other's VMA from the last-used cache. If the largest VMA is cached
        // separately, the last-used entry remains B.
        assert_eq!(hits(&counted), (vec![0, 0, 14, 14, 14], 14));
    }

    #[test]
    fn a_removal_elsewhere() {
        let mut events = born();
        events.extend([map(1, A, 0x10000), map(1, B, 0x1000)]);
        events.extend([fault(1, A), fault(1, A + 4096)]);
        events.push(call(1, MUNMAP, [B, 0x1000, 0, 0, 0, 0], 0));
        events.extend([fault(1, A + 8192), fault(1, A + 12288)]);
        let counted = counted(&events);
        // The three calls make lookups as well. Only `Checked` and the largest VMA keep A across
        // the unmap.
        assert_eq!((counted.by_faults, counted.by_calls), (4, 3));
        assert_eq!(hits(&counted), (vec![0, 2, 3, 2, 3], 3));
    }

    #[test]
    fn in_turn_is_another_order_of_the_same_lookups() {
        let mut events = born();
        events.extend([map(1, A, 0x10000), map(1, B, 0x10000)]);
        events.extend((0..8).map(|page| fault(1, A + page * 4096)));
        events.extend((0..8).map(|page| fault(2, B + page * 4096)));
        let counted = counted(&events);
        assert_eq!(hits(&counted).0, [0, 14, 14, 14, 14]);
        assert_eq!(cost::hits(&counted.log.in_turn()), [0, 0, 14, 14, 14]);
    }

    /// What two threads do: each maps memory, touches it, and unmaps a part of it.
    fn in_slices_of(steps: usize) -> Counted {
        let work = |tid: i32, at: u64| {
            let mut events = Vec::new();
            for round in (0..4).map(|round| at + round * 0x10_0000) {
                events.push(map(tid, round, 0x8000));
                events.extend((0..8).map(|page| fault(tid, round + page * 4096)));
                events.push(call(tid, MUNMAP, [round, 0x1000, 0, 0, 0, 0], 0));
                events.push(fault(tid, round + 4096));
            }
            events
        };
        let (a, b) = (work(1, A), work(2, B));
        let mut events = born();
        for (a, b) in a.chunks(steps).zip(b.chunks(steps)) {
            events.extend(a.iter().chain(b).cloned());
        }
        counted(&events)
    }

    #[test]
    fn the_order_in_turn_does_not_depend_on_the_slices_of_the_recording() {
        let [fine, coarse] = [1, 100].map(in_slices_of);
        assert_ne!(
            hits(&fine).0[1],
            hits(&coarse).0[1],
            "the recorded orders differ"
        );
        let in_turn = [&fine, &coarse].map(|counted| cost::hits(&counted.log.in_turn()));
        assert_eq!(in_turn[0], in_turn[1]);
        assert!(
            in_turn[0][1] < in_turn[0][4],
            "the threads share the last-used one"
        );
    }

    #[test]
    fn in_turn_a_thread_waits_for_what_it_needs_of_another() {
        let mut events = born();
        events.push(map(1, A, 0x8000));
        events.extend((0..3).map(|page| fault(1, A + page * 4096)));
        events.push(map(1, B, 0x8000));
        // The second thread's memory exists only now, and after its lookups the first unmaps it.
        events.extend((0..3).map(|page| fault(2, B + page * 4096)));
        events.push(call(1, MUNMAP, [B, 0x8000, 0, 0, 0, 0], 0));
        events.push(fault(1, A));
        let counted = counted(&events);
        let in_turn = counted.log.in_turn();
        assert_eq!(in_turn.steps.len(), counted.log.steps.len());
        let bound_in_turn = cost::hits(&in_turn)[4];
        assert_eq!(
            bound_in_turn,
            hits(&counted).0[4],
            "each lookup finds what it found"
        );
    }
}
