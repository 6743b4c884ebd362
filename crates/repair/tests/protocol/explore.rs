//! Breadth-first exploration of every order of events.
//!
//! The first state in which an invariant is violated is reached by a shortest sequence of steps,
//! which is the trace that is returned. If there is none, every state must have an end in reach
//! without help from the bully: otherwise something waits, or repeats itself, for ever.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use super::kernel::{Label, Rules, Step, foreign_steps, thread_steps};
use super::outside::{bully_steps, final_fault, sweep_steps};
use super::state::{Fault, Machine, PROGRAM, State};

/// A protocol: its tracer and its agent.
pub trait Protocol {
    fn machine(&self) -> &Machine;
    fn rules(&self) -> &Rules;
    /// Collects the steps of the tracer, which is alive.
    fn tracer_steps(&self, state: &State, out: &mut Vec<Step>);
    /// Collects the steps of threads that execute the agent's code.
    fn agent_steps(&self, state: &State, out: &mut Vec<Step>);
}

/// A violation: what is wrong, and the steps that lead to it.
pub struct Violation {
    pub fault: Fault,
    pub trace: Vec<Label>,
}

/// The result of an exploration.
pub struct Explored {
    pub states: usize,
    pub violation: Option<Violation>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?} after {} steps:", self.fault, self.trace.len())?;
        for (n, Label(who, what, number)) in self.trace.iter().enumerate() {
            writeln!(f, "{:3}  {who:15} {what} [{number}]", n + 1)?;
        }
        Ok(())
    }
}

/// A fast hash: the standard one takes most of the time.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u8(byte));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }
}

struct Found {
    state: State,
    parent: u32,
    label: Label,
}

struct Search {
    found: Vec<Found>,
    known: HashMap<State, u32, BuildHasherDefault<Mix>>,
    /// Steps that need no help from the bully: from where to where.
    edges: Vec<(u32, u32)>,
    ends: Vec<u32>,
}

/// Explores all orders of events of a protocol, up to the first violation. With `wanted`, other
/// violations are passed over: nothing follows them.
pub fn explore(protocol: &dyn Protocol, wanted: Option<Fault>) -> Explored {
    let start = State::new(protocol.machine());
    let mut search = Search {
        found: Vec::new(),
        known: HashMap::default(),
        edges: Vec::new(),
        ends: Vec::new(),
    };
    search.add(start, 0, Label("", "", 0));
    let mut at = 0;
    let fault = loop {
        let Some(found) = search.found.get(at) else {
            break search.without_end();
        };
        let state = found.state;
        let fault = state
            .fault
            .or_else(|| search.follow(protocol, &state, at as u32));
        match fault {
            Some(fault) if wanted.is_none_or(|wanted| wanted == fault) => {
                break Some((fault, at as u32));
            }
            Some(_) => search.ends.push(at as u32),
            None => {}
        }
        at += 1;
    };
    let violation = fault.map(|(fault, at)| Violation {
        fault,
        trace: search.trace(at),
    });
    Explored {
        states: search.found.len(),
        violation,
    }
}

/// Collects the steps of the process, of its tracer, and of those who wait.
fn own_steps(protocol: &dyn Protocol, state: &State, out: &mut Vec<Step>) {
    let (machine, rules) = (protocol.machine(), protocol.rules());
    if state.tracer.alive {
        protocol.tracer_steps(state, out);
    }
    protocol.agent_steps(state, out);
    for i in PROGRAM.into_iter().chain([super::state::AGENT]) {
        thread_steps(machine, rules, state, i, out);
    }
    foreign_steps(state, out);
    out.retain(|(_, next)| next != state);
}

impl Search {
    fn add(&mut self, state: State, parent: u32, label: Label) -> u32 {
        let index = self.found.len() as u32;
        match self.known.entry(state) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                place.insert(index);
                self.found.push(Found {
                    state,
                    parent,
                    label,
                });
                index
            }
        }
    }

    /// Adds all states that can follow. Returns what is wrong if nothing follows by itself.
    fn follow(&mut self, protocol: &dyn Protocol, state: &State, at: u32) -> Option<Fault> {
        let mut steps = Vec::new();
        own_steps(protocol, state, &mut steps);
        if steps.is_empty() {
            self.ends.push(at);
            let fault = final_fault(protocol.machine(), state);
            if fault.is_some() {
                return fault;
            }
        }
        for (label, next) in steps.drain(..) {
            let to = self.add(next, at, label);
            self.edges.push((at, to));
        }
        bully_steps(protocol.machine(), protocol.rules(), state, &mut steps);
        sweep_steps(protocol.rules(), state, &mut steps);
        for (label, next) in steps {
            self.add(next, at, label);
        }
        None
    }

    /// Returns the first state from which no end is in reach.
    fn without_end(&self) -> Option<(Fault, u32)> {
        let count = self.found.len();
        let mut first = vec![0_u32; count + 2];
        self.edges
            .iter()
            .for_each(|edge| first[edge.1 as usize + 2] += 1);
        (1..first.len()).for_each(|n| first[n] += first[n - 1]);
        let mut sources = vec![0_u32; self.edges.len()];
        for &(from, to) in &self.edges {
            let place = &mut first[to as usize + 1];
            sources[*place as usize] = from;
            *place += 1;
        }
        let mut ends = vec![false; count];
        let mut queue = self.ends.clone();
        while let Some(at) = queue.pop() {
            if !std::mem::replace(&mut ends[at as usize], true) {
                let range = first[at as usize] as usize..first[at as usize + 1] as usize;
                queue.extend(&sources[range]);
            }
        }
        let endless = ends.iter().position(|ends| !ends)?;
        Some((Fault::NoEnd, endless as u32))
    }

    fn trace(&self, mut at: u32) -> Vec<Label> {
        let mut trace = Vec::new();
        while at != 0 {
            let found = &self.found[at as usize];
            trace.push(found.label);
            at = found.parent;
        }
        trace.reverse();
        trace
    }
}

/// A protocol whose tracer turns in a circle.
struct Circle(Machine, Rules);

impl Protocol for Circle {
    fn machine(&self) -> &Machine {
        &self.0
    }

    fn rules(&self) -> &Rules {
        &self.1
    }

    fn tracer_steps(&self, state: &State, out: &mut Vec<Step>) {
        let mut next = *state;
        next.tracer.saw_stop = !state.tracer.saw_stop;
        out.push((Label("tracer", "looks", 0), next));
    }

    fn agent_steps(&self, _: &State, _: &mut Vec<Step>) {}
}

#[test]
fn what_goes_on_for_ever_is_found() {
    let rules = Rules {
        loses_told: false,
        sweeps_blindly: false,
        overlooks_handlers: false,
        forgets_sequence: false,
        stub_passes: false,
    };
    let machine = Machine {
        acts: 0,
        ..super::ANYTHING
    };
    let explored = explore(&Circle(machine, rules), None);
    assert_eq!(explored.violation.map(|v| v.fault), Some(Fault::NoEnd));
}
