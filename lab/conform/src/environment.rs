//! Initial state for every sequence: rules, machine, limits, files, and available kernel features.

use super::arena::{Files, HUGE_FILE, SECRET};
use super::error::RunError;
use super::generate::Facts;
use super::kernel::Kernel;
use super::kernel_settings::Surroundings;
use super::superset::Comparison;
use rustix::process::{Resource, getrlimit};
use vmarea::System;
use vmarea::mm::Limits;
use vmarea::policy::Policy;
use vmarea_process::view::KernelView;

/// Initial state for every sequence.
#[derive(Debug)]
pub struct Environment {
    /// Policy of the core.
    pub policy: Policy,
    /// How strictly the core and the kernel are compared.
    pub comparison: Comparison,
    /// Description of the machine.
    pub system: System,
    /// Limits of the first process.
    pub limits: Limits,
    /// Access to the kernel's own view of address spaces.
    pub eye: KernelView,
    /// Files that sequences may map.
    pub files: Files,
    /// Features that sequences may use.
    pub facts: Facts,
    /// Changes that the run has made to the machine.
    pub surroundings: Surroundings,
    /// Features that are not compared on this machine, each with the reason.
    pub not_compared: Vec<String>,
}

/// Capability numbers.
const CAP_SYS_NICE: u32 = 23;
const CAP_SYS_RESOURCE: u32 = 24;

impl Environment {
    /// Determines the initial state on this machine.
    ///
    /// # Errors
    /// If the kernel's view is not accessible, or the files cannot be created.
    pub fn new(
        (policy, comparison): (Policy, Comparison),
        surroundings: Surroundings,
    ) -> Result<Environment, RunError> {
        let system = vmarea_replay::machine::system(&vmarea_process::system::header());
        let eye = KernelView::open()?;
        let files = Files::create().map_err(RunError::Files)?;
        files.reset().map_err(RunError::Files)?;
        let (userfaultfd, segments) = Kernel::start(&eye, &files)?.has();
        let facts = Facts {
            hard: [
                Resource::Data,
                Resource::Stack,
                Resource::Memlock,
                Resource::As,
            ]
            .map(hard),
            userfaultfd,
            segments,
            hugetlb: surroundings.missing("hugetlb").is_none(),
            huge_file: files.descriptor(HUGE_FILE).is_some(),
            secret: files.descriptor(SECRET).is_some(),
            secret_counts: !policy.rules.secret_locked,
            special: !policy.rules.special_splits,
            merges_huge: !policy.rules.advice.collapse_asks_write,
        };
        let not_compared = not_compared(&system, &facts, &surroundings);
        Ok(Environment {
            policy,
            comparison,
            // The core always swaps, even if Linux does not, because swapping must have no visible
            // effect.
            system: System {
                swap: true,
                ..system
            },
            limits: limits(),
            eye,
            files,
            facts,
            surroundings,
            not_compared,
        })
    }
}

fn limits() -> Limits {
    let info = vmarea_process::system::mm_info(std::process::id() as i32);
    let default = Limits::default();
    let cap = info.cap_ipc_lock.unwrap_or(false);
    Limits {
        address_space: info.rlimit_as.unwrap_or(default.address_space),
        data: info.rlimit_data.unwrap_or(default.data),
        stack: info.rlimit_stack.unwrap_or(default.stack),
        memlock: info.rlimit_memlock.unwrap_or(default.memlock),
        ipc_lock: cap,
        raw_io: cap,
        sys_resource: effective_capability(CAP_SYS_RESOURCE),
        sys_nice: effective_capability(CAP_SYS_NICE),
        data_hard: hard(Resource::Data),
    }
}

/// Lists the features that are not compared on this machine or version, with the reasons.
fn not_compared(system: &System, facts: &Facts, around: &Surroundings) -> Vec<String> {
    let mut missing: Vec<String> = [
        "userfaultfd on MAP_HUGETLB: one fault maps 512 pages in the kernel, and one in the core",
        "MADV_COLLAPSE of pages that ksmd has merged: the kernel returns EAGAIN, and the sequence ends",
        "MADV_COLLAPSE of a file's pages: depends on how the whole machine has used the file",
        "madvise by io_uring: the same function of the kernel as the system call",
        "userfaultfd: faults that wait, copying and moving pages, minor faults, closing it",
        "MADV_FREE, MAP_DROPPABLE and userfaultfd together with swap: Linux discards such pages at any time",
        "anonymous VMA names, shadow stacks: no sequence uses them",
    ]
    .map(str::to_owned)
    .into();
    if let Some(why) = around.missing("swap") {
        missing.push(format!("swap: only the core swaps ({why})"));
    }
    if let Some(why) = around.missing("ksm") {
        missing.push(format!("KSM: only the core merges pages ({why})"));
    }
    if let Some(why) = around.missing("hugetlb") {
        missing.push(format!("MAP_HUGETLB: no huge pages are reserved ({why})"));
    }
    if system.huge_pages == vmarea::HugePages::Never {
        missing.push("huge pages: transparent_hugepage/enabled is never".to_owned());
    }
    if !system.protection_keys {
        missing.push("protection keys: the processor has none".to_owned());
    }
    if !facts.userfaultfd {
        missing.push("userfaultfd: this process may not open one".to_owned());
    }
    if !facts.huge_file {
        missing.push("a file of huge pages: memfd_create cannot create one".to_owned());
    }
    if !facts.secret {
        missing.push("memfd_secret: the kernel lacks it or does not allow it".to_owned());
    } else if facts.secret_counts {
        missing.push("memfd_secret beyond RLIMIT_MEMLOCK: counted for the user".to_owned());
    }
    if !facts.special {
        missing.push("[vdso] and similar mappings: before Linux 5.11 they can be split".to_owned());
    }
    if !facts.segments {
        missing.push("System V shared memory: no segment could be created".to_owned());
    }
    if super::fill::missing(0, system.max_map_count.into(), 0).is_none() {
        let limit = system.max_map_count;
        missing.push(format!(
            "the map limit: {limit} mappings take too long to create"
        ));
    }
    if !effective_capability(CAP_SYS_RESOURCE) {
        missing.push(
            "prctl(PR_SET_MM): needs CAP_SYS_RESOURCE, only its refusal is compared".to_owned(),
        );
    }
    missing
}

/// Returns the hard limit of a resource; `u64::MAX` if unlimited.
fn hard(resource: Resource) -> u64 {
    getrlimit(resource).maximum.unwrap_or(u64::MAX)
}

/// Returns true if this process has a capability in its effective set.
fn effective_capability(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let bits = line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> number & 1 == 1)
}
