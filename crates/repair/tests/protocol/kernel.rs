//! The kernel's transitions, which both protocols use: stops, signals, calls that are repeated, pages.
//!
//! A transition that needs no decision of a protocol is a step of a thread ([`thread_steps`]), of
//! another process ([`bully_steps`]), or the consequence of a call of the tracer. Where the kernel
//! acts at the next return to user space, the model lets the thread execute no instruction before:
//! an instruction before is the same as a signal that came later.
//!
//! # Linux
//! `kernel/signal.c` (`get_signal`, `do_signal_stop`, `ptrace_stop`), `kernel/ptrace.c`
//! (`exit_ptrace`), `arch_do_signal_or_restart`, `kernel/rseq.c`, `fs/userfaultfd.c`.

use super::state::{
    AGENT, At, Fault, Foreign, Fresh, Machine, Place, Point, Run, Signal, State, Work,
};

/// Who does what in a step: an actor, what it does, and the number of a page or thread.
#[derive(Clone, Copy, Debug)]
pub struct Label(pub &'static str, pub &'static str, pub u8);

/// A step, and the state after it.
pub type Step = (Label, State);

const NAMES: [&str; 3] = ["thread 0", "thread 1", "agent"];

/// How the kernel and the tracer deviate from what is expected of them.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A signal of which a tracer was told is lost if the tracer dies before it passes it on: the
    /// report was consumed (`waitpid`), not only looked at (`WNOWAIT`).
    pub loses_told: bool,
    /// A second vmarea does not look where the threads are before it removes the stubs.
    pub sweeps_blindly: bool,
    /// A second vmarea looks only at where the threads run, and not at where their handlers return to.
    pub overlooks_handlers: bool,
    /// The stub leaves a restartable sequence as it is.
    pub forgets_sequence: bool,
    /// The stub lets its own calls pass Syscall User Dispatch before it makes the first.
    pub stub_passes: bool,
}

/// A thread executes instructions outside of its program: the kernel forgets its sequence.
pub fn run_elsewhere(s: &mut State, i: usize) {
    let t = &mut s.threads[i];
    t.forgot |= t.work == Work::Sequence;
}

/// Lets a held thread go on, with `signal`.
pub fn resume(s: &mut State, i: usize, signal: Option<Signal>) {
    match signal {
        Some(Signal::Stop) => begin_group_stop(s),
        Some(Signal::Ordinary) if s.threads[i].masked || s.threads[i].handler => s.ordinary = true,
        Some(Signal::Ordinary) => run_handler(s, i),
        _ => {}
    }
    s.threads[i].run = Run::Runs;
}

/// Ends the tracing of a held thread, and delivers `signal`.
pub fn detach(s: &mut State, i: usize, signal: Option<Signal>) {
    let t = &mut s.threads[i];
    (t.traced, t.interrupt) = (false, false);
    resume(s, i, signal);
}

/// Begins to trace a thread, which runs on.
pub fn seize(s: &mut State, i: usize) {
    s.threads[i].traced = true;
}

/// The tracer dies: the kernel detaches all threads from it, and they go on from their registers.
pub fn kill_tracer(s: &mut State, rules: &Rules) {
    s.tracer.alive = false;
    for i in 0..s.threads.len() {
        let t = &mut s.threads[i];
        let signal = match t.run {
            Run::AtSignal(_) if rules.loses_told && s.tracer.told == Some(i as u8) => None,
            Run::AtSignal(signal) => Some(signal),
            _ => None,
        };
        if t.is_held() {
            detach(s, i, signal);
        } else {
            (t.traced, t.interrupt) = (false, false);
        }
    }
    s.cont = false;
    s.tracer.told = None;
}

fn begin_group_stop(s: &mut State) {
    s.group_stop = true;
    s.threads.iter_mut().for_each(|t| t.joined = false);
}

/// Sends `SIGCONT`: it ends a group-stop and discards stop signals that are pending.
pub fn send_cont(s: &mut State) {
    for t in &mut s.threads {
        t.joined = false;
        if t.is_at_stop_signal() {
            t.run = Run::AtSignal(Signal::VoidStop);
        }
    }
    (s.group_stop, s.stop_shared, s.stop_private) = (false, false, false);
    s.cont = s.threads[0].traced;
}

/// Builds the frame of the handler of an ordinary signal.
fn run_handler(s: &mut State, i: usize) {
    let t = &mut s.threads[i];
    if matches!(t.at, At::Raw | At::AfterRaw | At::Agent(_)) {
        s.fail(Fault::ForeignRegisters);
        return;
    }
    t.handler = true;
    if t.at == At::Program {
        t.work = match t.work {
            Work::Pause | Work::PauseInterrupted | Work::Read | Work::ReadInterrupted => {
                Work::Eintr
            }
            Work::Sequence if !t.forgot => Work::Aborted,
            work => work,
        };
    }
}

/// Stops a thread at a trap or for a signal; a call in which it waits is interrupted. Every stop takes a request to stop
/// with it.
fn hold(s: &mut State, i: usize, run: Run) {
    let t = &mut s.threads[i];
    (t.run, t.interrupt) = (run, false);
    if t.at == At::Program && !t.handler {
        t.work = match t.work {
            Work::Pause => Work::PauseInterrupted,
            Work::Read => Work::ReadInterrupted,
            work => work,
        };
    }
}

/// Collects what the kernel does before thread `i` executes an instruction; false if it may.
fn kernel_work(s: &State, i: usize, out: &mut Vec<Step>) -> bool {
    let t = &s.threads[i];
    let mut add = |what, change: &dyn Fn(&mut State)| {
        let mut next = *s;
        change(&mut next);
        out.push((Label(NAMES[i], what, 0), next));
    };
    if s.group_stop && !t.traced {
        return true;
    }
    let mut is_busy = false;
    if t.interrupt || s.group_stop && !t.joined {
        is_busy = true;
        add("stops for its tracer", &|next| {
            next.threads[i].joined = next.group_stop;
            hold(next, i, Run::Trapped);
        });
        if !t.interrupt {
            return true;
        }
        // A signal that was taken before the request came stops the thread first.
    }
    if s.stop_shared || s.stop_private && i == 0 {
        is_busy = true;
        add("takes the stop signal", &|next| {
            match next.stop_private && i == 0 {
                true => next.stop_private = false,
                false => next.stop_shared = false,
            }
            match t.traced {
                true => hold(next, i, Run::AtSignal(Signal::Stop)),
                false => begin_group_stop(next),
            }
        });
    }
    if s.cont && i == 0 && t.traced && !t.masked {
        is_busy = true;
        add("takes SIGCONT", &|next| {
            next.cont = false;
            hold(next, i, Run::AtSignal(Signal::Cont));
        });
    }
    if s.ordinary && i == 0 && !t.masked && !t.handler {
        is_busy = true;
        add("takes the ordinary signal", &|next| {
            next.ordinary = false;
            match t.traced {
                true => hold(next, i, Run::AtSignal(Signal::Ordinary)),
                false => run_handler(next, i),
            }
        });
    }
    is_busy
}

/// True if the kernel acts before thread `i` executes an instruction.
pub fn is_kernel_busy(s: &State, i: usize) -> bool {
    kernel_work(s, i, &mut Vec::new())
}

/// Collects the steps of thread `i`, except for those of an agent.
pub fn thread_steps(m: &Machine, rules: &Rules, s: &State, i: usize, out: &mut Vec<Step>) {
    let t = &s.threads[i];
    if !matches!(t.run, Run::Runs | Run::Faults(_)) || kernel_work(s, i, out) {
        return;
    }
    if let Run::Faults(page) = t.run {
        if !s.watched || s.pages[page as usize].place == Place::Home {
            let mut next = *s;
            next.threads[i].run = Run::Runs;
            out.push((Label(NAMES[i], "finds its page", page), next));
        }
        return;
    }
    if t.handler {
        let mut next = *s;
        next.threads[i].handler = false;
        next.handled += 1;
        out.push((Label(NAMES[i], "returns from the handler", 0), next));
        return;
    }
    match t.at {
        At::Program => program_steps(m, s, i, out),
        At::CallStub(_) | At::ParkStub(_) => stub_steps(m, rules, s, i, out),
        At::Raw => {
            let mut next = *s;
            run_elsewhere(&mut next, i);
            let t = &mut next.threads[i];
            t.at = At::AfterRaw;
            match (t.dispatch, t.traced) {
                (true, _) => next.fail(Fault::Dispatched),
                (false, true) => (t.run, t.interrupt) = (Run::AtCall, false),
                (false, false) => {}
            }
            out.push((
                Label(NAMES[i], "makes a call with foreign registers", 0),
                next,
            ));
        }
        At::AfterRaw => {
            let mut next = *s;
            next.fail(Fault::ForeignRegisters);
            out.push((Label(NAMES[i], "runs on behind the call", 0), next));
        }
        At::Agent(_) => {}
    }
}

/// What thread `i` may do in the program. Only what can go wrong is told apart.
fn program_steps(m: &Machine, s: &State, i: usize, out: &mut Vec<Step>) {
    let mut next = *s;
    let t = &mut next.threads[i];
    t.advanced = t.traced;
    let mut what = "runs the program";
    match t.work {
        Work::Sequence if t.forgot => next.fail(Fault::NotAborted),
        // By the kernel, as the thread was preempted.
        Work::Sequence => (t.work, what) = (Work::Aborted, "aborts its sequence"),
        Work::PauseInterrupted | Work::PauseByHand => {
            (t.work, what) = (Work::Pause, "pauses again")
        }
        Work::ReadInterrupted | Work::ReadByHand => (t.work, what) = (Work::Read, "reads again"),
        // Blocked in the call.
        Work::Pause | Work::Read => return,
        _ => {}
    }
    if s.threads[i].masked {
        next.fail(Fault::ForeignMask);
    }
    if i == 0 && m.dispatch && !s.threads[i].dispatch {
        next.fail(Fault::DispatchLost);
    }
    if next != *s {
        out.push((Label(NAMES[i], what, 0), next));
    }
    // The second thread uses the piece.
    if i != 1 || s.is_whole() {
        return;
    }
    for (what, fault) in [
        ("moves the piece by mremap", Fault::MovedAway),
        ("forks", Fault::ForkedZeros),
    ] {
        let mut next = *s;
        next.fail(fault);
        out.push((Label(NAMES[i], what, 0), next));
    }
    for p in 0..m.pages {
        let mut next = *s;
        match (s.pages[p as usize].place, s.watched) {
            (Place::Home, _) => continue,
            (Place::Out, true) => next.threads[i].run = Run::Faults(p),
            _ => next.fail(Fault::ReadAsZeros),
        }
        out.push((Label(NAMES[i], "reads page", p), next));
    }
}

fn stub_steps(m: &Machine, rules: &Rules, s: &State, i: usize, out: &mut Vec<Step>) {
    let mut next = *s;
    run_elsewhere(&mut next, i);
    if s.swept {
        next.fail(Fault::StubGone);
        out.push((Label(NAMES[i], "is in a stub that is gone", 0), next));
        return;
    }
    if s.threads[i].kept_call {
        next.fail(Fault::RestartInStub);
        out.push((Label(NAMES[i], "is set back by two bytes", 0), next));
        return;
    }
    let (At::CallStub(point) | At::ParkStub(point)) = s.threads[i].at else {
        return;
    };
    let is_call = matches!(s.threads[i].at, At::CallStub(_));
    let stub = |point| match is_call {
        true => At::CallStub(point),
        false => At::ParkStub(point),
    };
    let t = &mut next.threads[i];
    let what = match point {
        Point::Start if rules.stub_passes && t.dispatch => {
            t.dispatch = false;
            out.push((Label(NAMES[i], "lets its own calls pass", 0), next));
            return;
        }
        Point::Start => {
            (t.masked, t.at) = (true, stub(Point::Blocked));
            "blocks all signals"
        }
        Point::Blocked if is_call => return clone_steps(m, s, i, out),
        Point::Blocked if !s.free => return,
        Point::Blocked => {
            t.at = stub(Point::Done);
            "is free"
        }
        Point::Done => {
            (t.masked, t.at) = (false, stub(Point::Unmasked));
            "sets its own mask"
        }
        Point::Unmasked if i == 0 && m.dispatch => {
            (t.dispatch, t.at) = (true, stub(Point::Leaving));
            "sets its own dispatch"
        }
        Point::Unmasked | Point::Leaving => {
            t.at = At::Program;
            t.work = by_hand(t.work, rules);
            "leaves the stub"
        }
    };
    // The last call of the stub ends with the dispatch set, all others must not be dispatched.
    let calls = !matches!(point, Point::Leaving);
    if calls && s.threads[i].dispatch {
        next.fail(Fault::Dispatched);
    }
    out.push((Label(NAMES[i], what, 0), next));
}

/// What a stub makes of the thread's own registers, without the kernel's knowledge.
fn by_hand(work: Work, rules: &Rules) -> Work {
    match work {
        Work::Sequence if !rules.forgets_sequence => Work::Aborted,
        Work::PauseInterrupted => Work::Eintr,
        Work::ReadInterrupted => Work::ReadByHand,
        work => work,
    }
}

/// The `clone` in the call stub, which the kernel may refuse once.
fn clone_steps(m: &Machine, s: &State, i: usize, out: &mut Vec<Step>) {
    let mut next = *s;
    run_elsewhere(&mut next, i);
    let t = &mut next.threads[i];
    t.at = At::CallStub(Point::Done);
    if t.traced {
        (t.run, t.interrupt) = (Run::AtCall, false);
    }
    if t.dispatch {
        next.fail(Fault::Dispatched);
    }
    let mut refused = next;
    let traced = next.threads[i].traced;
    let agent = &mut next.threads[AGENT];
    agent.run = if traced { Run::Trapped } else { Run::Runs };
    (agent.at, agent.masked, agent.traced) = (At::Agent(0), true, traced);
    out.push((Label(NAMES[i], "starts the agent", 0), next));
    if m.refuses_clone && !s.refused {
        refused.refused = true;
        out.push((Label(NAMES[i], "may not start a thread", 0), refused));
    }
}

/// Another process reads or writes page `p`.
pub fn access(s: &mut State, p: u8, writes: bool) {
    let page = &mut s.pages[p as usize];
    s.foreign = Foreign::None;
    match (page.place, s.watched, writes) {
        (Place::Home, _, false) => {}
        (Place::Home, _, true) => {
            page.written = true;
            s.acknowledged = Some(p);
        }
        (Place::Out, true, false) => s.foreign = Foreign::Reads(p),
        (Place::Out, true, true) => s.foreign = Foreign::Writes(p),
        (_, _, false) => s.fail(Fault::ReadAsZeros),
        (_, _, true) => {
            page.place = Place::Covered;
            s.acknowledged = Some(p);
        }
    }
}

/// Collects the steps of an access that has waited.
pub fn foreign_steps(s: &State, out: &mut Vec<Step>) {
    let (p, writes) = match s.foreign {
        Foreign::None => return,
        Foreign::Reads(p) => (p, false),
        Foreign::Writes(p) => (p, true),
    };
    let mut next = *s;
    access(&mut next, p, writes);
    if next != *s {
        out.push((Label("another process", "has its page", p), next));
    }
}

/// Moves page `p` out. Nothing remains at its address.
pub fn move_out(s: &mut State, p: u8) {
    s.pages[p as usize].place = Place::Out;
}

/// Moves page `p` back; false if the kernel refuses because something is at its address that cannot
/// be dropped, or nothing.
pub fn move_back(s: &mut State, p: u8) -> bool {
    let is_in_the_way = s.populated && s.pages[p as usize].place == Place::Covered;
    if is_in_the_way || s.fresh == Fresh::Refused {
        return false;
    }
    s.pages[p as usize].place = Place::Home;
    true
}

/// Maps new memory, which `MCL_FUTURE` locks and populates.
pub fn map_fresh(m: &Machine, s: &mut State) {
    (s.fresh, s.populated) = (Fresh::Unwatched, m.locks_future);
}

/// Moves the fresh mapping over the piece, with its watch. Before Linux 6.17, the piece is unmapped before
/// the kernel sees that there is more than one mapping to move.
pub fn swap(s: &mut State) {
    if s.fresh == Fresh::Unjoined {
        (s.watched, s.fresh) = (false, Fresh::Refused);
        return;
    }
    s.watched = s.fresh == Fresh::Watched;
    s.fresh = Fresh::None;
    let covers = if s.populated {
        Place::Covered
    } else {
        Place::Out
    };
    for page in s.pages.iter_mut().filter(|page| page.place != Place::Home) {
        page.place = covers;
    }
}
