//! Application of a change to the program: see [`prevention`](super::prevention).

use super::Replayer;
use super::action::Action;
use super::prevention::{Changed, Prevented, Prevention, Step};
use super::world::World;
use vmarea::fault::{Access, Faulted};
use vmarea::syscall::Syscall;
use vmarea::types::Errno;
use vmarea_trace::event::{Call, Fault};

impl Replayer {
    /// Replays a fault in every world.
    pub(crate) fn fault(&mut self, fault: &Fault) {
        let mut succeeds = false;
        for (nr, world) in self.worlds.iter_mut().enumerate() {
            let done = world.fault(fault);
            succeeds |= nr == 0 && done;
            if let (Some(changed), true, false) = (&mut world.changed, succeeds, done) {
                changed.access_fails(fault.addr);
            }
        }
    }

    /// Returns the results of the changed runs so far.
    pub fn prevented(&self) -> impl Iterator<Item = Prevented> {
        let changed = |world: &World| {
            let changed = world.changed.as_ref()?;
            Some(changed.result(world.report.vmas_peak_single))
        };
        self.worlds.iter().filter_map(changed)
    }

    /// Returns how many calls each change has replaced so far.
    pub fn rewritten(&self) -> impl Iterator<Item = (Prevention, u64)> {
        let changed = self
            .worlds
            .iter()
            .filter_map(|world| world.changed.as_ref());
        changed.map(Changed::rewritten)
    }
}

impl World {
    /// Applies the changed form of a call; returns false if the change does not affect the call.
    pub(crate) fn act_changed(&mut self, action: &Action, call: &Call) -> bool {
        let Action::Call(request) = action else {
            return false;
        };
        let Some(mut changed) = self.changed.take() else {
            return false;
        };
        let mut done = false;
        if call.ret >= 0 {
            if let (Some(steps), Some(mm)) = (changed.rewrite(call, request), self.mm(call.mm)) {
                for step in steps {
                    let result = match &step {
                        Step::Call(request) => self.space.syscall(mm, request),
                        Step::Write(addr) => match self.space.fault(mm, *addr, Access::Write) {
                            Ok(Faulted::Done | Faulted::Spurious) => Ok(0),
                            _ => Err(Errno::EFAULT),
                        },
                    };
                    let is_advice = matches!(step, Step::Call(Syscall::Madvise { .. }));
                    match result {
                        // `madvise` of a mapping with holes advises the rest of it.
                        Err(Errno::ENOMEM) if is_advice => {}
                        Err(errno) => changed.fails(call, -i64::from(errno.number())),
                        Ok(_) => {}
                    }
                }
                self.count(call.mm, mm);
                done = true;
            }
            changed.follow(call, request);
        }
        self.changed = Some(changed);
        done
    }
}
