//! The earlier protocol: a borrowed thread, and a process in group-stop.
//!
//! The tracer sends `SIGSTOP`, changes the registers of a borrowed thread, and believes the next
//! stop for `SIGSTOP` to be its own. The agent is code that the borrowed thread executes; it ends by
//! `SIGSTOP` to itself. Source: `crates/repair/src/remote/{injector,stop}.rs` and `piece.rs` before
//! the agent was a thread.

use super::explore::Protocol;
use super::kernel::{self, Label, Rules, Step};
use super::state::{At, Fault, Machine, Run, Signal, State, Thread};

/// A step of the tracer; the number is a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Do {
    Seize(usize),
    AwaitStop(usize),
    /// `SIGSTOP` to the borrowed thread.
    SendStop,
    Run,
    AwaitGroupStop,
    Mask(bool),
    /// Registers of a call, then of the agent.
    SetCall,
    AwaitCall,
    SetAgent,
    /// Any stop for `SIGSTOP` is believed.
    AwaitOwnStop,
    /// The calls that the agent has made had no error.
    LookAtTable,
    Back,
    LookAtStops,
    SendCont,
    SwallowCont,
    SendStopsAgain,
    Detach(usize),
    End,
}

/// A call of the agent; the number is a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    MapFresh,
    Out(u8),
    Swap,
    Register,
    Back(u8),
    Unregister,
    SendStop,
}

/// The protocol for a machine.
pub struct Old {
    machine: Machine,
    rules: Rules,
    tracer: Vec<Do>,
    agent: Vec<Call>,
}

impl Old {
    /// Returns the protocol on a machine.
    pub fn on(machine: Machine) -> Old {
        let pages = 0..machine.pages;
        let mut agent = vec![Call::MapFresh];
        agent.extend(pages.clone().map(Call::Out));
        agent.extend([Call::Swap, Call::Register]);
        agent.extend(pages.map(Call::Back));
        agent.extend([Call::Unregister, Call::SendStop]);
        let tracer = [
            [
                Do::Seize(0),
                Do::Seize(1),
                Do::AwaitStop(1),
                Do::AwaitStop(0),
            ],
            [Do::SendStop, Do::Run, Do::AwaitGroupStop, Do::Mask(true)],
            // One call, and to settle after it.
            [Do::SetCall, Do::Run, Do::AwaitCall, Do::SendStop],
            [Do::Run, Do::AwaitOwnStop, Do::SetAgent, Do::Run],
            [Do::AwaitOwnStop, Do::LookAtTable, Do::Back, Do::Mask(false)],
            [
                Do::LookAtStops,
                Do::SendCont,
                Do::SwallowCont,
                Do::SendStopsAgain,
            ],
            [Do::Detach(0), Do::Detach(1), Do::End, Do::End],
        ];
        Old {
            machine,
            rules: Rules {
                loses_told: true,
                sweeps_blindly: false,
                overlooks_handlers: false,
                forgets_sequence: true,
                stub_passes: false,
            },
            tracer: tracer.concat(),
            agent,
        }
    }

    /// Returns the index of the agent's call `call`.
    fn index(&self, call: Call) -> u8 {
        self.agent.iter().position(|&c| c == call).unwrap_or(0) as u8
    }

    /// The tracer waits for a stop of the borrowed thread, or of another.
    fn await_stop(&self, step: Do, s: &State, out: &mut Vec<Step>) {
        let mut next = *s;
        let i = if let Do::AwaitStop(i) = step { i } else { 0 };
        let t = &s.threads[i];
        let is_wanted = match step {
            Do::AwaitStop(_) => t.run == Run::Trapped,
            Do::AwaitGroupStop => t.run == Run::Trapped && s.group_stop,
            Do::AwaitCall => t.run == Run::AtCall,
            Do::AwaitOwnStop => t.is_at_stop_signal(),
            _ => t.run == Run::AtSignal(Signal::Cont),
        };
        if is_wanted {
            next.tracer.step += 1;
            out.push((
                Label("tracer", "sees the stop that it wants of thread", i as u8),
                next,
            ));
        } else if t.is_held() {
            // Before the first call, and after the last, signals are passed on; in between, they are
            // suppressed.
            let passes = !matches!(step, Do::AwaitCall | Do::AwaitOwnStop);
            let signal = match t.run {
                Run::AtSignal(signal) if passes => Some(signal),
                _ => None,
            };
            kernel::resume(&mut next, i, signal);
            out.push((Label("tracer", "lets go on thread", i as u8), next));
        } else if step == Do::AwaitGroupStop && !kernel::is_kernel_busy(s, 0) {
            // The stop was discarded: the tracer undoes it.
            next.tracer.step = self
                .tracer
                .iter()
                .position(|&s| s == Do::LookAtStops)
                .unwrap_or(0) as u8;
            out.push((Label("tracer", "gives up", 0), next));
        } else if step == Do::SwallowCont && !s.cont {
            // Nothing came in time.
            next.threads[i].interrupt = true;
            next.tracer.step += 1;
            out.push((Label("tracer", "interrupts thread", i as u8), next));
        }
    }

    /// The steps that wait for nobody.
    fn act(&self, step: Do, s: &State, out: &mut Vec<Step>) {
        let mut next = *s;
        next.tracer.step += 1;
        let (what, i) = match step {
            Do::Seize(i) => {
                kernel::seize(&mut next, i);
                next.threads[i].interrupt = true;
                ("seizes thread", i)
            }
            Do::SendStop => {
                next.stop_private = true;
                ("sends SIGSTOP to thread", 0)
            }
            Do::Run => {
                kernel::resume(&mut next, 0, None);
                ("lets go on thread", 0)
            }
            Do::Mask(_) | Do::SetCall | Do::SetAgent | Do::Back => {
                (change(step, &mut next.threads[0]), 0)
            }
            Do::LookAtTable => {
                let refused = s.populated && s.watched && !s.is_whole();
                let at = s.threads[0].at;
                let is_back = matches!(at, At::Agent(n) if n > self.index(Call::Register));
                if refused && is_back {
                    // `LeftStopped`: the pages cannot be brought back.
                    next.tracer.step = self.tracer.len() as u8 - 1;
                }
                ("reads the table", 0)
            }
            Do::LookAtStops => {
                next.tracer.saw_stop = s.stop_shared || s.stop_private;
                ("reads which stop signals are pending", 0)
            }
            Do::SendCont => {
                kernel::send_cont(&mut next);
                ("sends SIGCONT", 0)
            }
            Do::SendStopsAgain => {
                next.stop_shared |= s.tracer.saw_stop;
                ("sends the stop signals again", 0)
            }
            Do::Detach(i) if s.threads[i].is_held() => {
                kernel::detach(&mut next, i, None);
                ("detaches thread", i)
            }
            Do::Detach(i) => {
                (next.threads[i].interrupt, next.tracer.step) = (true, s.tracer.step);
                ("interrupts thread", i)
            }
            _ => return,
        };
        out.push((Label("tracer", what, i as u8), next));
    }

    fn call(&self, at: u8, s: &mut State) -> (&'static str, u8) {
        let Some(&call) = self.agent.get(at as usize) else {
            s.fail(Fault::ForeignRegisters);
            return ("runs on behind its end", 0);
        };
        match call {
            Call::MapFresh => {
                kernel::map_fresh(&self.machine, s);
                ("maps the fresh mapping", 0)
            }
            Call::Out(p) => {
                // A page that somebody else has caused at home is not moved twice.
                kernel::move_out(s, p);
                ("moves out page", p)
            }
            Call::Swap => {
                kernel::swap(s);
                ("moves the fresh mapping over the piece", 0)
            }
            Call::Register => {
                s.watched = true;
                ("watches the piece", 0)
            }
            Call::Back(p) => {
                if !kernel::move_back(s, p) {
                    s.threads[0].at = At::Agent(self.index(Call::SendStop));
                    return ("cannot move back page", p);
                }
                ("moves back page", p)
            }
            Call::Unregister => {
                s.watched = false;
                ("ends the watch", 0)
            }
            Call::SendStop => {
                s.stop_private = true;
                ("sends SIGSTOP to itself", 0)
            }
        }
    }
}

/// Changes the registers or the mask of the borrowed thread.
fn change(step: Do, t: &mut Thread) -> &'static str {
    match step {
        Do::Mask(all) => {
            t.masked = all;
            return "sets the mask of thread";
        }
        Do::SetCall => t.at = At::Raw,
        Do::SetAgent => t.at = At::Agent(0),
        _ => t.at = At::Program,
    }
    "sets the registers of thread"
}

impl Protocol for Old {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn tracer_steps(&self, s: &State, out: &mut Vec<Step>) {
        let step = self.tracer[s.tracer.step as usize];
        match step {
            Do::AwaitStop(_)
            | Do::AwaitGroupStop
            | Do::AwaitCall
            | Do::AwaitOwnStop
            | Do::SwallowCont => self.await_stop(step, s, out),
            _ => self.act(step, s, out),
        }
    }

    fn agent_steps(&self, s: &State, out: &mut Vec<Step>) {
        let At::Agent(at) = s.threads[0].at else {
            return;
        };
        if s.threads[0].run != Run::Runs || kernel::is_kernel_busy(s, 0) {
            return;
        }
        let mut next = *s;
        next.threads[0].at = At::Agent(at + 1);
        kernel::run_elsewhere(&mut next, 0);
        let (what, page) = self.call(at, &mut next);
        if s.threads[0].dispatch {
            next.fail(Fault::Dispatched);
        }
        out.push((Label("borrowed thread", what, page), next));
    }
}
