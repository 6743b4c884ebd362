//! The VMAs of a replay over time: when each was made, and when it ended.
//!
//! A VMA has the identity that it has in the core, which is that of a `vm_area_struct` in Linux: it
//! stays the same while it grows, shrinks or gets other flags; a split makes another VMA, and a merge
//! ends all VMAs but one. An observer of each policy's index notes which VMAs a call has changed, so
//! the cost depends on these, not on the size of the address space. A VMA that the same event makes
//! and ends is not reported.
//!
//! If the replay has to take over a list of the kernel's mappings because it differs, the VMAs that
//! are equal in both live on.

use super::Replayer;
use super::files::Files;
use super::verify::perms;
use super::world::World;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use vmarea::lookup::{Change, Observer, Vmas};
use vmarea::types::{FileKind, MmId, VmRange, VmaId};
use vmarea::vma::VmaView;
use vmarea_trace::event::{InodeId, MmId as TraceMm, Perms};

/// A place in a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Position of the event in the trace, counted from 1.
    pub event: u64,
    /// Time of the event, if it has one.
    pub time: Option<u64>,
}

/// A VMA from the event that made it to the event that ended it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime {
    /// Name of the policy.
    pub policy: &'static str,
    /// The trace's number for the address space.
    pub mm: TraceMm,
    /// Number of the VMA under this policy, in the order in which they were made, counted from 1.
    pub number: u64,
    /// When it was made.
    pub made: Moment,
    /// When it ended; `None` if it exists at the end of the trace.
    pub ended: Option<Moment>,
    /// Its range when it was made, after the event.
    pub first: VmRange,
    /// Its range before it ended.
    pub last: VmRange,
    /// Its permissions when it was made.
    pub perms: Perms,
    /// Its page offset when it was made, in bytes.
    pub offset: u64,
    /// The trace's number for its file, if that is known.
    pub inode: Option<InodeId>,
}

/// The VMAs that exist now, under each policy.
#[derive(Debug)]
pub struct Lifetimes(Vec<Tracked>);

/// The VMAs that exist now under one policy.
#[derive(Debug, Default)]
struct Tracked {
    changes: Changes,
    /// The core's id of each address space.
    ids: HashMap<TraceMm, MmId>,
    spaces: HashMap<MmId, Tenants>,
    made: u64,
}

/// The VMAs of an address space, by id in the core. The order makes results equal in each run.
#[derive(Debug)]
struct Tenants {
    mm: TraceMm,
    vmas: BTreeMap<VmaId, Tenant>,
}

/// A VMA that exists.
#[derive(Clone, Copy, Debug)]
struct Tenant {
    number: u64,
    made: Moment,
    first: VmaView,
    last: VmRange,
}

/// VMAs that were added, resized or removed since the last event, shared with the observer.
#[derive(Clone, Debug, Default)]
struct Changes(Arc<Mutex<Vec<(MmId, VmaId)>>>);

impl Changes {
    fn take(&self) -> Vec<(MmId, VmaId)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for Changes {
    fn looked_up(&self, _: &dyn Vmas, _: u64, _: Option<VmaId>) {}

    fn changed(&self, vmas: &dyn Vmas, change: Change) {
        let vma = match change {
            Change::Linked(vma) | Change::Resized { vma, .. } | Change::Unlinked { vma, .. } => vma,
            Change::Unmapped => return,
        };
        let mut changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changes.push((vmas.mm(), vma));
    }
}

impl Replayer {
    /// Starts to follow the VMAs under each policy; must be called before the first event.
    pub fn follow_lifetimes(&mut self) -> Lifetimes {
        let observed = self.worlds.iter_mut().map(|world| {
            let tracked = Tracked::default();
            let observer = Box::new(tracked.changes.clone());
            world.space.set_lookup_observer(observer);
            tracked
        });
        Lifetimes(observed.collect())
    }
}

impl Lifetimes {
    /// Follows an event that was replayed, in the address space `mm` if it belongs to one; passes on
    /// the VMAs that it ended.
    pub fn event(
        &mut self,
        replayer: &Replayer,
        now: Moment,
        mm: Option<TraceMm>,
        ended: &mut dyn FnMut(Lifetime),
    ) {
        for (tracked, world) in self.0.iter_mut().zip(&replayer.worlds) {
            let mut end = |mm, tenant: Tenant| {
                ended(tenant.lifetime(world.name, mm, Some(now), &replayer.files));
            };
            if let Some(mm) = mm {
                tracked.meet(world, mm, now, &mut end);
            }
            tracked.catch_up(world, now, &mut end);
        }
    }

    /// Passes on the VMAs that exist at the end of the trace.
    pub fn finish(self, replayer: &Replayer, existing: &mut dyn FnMut(Lifetime)) {
        for (tracked, world) in self.0.into_iter().zip(&replayer.worlds) {
            let mut spaces: Vec<_> = tracked.spaces.into_values().collect();
            spaces.sort_by_key(|tenants| tenants.mm.0);
            for Tenants { mm, vmas } in spaces {
                for tenant in vmas.into_values() {
                    existing(tenant.lifetime(world.name, mm, None, &replayer.files));
                }
            }
        }
    }
}

impl Tracked {
    /// Notices that an address space has begun, has ended, or was replaced by the kernel's list.
    fn meet(
        &mut self,
        world: &World,
        mm: TraceMm,
        now: Moment,
        end: &mut dyn FnMut(TraceMm, Tenant),
    ) {
        let exists = world.existing(mm);
        if self.ids.get(&mm).copied() == exists {
            return;
        }
        let left = self.ids.remove(&mm).and_then(|id| self.spaces.remove(&id));
        let mut left = left.map_or_else(BTreeMap::new, |tenants| tenants.vmas);
        if let Some(id) = exists {
            let known: HashMap<_, _> = left.iter().map(|(id, one)| (one.last, *id)).collect();
            let mut vmas = BTreeMap::new();
            let guard = world.space.mmap_read_lock(id);
            for view in guard.iter().flat_map(|guard| guard.vmas()) {
                let same = known.get(&view.range).and_then(|id| left.remove(id));
                let tenant = same.unwrap_or_else(|| self.new_tenant(view, now));
                vmas.insert(view.id, tenant);
            }
            self.ids.insert(mm, id);
            self.spaces.insert(id, Tenants { mm, vmas });
        }
        left.into_values().for_each(|tenant| end(mm, tenant));
    }

    /// Compares the VMAs that have changed with the core.
    fn catch_up(&mut self, world: &World, now: Moment, end: &mut dyn FnMut(TraceMm, Tenant)) {
        for (id, vma) in self.changes.take() {
            let view = world.space.mmap_read_lock(id).and_then(|guard| {
                let range = guard.range(vma)?;
                guard.vma_lookup(range.start)
            });
            let new = match self.spaces.get_mut(&id) {
                Some(Tenants { mm, vmas }) => match (vmas.get_mut(&vma), view) {
                    (Some(tenant), Some(view)) => {
                        tenant.last = view.range;
                        None
                    }
                    (Some(_), None) => {
                        vmas.remove(&vma)
                            .into_iter()
                            .for_each(|tenant| end(*mm, tenant));
                        None
                    }
                    (None, view) => view,
                },
                None => None,
            };
            let new = new.map(|view| self.new_tenant(view, now));
            if let (Some(tenant), Some(tenants)) = (new, self.spaces.get_mut(&id)) {
                tenants.vmas.insert(vma, tenant);
            }
        }
    }

    fn new_tenant(&mut self, view: VmaView, now: Moment) -> Tenant {
        self.made += 1;
        Tenant {
            number: self.made,
            made: now,
            first: view,
            last: view.range,
        }
    }
}

impl Tenant {
    fn lifetime(
        self,
        policy: &'static str,
        mm: TraceMm,
        ended: Option<Moment>,
        files: &Files,
    ) -> Lifetime {
        let VmaView { range, body, .. } = self.first;
        let file = body.file.filter(|file| file.kind != FileKind::Special);
        Lifetime {
            policy,
            mm,
            number: self.number,
            made: self.made,
            ended,
            first: range,
            last: self.last,
            perms: perms(&self.first),
            offset: self.first.pgoff().0 << 12,
            inode: file.and_then(|file| files.recorded(file.inode)),
        }
    }
}
