//! What a thread may: the limits of its process and its own capabilities.
//!
//! The core keeps both with an address space, which may be used by several processes (after
//! `vfork`) and by threads with different capabilities. So they are kept here for each process and
//! thread, and handed to the address space before one of them acts on it.
//!
//! # Linux
//! Limits stand in `signal_struct`, which the threads of a process share: `fork` copies them,
//! `execve` keeps them. Capabilities are asked for in the first user namespace.

use std::collections::HashMap;
use vmarea::mm::Limits;
use vmarea_trace::event::{Call, MmId, Tid};
use vmarea_trace::sysno;

const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_RAWIO: u32 = 17;
const CAP_SYS_NICE: u32 = 23;
const CAP_SYS_RESOURCE: u32 = 24;
const CLONE_NEWUSER: u64 = 0x1000_0000;

#[derive(Clone, Copy, Debug)]
struct Thread {
    pid: Tid,
    mm: MmId,
    /// Where they were told for this thread alone.
    capabilities: Option<u64>,
    /// Those without which the kernel would have refused a call, since the last were told.
    shown: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    threads: HashMap<Tid, Thread>,
    /// Of processes whose limits are known. Capabilities in it are those at `execve`.
    limits: HashMap<Tid, Limits>,
    /// Threads that are made, and the capabilities that they inherit.
    births: HashMap<Tid, (Tid, Option<u64>)>,
    /// Who acted last on an address space.
    given: HashMap<MmId, Tid>,
    /// Somebody has changed something: before that all users of an address space may the same.
    changed: bool,
}

impl Rights {
    /// A call has made a task.
    pub(crate) fn is_born(&mut self, call: &Call) {
        let flags = match call.nr {
            sysno::CLONE => call.args[0],
            sysno::FORK | sysno::VFORK => 0,
            _ => return,
        };
        let Ok(child @ 1..) = i32::try_from(call.ret) else {
            return;
        };
        let inherited = self.threads.get(&call.tid).and_then(|t| t.capabilities);
        let new_namespace = flags & CLONE_NEWUSER != 0;
        self.changed |= new_namespace;
        let capabilities = if new_namespace { Some(0) } else { inherited };
        self.births.insert(Tid(child), (call.tid, capabilities));
    }

    /// A task begins, or goes on in another address space.
    pub(crate) fn starts(&mut self, tid: Tid, pid: Tid, mm: MmId) {
        let born = self.births.remove(&tid);
        let before = self.threads.get(&tid).map(|t| (t.capabilities, t.shown));
        let (told, shown) = before.unwrap_or_default();
        let capabilities = born.map_or(told, |(_, capabilities)| capabilities);
        if let Some((parent, _)) = born
            && let Some(parent) = self.threads.get(&parent)
            && parent.pid != pid
        {
            match self.limits.get(&parent.pid).copied() {
                Some(limits) => self.limits.insert(pid, limits),
                None => self.limits.remove(&pid),
            };
        }
        let thread = Thread {
            pid,
            mm,
            capabilities,
            shown: if born.is_some() { 0 } else { shown },
        };
        self.threads.insert(tid, thread);
    }

    /// A task has ended.
    pub(crate) fn ends(&mut self, tid: Tid) {
        self.threads.remove(&tid);
        // A leader may end before its last thread.
        let used = |pid| self.threads.values().any(|t| t.pid == pid);
        if self.limits.contains_key(&tid) && !used(tid) {
            self.limits.remove(&tid);
        }
    }

    /// An address space was taken over with the limits that stand with it, which are those of its
    /// users.
    pub(crate) fn taken_over(&mut self, mm: MmId, limits: Limits) {
        self.given.remove(&mm);
        for thread in self.threads.values_mut().filter(|t| t.mm == mm) {
            thread.capabilities = None;
            thread.shown = 0;
            self.limits.insert(thread.pid, limits);
        }
    }

    /// The limits of an address space were set to something else.
    pub(crate) fn is_set(&mut self, mm: MmId) {
        self.given.remove(&mm);
    }

    /// A process has other limits from here on: that of `of`, or that of the calling thread.
    pub(crate) fn limit(
        &mut self,
        by: Tid,
        of: Option<Tid>,
        resource: u32,
        (soft, hard): (u64, u64),
    ) {
        const DATA: u32 = 2;
        const STACK: u32 = 3;
        const MEMLOCK: u32 = 8;
        const AS: u32 = 9;
        let Some(pid) = of.or_else(|| self.threads.get(&by).map(|t| t.pid)) else {
            return;
        };
        let Some(limits) = self.limits.get_mut(&pid) else {
            return;
        };
        match resource {
            DATA => (limits.data, limits.data_hard) = (soft, hard),
            STACK => limits.stack = soft,
            MEMLOCK => limits.memlock = soft,
            AS => limits.address_space = soft,
            _ => return,
        }
        self.change();
    }

    /// A thread has other capabilities from here on.
    pub(crate) fn capabilities(&mut self, by: Tid, mask: u64) {
        if let Some(thread) = self.threads.get_mut(&by) {
            thread.capabilities = Some(mask);
            thread.shown = 0;
            self.change();
        }
    }

    /// Learns of a capability that no look at a process tells, where the kernel did what needs it.
    pub(crate) fn has_shown(&mut self, call: &Call) {
        let Some(capability) = needed(call).filter(|_| call.ret >= 0) else {
            return;
        };
        if let Some(thread) = self.threads.get_mut(&call.tid)
            && thread.shown >> capability & 1 == 0
        {
            thread.shown |= 1 << capability;
            self.change();
        }
    }

    fn change(&mut self) {
        self.changed = true;
        self.given.clear();
    }

    /// What is to be set in an address space before `tid` acts on it; `None` where it stands there
    /// already, or nothing is known.
    #[inline]
    pub(crate) fn before(&mut self, tid: Tid, mm: MmId) -> Option<Limits> {
        if !self.changed || self.given.get(&mm) == Some(&tid) {
            return None;
        }
        let thread = self.threads.get(&tid)?;
        let mut limits = *self.limits.get(&thread.pid)?;
        if let Some(mask) = thread.capabilities {
            let has = |bit: u32| mask >> bit & 1 == 1;
            limits.ipc_lock = has(CAP_IPC_LOCK);
            limits.raw_io = has(CAP_SYS_RAWIO);
            limits.sys_nice = has(CAP_SYS_NICE);
            limits.sys_resource = has(CAP_SYS_RESOURCE);
        }
        limits.sys_nice |= thread.shown >> CAP_SYS_NICE & 1 == 1;
        limits.sys_resource |= thread.shown >> CAP_SYS_RESOURCE & 1 == 1;
        self.given.insert(mm, tid);
        Some(limits)
    }
}

/// The capability that a call asks for, of those that only its success tells.
fn needed(call: &Call) -> Option<u32> {
    const SET_MM: u64 = 35;
    const MM_MAP: u64 = 14;
    const MM_MAP_SIZE: u64 = 15;
    const MOVE_ALL: u64 = 4;
    let [what, part, .., flags] = call.args;
    match call.nr {
        sysno::MBIND => (flags & MOVE_ALL != 0).then_some(CAP_SYS_NICE),
        sysno::PRCTL if what == SET_MM => {
            (!matches!(part, MM_MAP | MM_MAP_SIZE)).then_some(CAP_SYS_RESOURCE)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_trace::event::Order;

    const AS: u32 = 9;
    const MEMLOCK: u32 = 8;

    fn birth(by: i32, nr: u32, flags: u64, child: i32) -> Call {
        Call {
            tid: Tid(by),
            mm: MmId(1),
            nr,
            args: [flags, 0, 0, 0, 0, 0],
            ret: child.into(),
            t: 0,
            order: Order::Exact,
            file: None,
            data: Vec::new(),
        }
    }

    /// Process 1 with address space 1, where all is allowed.
    fn one() -> Rights {
        let mut rights = Rights::default();
        rights.starts(Tid(1), Tid(1), MmId(1));
        let limits = Limits {
            ipc_lock: true,
            ..Limits::default()
        };
        rights.taken_over(MmId(1), limits);
        rights
    }

    #[test]
    fn a_limit_of_a_child_that_shares_memory_is_its_own() {
        let mut rights = one();
        rights.is_born(&birth(1, sysno::VFORK, 0, 2));
        rights.starts(Tid(2), Tid(2), MmId(1));
        assert!(
            rights.before(Tid(1), MmId(1)).is_none(),
            "nothing has changed"
        );
        rights.limit(Tid(2), None, AS, (1 << 27, 1 << 27));
        let seen = |rights: &mut Rights, tid| rights.before(Tid(tid), MmId(1)).unwrap();
        assert_eq!(seen(&mut rights, 2).address_space, 1 << 27);
        assert_eq!(seen(&mut rights, 1).address_space, u64::MAX);
        assert!(rights.before(Tid(1), MmId(1)).is_none(), "it stands there");
        rights.limit(Tid(1), Some(Tid(2)), MEMLOCK, (0, 0));
        assert_ne!(seen(&mut rights, 1).memlock, 0);
        assert_eq!(seen(&mut rights, 2).memlock, 0);
    }

    #[test]
    fn threads_share_limits_and_have_their_own_capabilities() {
        let mut rights = one();
        rights.is_born(&birth(1, sysno::CLONE, 0x1_0100, 2));
        rights.starts(Tid(2), Tid(1), MmId(1));
        rights.capabilities(Tid(2), !(1 << CAP_IPC_LOCK));
        rights.limit(Tid(2), None, AS, (5, 5));
        let first = rights.before(Tid(1), MmId(1)).unwrap();
        let second = rights.before(Tid(2), MmId(1)).unwrap();
        assert!(first.ipc_lock && !second.ipc_lock);
        assert_eq!((first.address_space, second.address_space), (5, 5));
        // What it makes has what it has, and nothing in a user namespace of its own.
        rights.is_born(&birth(2, sysno::FORK, 0, 3));
        rights.starts(Tid(3), Tid(3), MmId(2));
        rights.is_born(&birth(1, sysno::CLONE, CLONE_NEWUSER, 4));
        rights.starts(Tid(4), Tid(4), MmId(3));
        for (tid, mm) in [(3, 2), (4, 3)] {
            assert!(!rights.before(Tid(tid), MmId(mm)).unwrap().ipc_lock);
        }
    }

    #[test]
    fn what_the_kernel_did_shows_the_capability_that_it_needs() {
        let mut rights = one();
        let call = |nr, args, ret| Call {
            nr,
            args,
            ret,
            ..birth(1, nr, 0, 0)
        };
        let move_all = [0x1000, 0x1000, 2, 0, 0, 4];
        rights.has_shown(&call(sysno::MBIND, move_all, -1));
        rights.has_shown(&call(sysno::MBIND, [0x1000, 0x1000, 2, 0, 0, 2], 0));
        rights.has_shown(&call(sysno::PRCTL, [35, 14, 0, 0, 0, 0], 0));
        assert!(rights.before(Tid(1), MmId(1)).is_none());
        rights.has_shown(&call(sysno::MBIND, move_all, 0));
        let may = rights.before(Tid(1), MmId(1)).unwrap();
        assert!(may.sys_nice && !may.sys_resource);
        rights.has_shown(&call(sysno::PRCTL, [35, 7, 0x5000, 0, 0, 0], 0));
        assert!(rights.before(Tid(1), MmId(1)).unwrap().sys_resource);
        rights.capabilities(Tid(1), 0);
        let may = rights.before(Tid(1), MmId(1)).unwrap();
        assert!(!may.sys_nice && !may.sys_resource);
    }
}
