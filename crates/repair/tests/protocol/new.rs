//! The protocol of `vmarea merge -p`: trap stops, stubs that restore themselves, an agent, and parked
//! threads.
//!
//! Both the tracer and the agent are lists of steps, as `stop.rs`, `agent.rs` and `program.rs` of the
//! crate make them. A [`Pitfall`] changes one thing.

use super::explore::Protocol;
use super::kernel::{self, Label, Rules, Step};
use super::state::{AGENT, At, Fault, Fresh, Machine, Point, Run, Signal, State, Work};

/// A way to get it wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pitfall {
    /// None: the protocol as it should be.
    Nothing,
    /// The call is made with foreign registers, which only the tracer restores.
    RawCall,
    /// The tracer does not block the thread's signals, and takes the first call for the stub's.
    HandlerCountsAsCall,
    /// Threads are left at their stops while pages are out.
    NobodyParked,
    /// The fresh mapping is moved over the piece without a watch.
    FreshUnwatched,
    /// The fresh mapping is new memory.
    FreshIsMapped,
    /// The fresh mapping is moved over the piece without a look whether the kernel has joined it.
    UnjoinedMoved,
    /// The agent is believed to have ended as it cannot be resumed.
    TakesEsrchForEnd,
    /// A stub forgets a restartable sequence instead of aborting it.
    SequenceForgotten,
    /// A second vmarea removes the stubs without looking at the threads.
    SweepsBlindly,
    /// A second vmarea removes a stub to which a handler returns.
    HandlersOverlooked,
    /// The thread enters the stub as if it were in its interrupted call.
    CallKept,
    /// The tracer repeats a call by setting the instruction pointer back.
    RestartByHand,
    /// Syscall User Dispatch stays on in stubs.
    DispatchKept,
    /// The tracer switches Syscall User Dispatch off after it has sent a thread to a stub.
    DispatchByTracer,
    /// A stop signal is believed to be a stop of the tracer, and not passed on.
    StopBelieved,
    /// An agent which finds that the tracer has died before it could begin lets nobody go.
    NobodyFreed,
    /// A thread whose `clone` is refused leaves the stub, and is sent into it once more.
    ClonesAgain,
    /// The report of a signal is consumed before the signal is passed on.
    SignalTaken,
    /// Threads that were to be let go early are detached without a look at their stops.
    DetachesBlindly,
    /// A thread that stops for a signal is expected to stop again for the tracer, which does not ask again.
    AsksOnce,
}

/// A step of the tracer; the number is a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Do {
    Seize(usize),
    /// Asks a seized thread to stop.
    Ask(usize),
    AwaitStop(usize),
    SendToCall,
    SendToRaw,
    Park(usize),
    Mask(usize, bool),
    Dispatch(bool),
    Run(usize),
    AwaitClone,
    Interrupt,
    Back(usize),
    /// Without an agent, the piece is given up.
    IfAgent,
    Go,
    Follow,
    Detach(usize),
    End,
}

/// A step of the agent; the number is a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    IfGo,
    Register,
    Out(u8),
    CopyMapping,
    /// Moves the fresh mapping to free addresses.
    TryMove,
    RegisterFresh,
    Swap,
    Join,
    Back(u8),
    Unregister,
    Free,
    Exit,
}

/// The protocol for a machine.
pub struct New {
    machine: Machine,
    rules: Rules,
    pitfall: Pitfall,
    tracer: Vec<Do>,
    agent: Vec<Task>,
}

impl New {
    /// Returns the protocol on a machine. `in_place` is false if page offsets do not follow from addresses.
    pub fn on(machine: Machine, in_place: bool, pitfall: Pitfall) -> New {
        New {
            machine,
            pitfall,
            rules: Rules {
                loses_told: pitfall == Pitfall::SignalTaken,
                sweeps_blindly: pitfall == Pitfall::SweepsBlindly,
                overlooks_handlers: pitfall == Pitfall::HandlersOverlooked,
                forgets_sequence: pitfall == Pitfall::SequenceForgotten,
                stub_passes: ![Pitfall::DispatchKept, Pitfall::DispatchByTracer].contains(&pitfall),
            },
            tracer: tracer(&machine, pitfall),
            agent: agent(&machine, in_place, pitfall),
        }
    }
}

fn tracer(machine: &Machine, pitfall: Pitfall) -> Vec<Do> {
    let by_tracer = machine.dispatch && pitfall == Pitfall::DispatchByTracer;
    let off = by_tracer.then_some(Do::Dispatch(false));
    // A thread that is brought back from the middle of a stub needs its own dispatch again.
    let sets = machine.dispatch && pitfall != Pitfall::DispatchKept;
    let on = sets.then_some(Do::Dispatch(true));
    let mut list = vec![Do::Seize(0), Do::Ask(0), Do::Seize(1), Do::Ask(1)];
    list.extend([Do::AwaitStop(1), Do::AwaitStop(0)]);
    list.push(match pitfall {
        Pitfall::RawCall => Do::SendToRaw,
        _ => Do::SendToCall,
    });
    if pitfall != Pitfall::HandlerCountsAsCall {
        list.push(Do::Mask(0, true));
    }
    list.extend(off);
    list.extend([
        Do::Run(0),
        Do::AwaitClone,
        Do::Interrupt,
        Do::AwaitStop(0),
        Do::Mask(0, false),
    ]);
    list.extend(on);
    list.extend([Do::Back(0), Do::IfAgent]);
    if pitfall != Pitfall::NobodyParked {
        list.extend([Do::Park(0), Do::Mask(0, true)]);
        list.extend(off);
        list.extend([Do::Park(1), Do::Mask(1, true)]);
    }
    list.extend([Do::Go, Do::Follow]);
    if pitfall != Pitfall::NobodyParked {
        list.push(Do::Mask(0, false));
        list.extend(on);
        list.extend([Do::Back(0), Do::Mask(1, false), Do::Back(1)]);
    }
    list.extend([Do::Detach(0), Do::Detach(1), Do::End]);
    list
}

fn agent(machine: &Machine, in_place: bool, pitfall: Pitfall) -> Vec<Task> {
    let mut list = vec![Task::IfGo, Task::Register];
    list.extend((0..machine.pages).map(Task::Out));
    match in_place {
        true => list.push(Task::Join),
        false => {
            list.push(Task::CopyMapping);
            if pitfall != Pitfall::UnjoinedMoved {
                list.push(Task::TryMove);
            }
            if pitfall != Pitfall::FreshUnwatched {
                list.push(Task::RegisterFresh);
            }
            list.push(Task::Swap);
        }
    }
    list.extend((0..machine.pages).map(Task::Back));
    list.extend([Task::Unregister, Task::Free, Task::Exit]);
    list
}

impl Protocol for New {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn tracer_steps(&self, s: &State, out: &mut Vec<Step>) {
        let step = self.tracer[s.tracer.step as usize];
        let thread = match step {
            Do::AwaitStop(i) => i,
            Do::AwaitClone => 0,
            Do::Follow => AGENT,
            _ => return self.act(step, s, out),
        };
        if let Run::AtSignal(signal) = s.threads[thread].run {
            return self.pass_on(thread, signal, s, out);
        }
        match step {
            Do::AwaitStop(_) => self.await_stop(thread, s, out),
            Do::AwaitClone => self.await_clone(s, out),
            _ => self.follow(s, out),
        }
    }

    fn agent_steps(&self, s: &State, out: &mut Vec<Step>) {
        let t = &s.threads[AGENT];
        let At::Agent(at) = t.at else { return };
        if t.run != Run::Runs || kernel::is_kernel_busy(s, AGENT) {
            return;
        }
        let mut next = *s;
        next.threads[AGENT].at = At::Agent(at + 1);
        let (what, page) = self.work(at, &mut next);
        out.push((Label("agent", what, page), next));
    }
}

impl New {
    fn end(&self) -> u8 {
        self.tracer.len() as u8 - 1
    }

    /// The tracer is told of a signal, and then passes it on.
    fn pass_on(&self, i: usize, signal: Signal, s: &State, out: &mut Vec<Step>) {
        let mut next = *s;
        if s.tracer.told == Some(i as u8) {
            next.tracer.told = None;
            let awaits_stop = matches!(self.tracer[s.tracer.step as usize], Do::AwaitStop(_));
            next.threads[i].interrupt = awaits_stop && self.pitfall != Pitfall::AsksOnce;
            let swallows = self.pitfall == Pitfall::StopBelieved && signal == Signal::Stop;
            kernel::resume(&mut next, i, (!swallows).then_some(signal));
            out.push((
                Label("tracer", "passes on the signal of thread", i as u8),
                next,
            ));
        } else {
            next.tracer.told = Some(i as u8);
            out.push((
                Label("tracer", "is told of a signal of thread", i as u8),
                next,
            ));
        }
    }

    fn await_stop(&self, i: usize, s: &State, out: &mut Vec<Step>) {
        let mut next = *s;
        if s.threads[i].run == Run::Trapped {
            next.tracer.step += 1;
            // At their first stops, the registers of both threads are saved.
            next.threads[i].advanced &= s.tracer.step > 5;
            out.push((Label("tracer", "sees the stop of thread", i as u8), next));
        } else if i == 1 {
            self.give_up(s, out);
        }
    }

    /// The second thread does not stop in time: all are let go. Those that have not stopped are
    /// detached when they do, which is the same as a later stop.
    fn give_up(&self, s: &State, out: &mut Vec<Step>) {
        let mut next = *s;
        let first = s.threads[0].run;
        match first {
            Run::AtSignal(signal) => {
                let passes = self.pitfall != Pitfall::DetachesBlindly;
                kernel::detach(&mut next, 0, passes.then_some(signal));
            }
            Run::Trapped => kernel::detach(&mut next, 0, None),
            _ => return,
        }
        next.tracer.step = self.end() - 1;
        out.push((
            Label("tracer", "gives up, as a thread does not stop", 1),
            next,
        ));
    }

    fn await_clone(&self, s: &State, out: &mut Vec<Step>) {
        let (mut next, t) = (*s, &s.threads[0]);
        let counts = self.pitfall == Pitfall::HandlerCountsAsCall && t.handler;
        let seems_refused = self.pitfall == Pitfall::ClonesAgain && s.refused;
        match t.run {
            // Out of the group-stop again.
            Run::Trapped => {
                kernel::resume(&mut next, 0, None);
                out.push((Label("tracer", "lets go on thread", 0), next));
            }
            Run::AtCall if seems_refused && s.threads[AGENT].run == Run::Ended => {
                // The thread is not stopped at its calls, but left alone for a while.
                kernel::resume(&mut next, 0, None);
                out.push((
                    Label("tracer", "waits for a thread that is not started", 0),
                    next,
                ));
            }
            Run::AtCall => {
                next.tracer.step += 1;
                out.push((Label("tracer", "sees the result of the call", 0), next));
            }
            Run::Runs if counts => {
                next.threads[0].run = Run::AtCall;
                next.tracer.step += 1;
                out.push((
                    Label("tracer", "takes a handler's call for the stub's", 0),
                    next,
                ));
            }
            Run::Runs if seems_refused && t.at == At::Program => {
                next.threads[0].at = At::CallStub(Point::Start);
                out.push((Label("tracer", "sends into the stub again thread", 0), next));
            }
            _ => {}
        }
    }

    fn follow(&self, s: &State, out: &mut Vec<Step>) {
        let mut next = *s;
        let ends = match s.threads[AGENT].run {
            Run::Trapped => {
                kernel::resume(&mut next, AGENT, None);
                out.push((Label("tracer", "lets go on the agent", 0), next));
                return;
            }
            Run::Ended => true,
            _ => self.pitfall == Pitfall::TakesEsrchForEnd,
        };
        if ends {
            next.tracer.step += 1;
            out.push((
                Label("tracer", "believes that the agent has ended", 0),
                next,
            ));
        }
    }

    /// The steps that wait for nobody.
    fn act(&self, step: Do, s: &State, out: &mut Vec<Step>) {
        let mut next = *s;
        next.tracer.step += 1;
        let (what, i) = match step {
            Do::Seize(i) => {
                kernel::seize(&mut next, i);
                ("seizes thread", i)
            }
            Do::Ask(i) => {
                next.threads[i].interrupt = true;
                ("interrupts thread", i)
            }
            Do::SendToCall => (self.send(&mut next, 0, At::CallStub(Point::Start)), 0),
            Do::Park(i) => (self.send(&mut next, i, At::ParkStub(Point::Start)), i),
            Do::SendToRaw => (self.send(&mut next, 0, At::Raw), 0),
            Do::Mask(i, all) => {
                next.threads[i].masked = all;
                ("sets the mask of thread", i)
            }
            Do::Dispatch(on) => {
                next.threads[0].dispatch = on;
                ("sets the dispatch of thread", 0)
            }
            Do::Run(i) => {
                kernel::resume(&mut next, i, None);
                ("lets go on thread", i)
            }
            Do::Interrupt => {
                next.threads[0].interrupt = true;
                kernel::resume(&mut next, 0, None);
                ("interrupts thread", 0)
            }
            Do::Back(i) => {
                self.back(&mut next, i);
                ("gives its registers to thread", i)
            }
            Do::IfAgent => {
                if s.threads[AGENT].run == Run::Ended {
                    next.tracer.step = self.end() - 2;
                }
                ("looks for the agent", 0)
            }
            Do::Go => {
                next.go = true;
                ("writes the word that lets the agent begin", 0)
            }
            Do::Detach(i) => match self.release(s, &mut next, i) {
                Some(what) => (what, i),
                None => {
                    next = *s;
                    next.threads[i].interrupt = s.threads[i].traced;
                    ("interrupts again thread", i)
                }
            },
            _ => return,
        };
        out.push((Label("tracer", what, i as u8), next));
    }

    fn send(&self, s: &mut State, i: usize, to: At) -> &'static str {
        let t = &mut s.threads[i];
        t.at = to;
        let is_interrupted = matches!(t.work, Work::PauseInterrupted | Work::ReadInterrupted);
        t.kept_call = self.pitfall == Pitfall::CallKept && is_interrupted;
        "sets the registers of thread"
    }

    fn back(&self, s: &mut State, i: usize) {
        let t = &mut s.threads[i];
        if t.advanced {
            t.advanced = false;
            s.fail(Fault::WentBack);
            return;
        }
        // Whatever ran on top of the stub is cut off.
        (t.at, t.handler) = (At::Program, false);
        t.work = match t.work {
            Work::Sequence if t.forgot && !self.rules.forgets_sequence => Work::Aborted,
            Work::PauseInterrupted if self.pitfall == Pitfall::RestartByHand => Work::PauseByHand,
            work => work,
        };
    }

    /// Detaches a thread as soon as it is stopped.
    fn release(&self, s: &State, next: &mut State, i: usize) -> Option<&'static str> {
        let signal = match s.threads[i].run {
            Run::Trapped | Run::AtCall => None,
            Run::AtSignal(signal) => Some(signal),
            _ => return None,
        };
        kernel::detach(next, i, signal);
        Some("detaches thread")
    }

    fn work(&self, at: u8, s: &mut State) -> (&'static str, u8) {
        match self.agent[at as usize] {
            Task::IfGo if !s.go => {
                let frees = self.pitfall != Pitfall::NobodyFreed;
                let skipped = if frees { 2 } else { 1 };
                s.threads[AGENT].at = At::Agent((self.agent.len() - skipped) as u8);
                return ("finds that it must not begin", 0);
            }
            Task::IfGo => return ("begins", 0),
            Task::Register => s.watched = true,
            Task::Out(p) => {
                kernel::move_out(s, p);
                return ("moves out page", p);
            }
            Task::CopyMapping if self.pitfall == Pitfall::FreshIsMapped => {
                kernel::map_fresh(&self.machine, s);
                return ("maps the fresh mapping", 0);
            }
            Task::CopyMapping => {
                s.fresh = match self.machine.differs {
                    true => Fresh::Unjoined,
                    false => Fresh::Unwatched,
                };
                return ("makes the fresh mapping of what stayed", 0);
            }
            Task::TryMove if s.fresh == Fresh::Unjoined => {
                s.fresh = Fresh::None;
                let back = self
                    .agent
                    .iter()
                    .position(|task| matches!(task, Task::Back(_)));
                s.threads[AGENT].at = At::Agent(back.expect("pages to move back") as u8);
                return ("finds that the fresh mapping is not one", 0);
            }
            Task::TryMove => return ("moves the fresh mapping to free addresses", 0),
            Task::RegisterFresh if s.fresh == Fresh::Unjoined => {}
            Task::RegisterFresh => {
                s.fresh = Fresh::Watched;
                return ("watches the fresh mapping", 0);
            }
            Task::Swap => {
                kernel::swap(s);
                return ("moves the fresh mapping over the piece", 0);
            }
            Task::Join => return ("registers the piece anew", 0),
            Task::Back(p) => {
                if !kernel::move_back(s, p) {
                    s.threads[AGENT].at = At::Agent(at);
                    return ("cannot move back page", p);
                }
                return ("moves back page", p);
            }
            Task::Unregister => s.watched = false,
            Task::Free => {
                s.free = true;
                return ("lets parked threads go", 0);
            }
            Task::Exit => {
                (s.threads[AGENT].run, s.threads[AGENT].traced) = (Run::Ended, false);
                return ("ends", 0);
            }
        }
        ("begins or ends the watch", 0)
    }
}
