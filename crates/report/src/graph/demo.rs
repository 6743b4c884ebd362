//! Demonstration: a parent, a child and a grandchild process, in the core and in the running
//! kernel.
//!
//! The core and the kernel run the same steps on five mappings: one that all three processes copy
//! and write to (figures 2.8 and 2.9 of the thesis), one that is split, one that is first touched
//! after the last fork, one that its first owner unmaps, and one that only the child maps. The core
//! and the kernel must produce the same graph.
//!
//! # Picture
//! ```text
//! parent     data split(3) gone idle ─fork┐                      unmaps gone
//! child                                   └ writes data, gone; maps own ─fork┐
//! grandchild                                                                 └ writes data, idle
//! ```

use super::core::Member;
use super::isomorphism::{self, Verdict};
use super::kernel::NamedVma;
use super::{Graph, core, kernel};
use serde::Serialize;
use vmarea::fault;
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::Syscall;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::{Errno, MmId, PAGE_SHIFT, PAGE_SIZE, VmRange};
use vmarea::vma::VmaView;
use vmarea::{Space, System};
use vmarea_oracle::{Access, Oracle, OracleError};
use vmarea_process::view::{KernelView, View, ViewError};
use vmarea_replay::standard;
use vmarea_trace::sysno;

const NAMES: [&str; 3] = ["parent", "child", "grandchild"];
const PARENT: usize = 0;
const CHILD: usize = 1;
const GRANDCHILD: usize = 2;

/// Start of the mappings, far away from all addresses that are mapped at process start.
const BASE: u64 = 0x10_0000_0000;
const READ_WRITE: Prot = Prot::READ.union(Prot::WRITE);

/// Name, start address and number of pages of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    name: &'static str,
    start: u64,
    pages: u64,
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
const WINDOW: VmRange = VmRange {
    start: BASE,
    end: BASE + (16 << 20),
};

#[derive(Clone, Copy, Debug)]
enum Step {
    Map(usize, Place),
    Write(usize, u64),
    /// Makes two pages of a mapping read-only, which splits the mapping.
    Protect(usize, u64),
    Unmap(usize, Place),
    Fork(usize, usize),
}

const STEPS: [Step; 17] = [
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

/// Reason why the graph cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The core rejected a step.
    #[error("the core refuses {0}: {1:?}")]
    Core(String, Errno),
    /// The kernel rejected a step.
    #[error("the kernel refuses {0}: error {1}")]
    Kernel(String, i32),
    /// The test processes failed.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// The kernel's data about the test processes cannot be read.
    #[error(transparent)]
    View(#[from] ViewError),
}

/// Graphs from the core and the kernel, and the result of their comparison.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Demo {
    /// Graph from the core.
    pub core: Graph,
    /// Graph from the running kernel.
    pub kernel: Option<Graph>,
    /// Result of the comparison.
    pub verdict: Option<Verdict>,
    /// Reason why the kernel's graph is missing.
    pub without_kernel: Option<String>,
}

impl Demo {
    /// Builds both graphs; omits the kernel's graph if the kernel's data cannot be read.
    ///
    /// # Errors
    /// Any rejected step. A kernel view that cannot be opened is not an error.
    pub fn make(policy: Policy) -> Result<Demo, DemoError> {
        let core = in_core(policy)?;
        let (kernel, without_kernel) = match KernelView::open() {
            Ok(eye) => (Some(in_kernel(&eye)?), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Ok(Demo {
            verdict: kernel
                .as_ref()
                .map(|kernel| isomorphism::compare(&core, kernel)),
            core,
            kernel,
            without_kernel,
        })
    }
}

/// Builds the graph in the core under a merge policy.
///
/// # Errors
/// [`DemoError::Core`].
pub fn in_core(policy: Policy) -> Result<Graph, DemoError> {
    let space = standard::space(policy, System::default());
    let layout = Layout {
        mmap_base: 0x7fff_0000_0000,
        ..Layout::default()
    };
    let refused = |what: &dyn std::fmt::Debug, errno| DemoError::Core(format!("{what:?}"), errno);
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

/// Builds the graph in the running kernel with real processes.
///
/// # Errors
/// Any rejected step, or a failure to read the kernel view.
pub fn in_kernel(eye: &KernelView) -> Result<Graph, DemoError> {
    let mut oracle = Oracle::start()?;
    for step in STEPS {
        if let Err(errno) = kernel_step(&mut oracle, step)? {
            return Err(DemoError::Kernel(format!("{step:?}"), errno));
        }
    }
    let mut processes = Vec::new();
    let mut view = View::default();
    for (process, name) in NAMES.iter().enumerate() {
        let pid = oracle.pid(process).ok_or(OracleError::NoProcess(process))?;
        eye.read(pid, &mut view)?;
        let shown = view
            .vmas
            .iter()
            .filter(|v| v.start >= WINDOW.start && v.end <= WINDOW.end);
        let vmas = shown.map(|vma| NamedVma {
            name: name_at(vma.start),
            vma: *vma,
        });
        processes.push(((*name).to_owned(), process.checked_sub(1), vmas.collect()));
    }
    Ok(kernel::graph("the running kernel", processes))
}

fn kernel_step(oracle: &mut Oracle, step: Step) -> Result<Result<(), i32>, OracleError> {
    let no_file = u64::MAX;
    let (process, number, args) = match step {
        Step::Map(process, place) => {
            let len = place.pages << PAGE_SHIFT;
            let flags = anonymous().bits().into();
            let args = [
                place.start,
                len,
                READ_WRITE.bits().into(),
                flags,
                no_file,
                0,
            ];
            (process, sysno::MMAP, args)
        }
        Step::Protect(process, addr) => {
            let args = [addr, 2 * PAGE_SIZE, Prot::READ.bits().into(), 0, 0, 0];
            (process, sysno::MPROTECT, args)
        }
        Step::Unmap(process, place) => {
            let args = [place.start, place.pages << PAGE_SHIFT, 0, 0, 0, 0];
            (process, sysno::MUNMAP, args)
        }
        Step::Write(process, addr) => {
            return Ok(match oracle.write(process, addr, 1)? {
                Access::Done(_) => Ok(()),
                Access::Signal { signal, .. } => Err(signal),
            });
        }
        Step::Fork(process, child) => return oracle.fork(process, child),
    };
    let result = oracle.call(process, number.into(), args)?;
    Ok(result.map(|_| ()))
}

fn anonymous() -> MapFlags {
    MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED
}

fn name_at(addr: u64) -> String {
    let found = PLACES
        .iter()
        .find(|p| (p.start..p.page(p.pages)).contains(&addr));
    found.map_or("", |place| place.name).to_owned()
}
