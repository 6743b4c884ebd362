//! Who acts on the process beside the repair, and what must be true when nobody acts any more.
//!
//! The bully does each of its actions at most once, at any moment. A second vmarea sweeps up after a
//! killed tracer.

use super::kernel::{Label, Rules, Step, access, kill_tracer, send_cont};
use super::state::{AGENT, Act, At, Fault, Foreign, Machine, PROGRAM, Point, Run, State, Work};

/// Collects what the bully may do.
pub fn bully_steps(m: &Machine, rules: &Rules, s: &State, out: &mut Vec<Step>) {
    let may = |act: Act| {
        m.acts & act as u16 != 0 && !s.has_acted(act) && s.acted.count_ones() < m.most_acts
    };
    let mut act = |act: Act, what, p, change: &dyn Fn(&mut State)| {
        if may(act) {
            let mut next = *s;
            next.acted |= act as u16;
            change(&mut next);
            out.push((Label("bully", what, p), next));
        }
    };
    act(Act::Stop, "kill -STOP", 0, &|next| {
        (next.must_stop, next.stop_shared, next.cont) = (true, true, false);
    });
    act(Act::Cont, "kill -CONT", 0, &|next| {
        next.must_stop = false;
        send_cont(next);
    });
    act(Act::Ordinary, "kill -USR1", 0, &|next| next.ordinary = true);
    for p in 0..m.pages {
        if s.foreign == Foreign::None {
            act(Act::Read, "process_vm_readv of page", p, &|next| {
                access(next, p, false)
            });
            act(Act::Write, "process_vm_writev of page", p, &|next| {
                access(next, p, true)
            });
        }
    }
    if s.vmarea {
        act(Act::KillVmarea, "kill -KILL vmarea", 0, &|next| {
            next.vmarea = false
        });
    }
    if s.tracer.alive && !(m.excuses && is_between_calls(m, s)) {
        act(Act::KillTracer, "kill -KILL the tracer", 0, &|next| {
            kill_tracer(next, rules)
        });
    }
}

/// A window that remains: a thread in the middle of a stub gets its dispatch and its registers again by
/// two calls of the tracer, and if it dies between them, the rest of the stub's calls are dispatched to
/// the program.
fn is_between_calls(m: &Machine, s: &State) -> bool {
    let t = &s.threads[0];
    let begins = [At::CallStub(Point::Start), At::ParkStub(Point::Start)].contains(&t.at);
    m.dispatch && t.at != At::Program && !begins && t.dispatch
}

/// Collects the steps of a second vmarea, which removes what a killed tracer has left.
pub fn sweep_steps(rules: &Rules, s: &State, out: &mut Vec<Step>) {
    if s.tracer.alive || !s.vmarea || s.swept {
        return;
    }
    let is_hidden = |i: usize| rules.overlooks_handlers && s.threads[i].handler;
    let is_away = |i: usize| s.threads[i].at != At::Program && !is_hidden(i);
    let is_busy = PROGRAM.into_iter().any(is_away) || s.threads[AGENT].run != Run::Ended;
    if rules.sweeps_blindly || !is_busy {
        let mut next = *s;
        next.swept = true;
        out.push((Label("second vmarea", "removes the stubs", 0), next));
    }
}

/// Returns the fault of a state from which nothing happens any more.
pub fn final_fault(m: &Machine, s: &State) -> Option<Fault> {
    // A stopped process goes on when somebody continues it.
    if s.group_stop {
        return (!s.must_stop).then_some(Fault::StuckStopped);
    }
    let at_home = |i: usize| s.threads[i].at == At::Program && s.threads[i].run == Run::Runs;
    let lost = |p: u8| !s.pages[p as usize].written;
    let [first, _, agent] = &s.threads;
    let waits = matches!(first.work, Work::Pause | Work::Read);
    let handled = s.has_acted(Act::Ordinary);
    // Windows that remain if the tracer dies: the stub cannot ask the kernel to repeat a call. It lets
    // `pause()` (`-ERESTARTNOHAND`) fail with `EINTR` without a handler, and it repeats `read()`
    // (`-ERESTARTSYS`) although a handler without `SA_RESTART` ran when it restored the mask.
    let is_excused = m.excuses && !s.tracer.alive;
    let checks = [
        (!s.is_whole(), Fault::PageOut),
        (s.must_stop, Fault::StopLost),
        (s.acknowledged.is_some_and(lost), Fault::WriteLost),
        (
            !PROGRAM.into_iter().all(at_home) || agent.run != Run::Ended,
            Fault::NotBack,
        ),
        (s.threads[..2].iter().any(|t| t.masked), Fault::ForeignMask),
        (first.dispatch != m.dispatch, Fault::DispatchLost),
        (s.foreign != Foreign::None, Fault::ForeignStuck),
        (handled && s.handled == 0, Fault::SignalLost),
        (s.handled > u8::from(handled), Fault::HandlerTwice),
        (
            handled && waits && !(is_excused && m.work == Work::Read),
            Fault::WakeUpLost,
        ),
        (
            !handled && first.work == Work::Eintr && !(is_excused && m.work == Work::Pause),
            Fault::SpuriousEintr,
        ),
    ];
    checks
        .into_iter()
        .find_map(|(is_wrong, fault)| is_wrong.then_some(fault))
}
