//! Checks of the invariants of every recording, event by event, with a model of the mapped pages.
//!
//! The model contains only the mapped pages and their permissions. This is enough to detect events
//! in the wrong order: they map a page that is still mapped, unmap a page too early, or result in a
//! final list that differs from the kernel's.

use std::collections::{BTreeMap, HashMap, HashSet};
use vmarea_trace::event::{
    Call, Event, InodeId, MmId, MmStart, Nanos, Origin, SnapKind, SnapReason, Snapshot, Tid,
};

const PAGE: u64 = 4096;

/// Permissions by page number: read, write, execute.
type Pages = BTreeMap<u64, (bool, bool, bool)>;

#[derive(Default)]
struct Checker {
    inodes: HashSet<InodeId>,
    spaces: HashMap<MmId, Space>,
    tasks: HashMap<Tid, MmId>,
    last: Nanos,
    looks: usize,
}

#[derive(Default)]
struct Space {
    known: bool,
    pages: Pages,
    brk: u64,
    ended: bool,
}

/// Checks the invariants of the event format, and each exact snapshot against the model.
///
/// Returns the number of compared snapshots.
pub fn check(events: &[Event]) -> usize {
    let mut checker = Checker::default();
    let (last, before) = events.split_last().expect("events");
    assert!(matches!(last, Event::End { .. }), "ends with {last:?}");
    for event in before {
        checker.take(event);
    }
    let alive: Vec<_> = checker.spaces.iter().filter(|(_, s)| !s.ended).collect();
    assert!(alive.is_empty(), "{} spaces never end", alive.len());
    assert!(checker.tasks.is_empty(), "{:?} never end", checker.tasks);
    checker.looks
}

impl Checker {
    fn at(&mut self, t: Nanos, event: &Event) {
        assert!(t >= self.last, "{event:?} is before {}", self.last);
        self.last = t;
    }

    fn live(&mut self, mm: MmId, event: &Event) -> &mut Space {
        let space = self.spaces.get_mut(&mm);
        let space = space.unwrap_or_else(|| panic!("{event:?} of an mm that is not known"));
        assert!(!space.ended, "{event:?} after the end of its mm");
        space
    }

    fn begin(&mut self, start: &MmStart, event: &Event) {
        self.at(start.t, event);
        let space = match start.origin {
            Origin::Fork { parent } => {
                let parent = self.live(parent, event);
                Space {
                    known: parent.known,
                    pages: parent.pages.clone(),
                    brk: parent.brk,
                    ended: false,
                }
            }
            Origin::Exec | Origin::Attach => Space::default(),
        };
        assert!(
            self.spaces.insert(start.mm, space).is_none(),
            "{event:?} twice"
        );
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::Inode(inode) => assert!(self.inodes.insert(inode.id), "{inode:?} twice"),
            Event::MmStart(start) => self.begin(start, event),
            Event::MmEnd { mm, t } => {
                self.at(*t, event);
                self.live(*mm, event).ended = true;
            }
            Event::TaskStart { tid, mm, t, .. } => {
                self.at(*t, event);
                self.live(*mm, event);
                self.tasks.insert(*tid, *mm);
            }
            Event::TaskEnd { tid, t, .. } => {
                self.at(*t, event);
                assert!(self.tasks.remove(tid).is_some(), "{event:?} of nobody");
            }
            Event::Call(call) => {
                self.at(call.t, event);
                assert_eq!(self.tasks.get(&call.tid), Some(&call.mm), "{event:?}");
                if let Some(file) = call.file {
                    assert!(self.inodes.contains(&file.inode), "{event:?}");
                }
                self.live(call.mm, event).apply(call);
            }
            Event::Fault(fault) => {
                self.at(fault.t, event);
                assert_eq!(self.tasks.get(&fault.tid), Some(&fault.mm), "{event:?}");
                self.live(fault.mm, event);
            }
            Event::Touch(touch) => {
                self.at(touch.t, event);
                self.live(touch.mm, event);
            }
            Event::Snapshot(snapshot) => {
                self.at(snapshot.t, event);
                for inode in snapshot.vmas.iter().filter_map(|vma| vma.inode) {
                    assert!(self.inodes.contains(&inode), "{inode:?} not announced");
                }
                let compared = self.live(snapshot.mm, event).look(snapshot);
                self.looks += usize::from(compared);
            }
            Event::Lost { t, .. } => self.at(*t, event),
            Event::Note(_) => {}
            Event::End { .. } => panic!("an end in the middle"),
        }
    }
}

impl Space {
    fn look(&mut self, snapshot: &Snapshot) -> bool {
        let mut seen = Pages::new();
        for vma in &snapshot.vmas {
            // Faults make the stack grow, which the model does not represent.
            if vma.kind != SnapKind::Stack {
                let perms = (vma.perms.read, vma.perms.write, vma.perms.exec);
                seen.extend((vma.start / PAGE..vma.end / PAGE).map(|page| (page, perms)));
            }
        }
        if matches!(snapshot.reason, SnapReason::Exec | SnapReason::Attach) {
            assert!(!self.known, "a second beginning");
            *self = Space {
                known: true,
                pages: seen,
                brk: snapshot.info.as_ref().and_then(|i| i.brk).unwrap_or(0),
                ended: false,
            };
            return false;
        }
        if snapshot.exact {
            let only = |a: &Pages, b: &Pages| -> Vec<String> {
                let differing = a.iter().filter(|(page, perms)| b.get(page) != Some(perms));
                differing
                    .map(|(page, p)| format!("{:x} {p:?}", page * PAGE))
                    .take(5)
                    .collect()
            };
            assert_eq!(
                seen,
                self.pages,
                "mm {:?} {:?}: the kernel has {:?}, the calls say {:?}",
                snapshot.mm,
                snapshot.reason,
                only(&seen, &self.pages),
                only(&self.pages, &seen)
            );
        }
        snapshot.exact
    }

    fn pages_of(start: u64, len: u64) -> std::ops::Range<u64> {
        start / PAGE..(start + len).div_ceil(PAGE)
    }

    fn unmap(&mut self, start: u64, len: u64) {
        for page in Space::pages_of(start, len) {
            self.pages.remove(&page);
        }
    }

    fn map(&mut self, start: u64, len: u64, prot: u64) {
        let perms = (prot & 1 != 0, prot & 2 != 0, prot & 4 != 0);
        for page in Space::pages_of(start, len) {
            self.pages.insert(page, perms);
        }
    }

    fn apply(&mut self, call: &Call) {
        let [a, b, c, d, ..] = call.args;
        let Ok(ret) = u64::try_from(call.ret) else {
            return;
        };
        match i64::from(call.nr) {
            libc::SYS_mmap => {
                if d & libc::MAP_FIXED as u64 == 0 {
                    let taken = Space::pages_of(ret, b).find(|p| self.pages.contains_key(p));
                    assert_eq!(taken, None, "{call:?} on a page in use");
                }
                self.unmap(ret, b);
                self.map(ret, b, c);
            }
            libc::SYS_munmap => self.unmap(a, b),
            libc::SYS_mprotect | libc::SYS_pkey_mprotect => {
                let unmapped = Space::pages_of(a, b).find(|p| !self.pages.contains_key(p));
                assert!(
                    unmapped.is_none() || unmapped == Some(0),
                    "{call:?} of a hole"
                );
                self.map(a, b, c);
            }
            libc::SYS_mremap => {
                let perms = self.pages.get(&(a / PAGE)).copied();
                let (read, write, exec) = perms.unwrap_or_else(|| panic!("{call:?} of a hole"));
                let prot = u64::from(read) | u64::from(write) << 1 | u64::from(exec) << 2;
                self.unmap(a, b);
                self.unmap(ret, c);
                self.map(ret, c, prot);
            }
            libc::SYS_brk if self.brk != 0 => {
                let (old, new) = (self.brk.next_multiple_of(PAGE), ret.next_multiple_of(PAGE));
                if new > old {
                    self.map(old, new - old, 3);
                } else {
                    self.unmap(new, old - new);
                }
                self.brk = ret;
            }
            _ => {}
        }
    }
}
