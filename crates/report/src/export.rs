//! A replayed recording in the Chrome trace format, which Perfetto and other viewers read.
//!
//! Each process has a counter with its number of mappings under each policy, and each thread its
//! calls; a call that merged, split or did not merge says so in its arguments. A recording has no
//! durations of calls, so each call is drawn with one microsecond. Page faults are counted, not
//! listed: there are too many.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use vmarea::mm::Stats;
use vmarea_explain::origins::label;
use vmarea_replay::Replayer;
use vmarea_trace::event::{Call, Event, MmId, Tid};

/// Number of page faults between two values of their counter.
const FAULTS_A_VALUE: u64 = 256;

/// Writes events while a recording is replayed.
pub struct ChromeTrace<W: Write> {
    out: W,
    any: bool,
    spaces: HashMap<MmId, Space>,
    pids: HashMap<Tid, Tid>,
}

/// What is known of an address space.
#[derive(Default)]
struct Space {
    pid: i32,
    stats: Stats,
    faults: u64,
    counts: BTreeMap<String, u64>,
}

impl<W: Write> ChromeTrace<W> {
    /// Begins the document.
    ///
    /// # Errors
    /// Any error from writing to `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(ChromeTrace {
            out,
            any: false,
            spaces: HashMap::new(),
            pids: HashMap::new(),
        })
    }

    /// Writes what an event did; `replayer` must already have replayed it.
    ///
    /// # Errors
    /// Any error from writing.
    pub fn event(&mut self, event: &Event, replayer: &mut Replayer) -> io::Result<()> {
        match event {
            Event::TaskStart { tid, pid, mm, t } => {
                self.pids.insert(*tid, *pid);
                let space = self.spaces.entry(*mm).or_default();
                if space.pid == 0 {
                    space.pid = pid.0;
                    let name = format!("process {} (mm{})", pid.0, mm.0);
                    self.put(
                        json!({"ph": "M", "name": "process_name", "pid": pid.0, "ts": us(*t),
                        "args": {"name": name}}),
                    )?;
                }
                self.count(*mm, *t, replayer)
            }
            Event::Call(call) => self.call(call, replayer),
            Event::Fault(fault) => {
                let space = self.spaces.entry(fault.mm).or_default();
                space.faults += 1;
                if !space.faults.is_multiple_of(FAULTS_A_VALUE) {
                    return Ok(());
                }
                let (pid, faults) = (space.pid, space.faults);
                self.put(
                    json!({"ph": "C", "name": "page faults", "pid": pid, "ts": us(fault.t),
                    "args": {"faults": faults}}),
                )
            }
            Event::Snapshot(snapshot) => self.count(snapshot.mm, snapshot.t, replayer),
            Event::MmStart(start) => self.count(start.mm, start.t, replayer),
            _ => Ok(()),
        }
    }

    /// Ends the document and returns the destination.
    ///
    /// # Errors
    /// Any error from writing.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn call(&mut self, call: &Call, replayer: &mut Replayer) -> io::Result<()> {
        let mut arguments = Map::new();
        arguments.insert("result".to_owned(), json!(format!("{:#x}", call.ret)));
        arguments.insert("address".to_owned(), json!(format!("{:#x}", call.args[0])));
        let (world, _) = replayer.recorded();
        let guard = world.mm(call.mm);
        let guard = guard.and_then(|mm| world.space.mmap_read_lock(mm));
        let space = self.spaces.entry(call.mm).or_default();
        if let Some(guard) = &guard {
            let (now, before) = (&guard.state().stats, &space.stats);
            let merges = now.merges().zip(before.merges());
            for ((kind, n), (_, was)) in merges.filter(|(now, was)| now.1 > was.1) {
                arguments.insert(format!("merged, {}", kind.name()), json!(n - was));
            }
            let refusals = now.refusals().zip(before.refusals());
            for ((why, n), (_, was)) in refusals.filter(|(now, was)| now.1 > was.1) {
                arguments.insert(format!("not merged, {}", why.name()), json!(n - was));
            }
            if now.splits > before.splits {
                arguments.insert("splits".to_owned(), json!(now.splits - before.splits));
            }
            if now != before {
                space.stats = now.clone();
            }
        }
        drop(guard);
        if space.pid == 0 {
            space.pid = call.tid.0;
        }
        let pid = self.pids.get(&call.tid).map_or(space.pid, |pid| pid.0);
        self.put(
            json!({"ph": "X", "cat": "call", "name": label(call), "pid": pid,
            "tid": call.tid.0, "ts": us(call.t), "dur": 1, "args": arguments}),
        )?;
        self.count(call.mm, call.t, replayer)
    }

    /// Writes the numbers of mappings if they have changed and the process is known.
    fn count(&mut self, mm: MmId, t: u64, replayer: &Replayer) -> io::Result<()> {
        let space = self.spaces.entry(mm).or_default();
        if space.pid == 0 {
            return Ok(());
        }
        let worlds = replayer.worlds().iter();
        let now: BTreeMap<_, _> = worlds.map(|w| (w.name.to_owned(), w.vmas(mm))).collect();
        if space.counts == now {
            return Ok(());
        }
        space.counts = now;
        let value = json!({"ph": "C", "name": format!("mappings of mm{}", mm.0), "pid": space.pid,
            "ts": us(t), "args": &space.counts});
        self.put(value)
    }

    fn put(&mut self, value: Value) -> io::Result<()> {
        let before: &[u8] = if self.any { b",\n" } else { b"\n" };
        self.any = true;
        self.out.write_all(before)?;
        serde_json::to_writer(&mut self.out, &value).map_err(io::Error::from)
    }
}

/// Converts nanoseconds to microseconds, the unit of the format.
fn us(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}
