//! A family of three, a parent, a child and a grandchild, whose graph is known: for tests.
//!
//! The steps affect five mappings: one that all three processes copy and write to (figures 2.8 and
//! 2.9 of the thesis), one that is split, one that is first touched after the last fork, one that
//! its first owner unmaps, and one that only the child maps. The core takes them here; the
//! laboratory lets real processes take them and compares the two graphs.
//!
//! # Picture
//! ```text
//! parent     data split(3) gone idle ─fork┐                      unmaps gone
//! child                                   └ writes data, gone; maps own ─fork┐
//! grandchild                                                                 └ writes data, idle
//! ```

use super::Graph;
use super::core::{self, Member};
use vmarea::fault;
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::Syscall;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::{Errno, MmId, PAGE_SHIFT, PAGE_SIZE, VmRange};
use vmarea::vma::VmaView;
use vmarea::{Space, System};
use vmarea_replay::standard;

/// Names of the processes, in the order of their numbers.
pub const NAMES: [&str; 3] = ["parent", "child", "grandchild"];
const PARENT: usize = 0;
const CHILD: usize = 1;
const GRANDCHILD: usize = 2;

/// Start of the mappings, far away from all addresses that are mapped at process start.
const BASE: u64 = 0x10_0000_0000;
/// Protection of a new mapping.
pub const READ_WRITE: Prot = Prot::READ.union(Prot::WRITE);

/// Name, start address and number of pages of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Name of the mapping.
    pub name: &'static str,
    /// Address of its first byte.
    pub start: u64,
    /// Its size.
    pub pages: u64,
}

impl Place {
    const fn new(name: &'static str, number: u64, pages: u64) -> Place {
        Place {
            name,
            // The mappings are not adjacent, so they do not merge.
            start: BASE + (number << 20),
            pages,
        }
    }

    fn page(self, index: u64) -> u64 {
        self.start + index * PAGE_SIZE
    }
}

const DATA: Place = Place::new("data", 0, 8);
const SPLIT: Place = Place::new("split", 1, 6);
const GONE: Place = Place::new("gone", 2, 4);
const IDLE: Place = Place::new("idle", 3, 4);
const OWN: Place = Place::new("own", 4, 2);
const PLACES: [Place; 5] = [DATA, SPLIT, GONE, IDLE, OWN];
/// Addresses that the steps use.
pub const WINDOW: VmRange = VmRange {
    start: BASE,
    end: BASE + (16 << 20),
};

/// What a process, given by its number, does.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Creates a private anonymous mapping.
    Map(usize, Place),
    /// Writes to an address.
    Write(usize, u64),
    /// Makes two pages of a mapping read-only, which splits the mapping.
    Protect(usize, u64),
    /// Removes a mapping.
    Unmap(usize, Place),
    /// Makes a child of this number.
    Fork(usize, usize),
}

/// The steps, in their order.
pub const STEPS: [Step; 17] = [
    Step::Map(PARENT, DATA),
    Step::Write(PARENT, DATA.start),
    Step::Map(PARENT, SPLIT),
    Step::Write(PARENT, SPLIT.start),
    Step::Protect(PARENT, SPLIT.start + 2 * PAGE_SIZE),
    Step::Map(PARENT, GONE),
    Step::Write(PARENT, GONE.start),
    Step::Map(PARENT, IDLE),
    Step::Fork(PARENT, CHILD),
    Step::Write(CHILD, DATA.start),
    Step::Unmap(PARENT, GONE),
    Step::Write(CHILD, GONE.start),
    Step::Map(CHILD, OWN),
    Step::Write(CHILD, OWN.start),
    Step::Fork(CHILD, GRANDCHILD),
    Step::Write(GRANDCHILD, DATA.start),
    Step::Write(GRANDCHILD, IDLE.start),
];

/// A step that the core refused.
#[derive(Debug, thiserror::Error)]
#[error("the core refuses {0}: {1:?}")]
pub struct Refused(String, Errno);

/// Builds the graph in the core under a merge policy.
///
/// # Errors
/// The step that the core refuses, which none is.
pub fn in_core(policy: Policy) -> Result<Graph, Refused> {
    let space = standard::space(policy, System::default());
    let layout = Layout {
        mmap_base: 0x7fff_0000_0000,
        ..Layout::default()
    };
    let refused = |what: &dyn std::fmt::Debug, errno| Refused(format!("{what:?}"), errno);
    let parent = standard::mm_create(&space, layout, Limits::default());
    let mut mms = vec![parent.map_err(|errno| refused(&"an address space", errno))?];
    for step in STEPS {
        core_step(&space, &mut mms, step).map_err(|errno| refused(&step, errno))?;
    }
    let members = mms
        .iter()
        .zip(NAMES)
        .enumerate()
        .map(|(at, (&mm, name))| Member {
            name: name.to_owned(),
            mm,
            parent: at.checked_sub(1),
        });
    let members: Vec<_> = members.collect();
    let name_of = |_: &Layout, view: &VmaView| name_at(view.range.start);
    let title = format!("our core, policy {}", policy.name);
    Ok(core::graph(&space, &title, &members, WINDOW, &name_of))
}

fn core_step(space: &Space, mms: &mut Vec<MmId>, step: Step) -> Result<(), Errno> {
    let (process, call) = match step {
        Step::Map(process, place) => {
            let request = MmapRequest {
                addr: place.start,
                len: place.pages << PAGE_SHIFT,
                prot: READ_WRITE,
                flags: anonymous(),
                ..MmapRequest::default()
            };
            (process, Syscall::Mmap(request))
        }
        Step::Write(process, addr) => {
            return standard::fault(space, mms[process], addr, fault::Access::Write).map(|_| ());
        }
        Step::Protect(process, addr) => {
            let call = Syscall::Mprotect {
                addr,
                len: 2 * PAGE_SIZE,
                prot: Prot::READ,
                pkey: None,
            };
            (process, call)
        }
        Step::Unmap(process, place) => {
            let call = Syscall::Munmap {
                addr: place.start,
                len: place.pages << PAGE_SHIFT,
            };
            (process, call)
        }
        Step::Fork(process, _) => {
            return standard::fork(space, mms[process]).map(|child| mms.push(child));
        }
    };
    standard::syscall(space, mms[process], &call).map(|_| ())
}

/// Returns the flags of a new mapping.
pub fn anonymous() -> MapFlags {
    MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED
}

/// Returns the name of the mapping at an address, or an empty name.
pub fn name_at(addr: u64) -> String {
    let found = PLACES
        .iter()
        .find(|p| (p.start..p.page(p.pages)).contains(&addr));
    found.map_or("", |place| place.name).to_owned()
}
