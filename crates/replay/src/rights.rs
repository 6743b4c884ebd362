//! Limits of each process and capabilities of each thread.
//!
//! The core stores both limits and capabilities in the address space. However, several processes
//! may use one address space (after `vfork`), and so may threads with different capabilities. The
//! replayer therefore tracks limits per process and capabilities per thread, and copies them into
//! the address space before a thread acts on it.
//!
//! # Linux
//! Limits are stored in `signal_struct`, which the threads of a process share: `fork` copies them,
//! `execve` keeps them. Capabilities are those in the initial user namespace.

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
    /// Capability mask recorded for this thread; `None` if the capabilities in `limits` apply.
    capabilities: Option<u64>,
    /// Capabilities proven by successful calls since the last recorded capability mask.
    shown: u64,
}

/// Limits of each process and capabilities of each thread in a trace.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    threads: HashMap<Tid, Thread>,
    /// Limits of each process, if known. Their capability fields hold the values at `execve`.
    limits: HashMap<Tid, Limits>,
    /// Creator and inherited capabilities of each task that has been created but has not started
    /// yet.
    births: HashMap<Tid, (Tid, Option<u64>)>,
    /// For each address space, the thread whose limits and capabilities have been copied into it.
    given: HashMap<MmId, Tid>,
    /// True if a limit or capability has changed. Until then, all users of an address space have
    /// the same limits and capabilities.
    changed: bool,
}

impl Rights {
    /// Records the task that a call created.
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

    /// Records that a task has started, or has switched to another address space.
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

    /// Forgets a task that has ended.
    pub(crate) fn ends(&mut self, tid: Tid) {
        self.threads.remove(&tid);
        // The thread group leader may end before the last thread.
        let used = |pid| self.threads.values().any(|t| t.pid == pid);
        if self.limits.contains_key(&tid) && !used(tid) {
            self.limits.remove(&tid);
        }
    }

    /// Records the limits of an imported address space as the limits of all its users.
    pub(crate) fn taken_over(&mut self, mm: MmId, limits: Limits) {
        self.given.remove(&mm);
        for thread in self.threads.values_mut().filter(|t| t.mm == mm) {
            thread.capabilities = None;
            thread.shown = 0;
            self.limits.insert(thread.pid, limits);
        }
    }

    /// Records that an import replaced the limits of an address space.
    pub(crate) fn is_set(&mut self, mm: MmId) {
        self.given.remove(&mm);
    }

    /// Sets a limit of process `of`, or of the calling thread's process.
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

    /// Sets the capabilities of a thread.
    pub(crate) fn capabilities(&mut self, by: Tid, mask: u64) {
        if let Some(thread) = self.threads.get_mut(&by) {
            thread.capabilities = Some(mask);
            thread.shown = 0;
            self.change();
        }
    }

    /// Learns from a successful call that its thread has a capability that no snapshot shows.
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

    /// Returns the limits and capabilities to set in an address space before `tid` acts on it.
    ///
    /// Returns `None` if they are already set, or not known.
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

/// Returns the required capability of a call whose success alone proves that its thread has it.
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

    /// Returns the rights of process 1 only, which uses address space 1 and has `CAP_IPC_LOCK`.
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
        // A child inherits the capabilities, except in a new user namespace.
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
