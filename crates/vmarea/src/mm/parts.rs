//! What each part of a divided address space has: a tree, and its own copy of the state.
//!
//! A call that holds one part reads and writes the part's [`MmState`] as if it were that of the
//! whole address space. Its counters start at those of the whole, and [`PartState::highest`] limits how
//! far they may rise, so that all parts together stay within the limits. A call that takes
//! all parts first adds what each part has counted to the whole ([`PartState::settle`]), and finally
//! gives each part a new copy with new room ([`PartState::renew`]). So the limits are exact: a call
//! that could exceed its room takes all parts, and then sees the exact counters.
//!
//! # Invariants
//! - Q1  for each limited counter, the counter of the whole plus the room of all parts does not
//!   exceed the limit
//! - Q2  settings such as [`Layout`](super::Layout) and [`Limits`](super::Limits) are equal in the
//!   whole and in every part, except for the break, which only the part with the heap changes

use super::MmState;
use crate::types::{Overcommit, PAGE_SHIFT, System};
use core::sync::atomic::{AtomicU32, Ordering};
use vmarea_range_tree::RangeTree;
use vmarea_sync::{Guarded, LockId};

/// A part of an address space.
#[derive(Debug)]
pub(crate) struct Part {
    /// The VMAs that start in this part.
    pub(crate) tree: RangeTree,
    pub(crate) state: Guarded<PartState>,
    /// Number of VMAs that touch or cross an end of this part. Only holders of all change it.
    crossings: AtomicU32,
}

impl Part {
    /// Creates an empty part whose state is guarded by the lock `owner`.
    pub(crate) fn owned_by(owner: LockId) -> Part {
        Part {
            tree: RangeTree::default(),
            state: Guarded::new(owner, PartState::default()),
            crossings: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(crate) fn crossings(&self) -> u32 {
        // ORDERING: Relaxed; exact for a holder of the part, a hint for all others.
        self.crossings.load(Ordering::Relaxed)
    }

    pub(crate) fn count_crossings(&self, more: i32) {
        let counted = self.crossings().wrapping_add_signed(more);
        self.crossings.store(counted, Ordering::Relaxed);
    }
}

/// By how much a call may raise the counters of its address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Growth {
    /// Highest number of additional VMAs, at any time during the call.
    pub(crate) vmas: u32,
    /// Highest number of additional pages, of any kind.
    pub(crate) pages: u64,
}

/// The counters of an address space, in this order: VMAs; pages that are mapped, locked, data,
/// executable, stack and charged.
type Counters = [u64; 7];

fn counters(state: &MmState) -> Counters {
    let MmState {
        map_count,
        total_vm,
        locked_vm,
        data_vm,
        exec_vm,
        stack_vm,
        committed,
        ..
    } = *state;
    let vmas = u64::from(map_count);
    [
        vmas, total_vm, locked_vm, data_vm, exec_vm, stack_vm, committed,
    ]
}

fn set_counters(state: &mut MmState, to: Counters) {
    [
        _,
        state.total_vm,
        state.locked_vm,
        state.data_vm,
        state.exec_vm,
        state.stack_vm,
        state.committed,
    ] = to;
    state.map_count = to[0] as u32;
}

/// The state of a part; see the module documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartState {
    /// The address space's state as calls in this part see it.
    pub(crate) state: MmState,
    /// The counters and the break when the copy was made.
    base: Counters,
    base_brk: u64,
    /// How high each counter may rise.
    highest: Counters,
    /// By how many pages each counter may still rise; an exact number is higher if calls have
    /// raised the counters by less than they asked for, or lowered them.
    spare_pages: u64,
    /// False if the statistics have been added to those of the whole since the last call.
    pub(crate) counted: bool,
}

impl PartState {
    /// Takes room for a call that holds only this part; false if it could exceed the limits.
    #[inline]
    pub(crate) fn take_room(&mut self, growth: Growth) -> bool {
        let vmas = u64::from(self.state.map_count) + u64::from(growth.vmas);
        if growth.pages > self.spare_pages {
            self.count_spare_pages();
        }
        let fits = growth.pages <= self.spare_pages && vmas <= self.highest[0];
        if fits {
            self.spare_pages -= growth.pages;
        }
        fits
    }

    #[cold]
    fn count_spare_pages(&mut self) {
        let now = counters(&self.state);
        let spare = now.iter().zip(self.highest).skip(1);
        let spare = spare.map(|(now, most)| most.saturating_sub(*now));
        self.spare_pages = spare.min().unwrap_or(0);
    }

    /// Adds to `whole` what this part has counted since its copy was made.
    pub(crate) fn settle(&mut self, whole: &mut MmState) {
        let (mut sum, now) = (counters(whole), counters(&self.state));
        for at in 0..sum.len() {
            sum[at] = sum[at].wrapping_add(now[at].wrapping_sub(self.base[at]));
        }
        set_counters(whole, sum);
        self.base = now;
        if self.state.layout.brk != self.base_brk {
            whole.layout.brk = self.state.layout.brk;
            self.base_brk = whole.layout.brk;
        }
        whole.peak_map_count = whole.peak_map_count.max(self.state.peak_map_count);
        whole.noted.extend(self.state.noted.drain(..));
    }

    /// Moves the statistics of this part to those of the whole.
    pub(crate) fn settle_stats(&mut self, whole: &mut MmState) {
        if core::mem::take(&mut self.counted) {
            whole.stats.add(&self.state.stats);
            self.state.stats = Default::default();
        }
    }

    /// Makes a new copy of `whole`, with a share of what its limits leave.
    pub(crate) fn renew(&mut self, whole: &MmState, room: &Counters) {
        set_counters(&mut self.state, counters(whole));
        self.base = counters(whole);
        self.highest = core::array::from_fn(|at| self.base[at].saturating_add(room[at]));
        self.spare_pages = 0;
        self.base_brk = whole.layout.brk;
        // A new field of the state must be copied here unless a part has its own.
        let MmState {
            def_flags,
            layout,
            limits,
            execute_only_pkey,
            pkeys,
            pkey_rights,
            peak_map_count,
            map_count: _,
            total_vm: _,
            locked_vm: _,
            data_vm: _,
            exec_vm: _,
            stack_vm: _,
            committed: _,
            stats: _,
            noted: _,
        } = whole;
        let own = &mut self.state;
        own.def_flags = *def_flags;
        own.layout = *layout;
        own.limits = *limits;
        own.execute_only_pkey = *execute_only_pkey;
        own.pkeys = *pkeys;
        own.pkey_rights = *pkey_rights;
        own.peak_map_count = *peak_map_count;
    }
}

/// Returns the room of each of `parts` parts.
pub(crate) fn room(whole: &MmState, system: &System, parts: u32) -> Counters {
    let [vmas, total, locked, data, _, _, charged] = counters(whole);
    let limits = &whole.limits;
    let data_limit = match limits.data {
        0 => limits.data_hard,
        soft => soft,
    };
    let locked_limit = match limits.ipc_lock {
        true => u64::MAX,
        false => limits.memlock,
    };
    let share = |limit: u64, now: u64| limit.saturating_sub(now) / u64::from(parts.max(1));
    let pages = |limit: u64, now: u64| match limit {
        u64::MAX => u64::MAX,
        limit => share(limit >> PAGE_SHIFT, now),
    };
    [
        share(u64::from(system.max_map_count), vmas),
        pages(limits.address_space, total),
        pages(locked_limit, locked),
        pages(data_limit, data),
        u64::MAX,
        u64::MAX,
        match system.overcommit {
            Overcommit::Never(all) => share(all, charged),
            Overcommit::Always | Overcommit::Guess(_) => u64::MAX,
        },
    ]
}
