//! The tracepoints of the memory calls, taken from the table of calls.
//!
//! Each call has one tracepoint at its entry, with the arguments, and one at its exit, with the
//! result. A few calls are frequent and matter only with certain arguments: a filter in the kernel
//! selects them at the entry, and their exits are not recorded, because the kernel cannot filter
//! exits by the arguments. The kernel waits for a grace period when it removes a tracepoint, so each
//! one lengthens the end of the recording by some 20 ms.
//!
//! # Linux
//! `kernel/trace/trace_syscalls.c`. `struct syscall_trace_enter` and `struct syscall_trace_exit`
//! have been unchanged since tracepoints of calls exist.

use crate::Stacks;
use crate::call_table::{CallRule, Data, KernelAccess, RULES, Role};
use std::collections::{BTreeSet, HashMap};
use std::io;
use vmarea_linux_sys::perf::What;
use vmarea_linux_sys::tracefs;
use vmarea_trace::sysno;

/// Stack bytes in a sample of a call whose arguments point to memory, often on the stack.
const ARGUMENT_STACK: u32 = 1 << 10;
/// Stack bytes in every sample if the caller asks for stacks.
const CALL_STACK: u32 = 16 << 10;

/// A tracepoint to open on each CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Point {
    pub(super) what: What,
    /// Filter for the kernel, if not every occurrence is needed.
    pub(super) filter: Option<&'static str>,
}

/// Kind of a tracepoint, by its number in a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Entry of a call; the sample contains registers and stack if `stack` is set.
    Entry { stack: bool },
    /// Exit of a call.
    Exit,
}

/// The tracepoints that a recording needs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Points {
    pub(super) all: Vec<Point>,
    pub(super) kinds: HashMap<u64, Kind>,
}

impl Points {
    /// Finds the tracepoints of this kernel. A call that the kernel lacks has none.
    ///
    /// # Errors
    /// The errors of [`tracefs::open`]; an error if the kernel has no tracepoints of calls.
    pub(super) fn find(stacks: Stacks) -> io::Result<Points> {
        let tracefs = tracefs::open()?;
        let mut points = Points::default();
        let calls: BTreeSet<u32> = RULES.iter().filter(is_needed).map(|rule| rule.nr).collect();
        for nr in calls {
            let Some(name) = sysno::name(nr) else {
                continue;
            };
            let id = |at: &str| tracefs::event_id(&tracefs, &format!("syscalls/sys_{at}_{name}"));
            let Ok(entry) = id("enter") else {
                continue;
            };
            let bytes = match stacks {
                Stacks::Copy => CALL_STACK,
                Stacks::Skip if points_to_memory(nr) => ARGUMENT_STACK,
                Stacks::Skip => 0,
            };
            let what = match bytes {
                0 => What::Tracepoint(entry),
                _ => What::TracepointWithStack { id: entry, bytes },
            };
            let (filter, needs_exit) = filter_of(nr);
            points.all.push(Point { what, filter });
            points
                .kinds
                .insert(entry, Kind::Entry { stack: bytes != 0 });
            if needs_exit {
                let exit = id("exit")?;
                let what = What::Tracepoint(exit);
                points.all.push(Point { what, filter: None });
                points.kinds.insert(exit, Kind::Exit);
            }
        }
        match points.all.is_empty() {
            true => Err(io::ErrorKind::Unsupported.into()),
            false => Ok(points),
        }
    }
}

/// True unless the observer does without the call: other records show its effect, or it has none on
/// the caller's mappings.
fn is_needed(rule: &&CallRule) -> bool {
    let without = [
        libc::SYS_userfaultfd,
        libc::SYS_migrate_pages,
        libc::SYS_move_pages,
    ];
    !without.contains(&rule.nr.into())
        && !matches!(
            rule.role,
            Role::SetsFilter
                | Role::Traces
                | Role::Executes
                | Role::AccessesMemory(KernelAccess::ReadsOther)
        )
}

fn points_to_memory(nr: u32) -> bool {
    let reads =
        |rule: &CallRule| rule.nr == nr && rule.data != Data::None && rule.role != Role::SetsFilter;
    i64::from(nr) == libc::SYS_clone3 || RULES.iter().any(reads)
}

/// Returns the filter for a call's entry, and whether its exit is needed.
pub(super) fn filter_of(nr: u32) -> (Option<&'static str>, bool) {
    const DIRECT: &str = "flags & 0x4000";
    match i64::from(nr) {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => (Some(DIRECT), false),
        libc::SYS_openat => (Some(DIRECT), false),
        // The flags are behind a pointer, and few programs use the call.
        libc::SYS_openat2 => (None, false),
        libc::SYS_fcntl => (Some("cmd == 4 && arg & 0x4000"), false),
        // UFFDIO_API, UFFDIO_REGISTER and UFFDIO_UNREGISTER.
        libc::SYS_ioctl => (
            Some("cmd == 0xc018aa3f || cmd == 0xc020aa00 || cmd == 0x8010aa01"),
            false,
        ),
        // Their entry is enough to know that memory may change unobserved.
        libc::SYS_io_uring_setup
        | libc::SYS_io_uring_register
        | libc::SYS_io_submit
        | libc::SYS_vmsplice
        | libc::SYS_process_vm_writev => (None, false),
        _ => (None, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_the_table_has_a_name() {
        for rule in RULES.iter().filter(is_needed) {
            assert!(sysno::name(rule.nr).is_some(), "call {}", rule.nr);
        }
    }
}
