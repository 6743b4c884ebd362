//! The filters of the memory calls, made from the table of calls.
//!
//! The entry of a call is recorded with its arguments, its exit with the result. A few calls are
//! frequent and matter only with certain arguments: their filters test these arguments at the entry,
//! and their exits are not recorded.

use crate::Stacks;
use crate::call_table::{CallRule, Data, KernelAccess, RULES, Role};
use std::collections::BTreeSet;
use vmarea_linux_sys::arch;
use vmarea_linux_sys::call_trace::CallFilter;

/// Returns the filter of each call that a recording needs.
pub(super) fn filters(stacks: Stacks) -> impl Iterator<Item = (u32, CallFilter)> {
    let calls: BTreeSet<u32> = RULES.iter().filter(is_needed).map(|rule| rule.nr).collect();
    calls.into_iter().map(move |nr| {
        let stack = stacks == Stacks::Copy || points_to_memory(nr);
        let stack = u64::from(stack);
        (
            nr,
            CallFilter {
                stack,
                file: u64::from(i64::from(nr) == libc::SYS_mmap),
                ..filter_of(nr)
            },
        )
    })
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
                | Role::Exits
                | Role::AccessesMemory(KernelAccess::ReadsOther)
        )
}

fn points_to_memory(nr: u32) -> bool {
    let reads =
        |rule: &CallRule| rule.nr == nr && rule.data != Data::None && rule.role != Role::SetsFilter;
    i64::from(nr) == libc::SYS_clone3 || RULES.iter().any(reads)
}

/// Returns the filter for a call without regard to its stack.
fn filter_of(nr: u32) -> CallFilter {
    const DIRECT: [u64; 2] = [libc::O_DIRECT as u64; 2];
    const SET_FLAGS: [u64; 2] = [u32::MAX as u64, libc::F_SETFL as u64];
    /// The commands of a userfaultfd.
    const USERFAULTFD: [u64; 2] = [0xff00, 0xaa00];
    let entry = CallFilter {
        entry: 1,
        ..CallFilter::default()
    };
    match i64::from(nr) {
        arch::SYS_OPEN => CallFilter {
            second: DIRECT,
            ..entry
        },
        libc::SYS_openat => CallFilter {
            third: DIRECT,
            ..entry
        },
        libc::SYS_fcntl => CallFilter {
            second: SET_FLAGS,
            third: DIRECT,
            ..entry
        },
        libc::SYS_ioctl => CallFilter {
            second: USERFAULTFD,
            ..entry
        },
        // The flags are behind a pointer, and few programs use the call. The entry of the others is
        // enough to know that memory may change unobserved.
        libc::SYS_openat2
        | libc::SYS_io_uring_setup
        | libc::SYS_io_uring_register
        | libc::SYS_io_submit
        | libc::SYS_vmsplice
        | libc::SYS_process_vm_writev => entry,
        _ => CallFilter { exit: 1, ..entry },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_table::Test;
    use vmarea_linux_sys::call_trace::CALLS;

    #[test]
    fn the_numbers_of_all_calls_fit_into_the_table() {
        let largest = filters(Stacks::Skip).map(|(nr, _)| nr).max();
        assert!(largest < Some(CALLS), "{largest:?}");
    }

    #[test]
    fn a_filter_passes_every_call_that_has_a_rule() {
        for rule in RULES.iter().filter(is_needed) {
            let filter = filter_of(rule.nr);
            for (at, [mask, value]) in [(1, filter.second), (2, filter.third)] {
                let decided = rule.when.iter().all(|test| match *test {
                    Test::Masked {
                        arg,
                        mask: m,
                        value: v,
                    } if arg == at => u64::from(m) & mask == mask && u64::from(v) & mask == value,
                    _ => true,
                });
                assert!(mask == 0 || decided, "call {}", rule.nr);
            }
        }
    }
}
