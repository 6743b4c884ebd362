//! Address ranges that a call can change.
//!
//! The order of two simultaneous operations does not matter if they affect different ranges. In
//! particular, a page fault that does not take `mmap_lock` changes only pages, so the order of the
//! fault and a call on another range has no visible effect.

use vmarea_linux_sys::arch;
use vmarea_trace::event::Call;

/// Addresses that a call can affect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallRange {
    /// Up to two half-open ranges; a range with equal ends is empty.
    Ranges([(u64, u64); 2]),
    /// All addresses.
    Anywhere,
}

impl CallRange {
    /// Returns the addresses that a finished call may have affected.
    pub(crate) fn of(call: &Call) -> CallRange {
        CallRange::from_arguments(call.nr, &call.args, call.ret)
    }

    /// Returns the addresses that an unfinished call can affect.
    pub(crate) fn of_entered(nr: u32, args: &[u64; 6]) -> CallRange {
        let fixed = match i64::from(nr) {
            libc::SYS_mmap => args[3] & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) as u64 != 0,
            libc::SYS_mremap => args[3] & libc::MREMAP_FIXED as u64 != 0,
            _ => true,
        };
        match fixed {
            // A result of -1 selects the ranges in the arguments.
            true => CallRange::from_arguments(nr, args, -1),
            false => CallRange::Anywhere,
        }
    }

    fn from_arguments(nr: u32, args: &[u64; 6], ret: i64) -> CallRange {
        let [a, len, new_len, ..] = *args;
        let range = |start: u64, len: u64| (start, start.saturating_add(len));
        let none = (0, 0);
        match i64::from(nr) {
            libc::SYS_mmap => match u64::try_from(ret) {
                Ok(start) => CallRange::Ranges([range(start, len), none]),
                // A failing fixed mapping may have removed earlier mappings.
                Err(_) => CallRange::Ranges([range(a, len), none]),
            },
            libc::SYS_munmap
            | libc::SYS_mprotect
            | libc::SYS_pkey_mprotect
            | libc::SYS_madvise
            | libc::SYS_mlock
            | libc::SYS_mlock2
            | libc::SYS_munlock
            | libc::SYS_mseal
            | libc::SYS_mbind => CallRange::Ranges([range(a, len), none]),
            libc::SYS_mremap => {
                let target = u64::try_from(ret).unwrap_or(args[4]);
                CallRange::Ranges([range(a, len), range(target, new_len)])
            }
            // Creating a task that shares the address space does not change the address space.
            libc::SYS_clone if a & libc::CLONE_VM as u64 != 0 => CallRange::Ranges([none; 2]),
            arch::SYS_VFORK => CallRange::Ranges([none; 2]),
            _ => CallRange::Anywhere,
        }
    }

    /// Checks whether `addr` is on a page that one of the ranges overlaps.
    pub(crate) fn contains(&self, addr: u64) -> bool {
        match self {
            CallRange::Anywhere => true,
            CallRange::Ranges(ranges) => ranges.iter().any(|(start, end)| {
                // Arguments are in bytes; the kernel works on pages.
                const IN_PAGE: u64 = 4095;
                let end = end.saturating_add(IN_PAGE) & !IN_PAGE;
                start & !IN_PAGE <= addr && addr < end && *start < end
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_trace::event::{MmId, Order, Tid};

    fn call(nr: i64, args: [u64; 6], ret: i64) -> CallRange {
        CallRange::of(&Call {
            tid: Tid(1),
            mm: MmId(1),
            nr: nr as u32,
            args,
            ret,
            t: 0,
            order: Order::Exact,
            file: None,
            data: Vec::new(),
        })
    }

    #[test]
    fn a_move_has_two_places() {
        let extent = call(libc::SYS_mremap, [0x1000, 0x1000, 0x3000, 1, 0, 0], 0x8000);
        let held = [0x1000, 0x1fff, 0x8000, 0xafff];
        assert!(held.iter().all(|addr| extent.contains(*addr)));
        let others = [0xfff, 0x2000, 0x7fff, 0xb000];
        assert!(!others.iter().any(|addr| extent.contains(*addr)));
    }

    #[test]
    fn lengths_are_taken_in_pages_and_do_not_wrap() {
        assert!(call(libc::SYS_munmap, [0x1000, 1, 0, 0, 0, 0], 0).contains(0x1fff));
        let huge = [0x1000, u64::MAX, 0, 0, 0, 0];
        assert!(call(libc::SYS_munmap, huge, -22).contains(0x5000_0000));
        assert!(!call(libc::SYS_munmap, [0x1000, 0, 0, 0, 0, 0], -22).contains(0x1000));
    }

    #[test]
    fn where_a_mapping_goes_is_known_beforehand_only_if_the_caller_says_so() {
        let begun = |nr: i64, args| CallRange::of_entered(nr as u32, &args);
        let searched = [0x1000, 0x1000, 3, 0x22, u64::MAX, 0];
        assert_eq!(begun(libc::SYS_mmap, searched), CallRange::Anywhere);
        let fixed = begun(libc::SYS_mmap, [0x1000, 0x1000, 3, 0x32, u64::MAX, 0]);
        assert!(fixed.contains(0x1000) && !fixed.contains(0x2000));
        let moved = begun(libc::SYS_mremap, [0x1000, 0x1000, 0x1000, 3, 0x8000, 0]);
        assert!(moved.contains(0x1000) && moved.contains(0x8000) && !moved.contains(0x9000));
        assert!(!begun(libc::SYS_munmap, [0x1000, 0x1000, 0, 0, 0, 0]).contains(0x2000));
    }

    #[test]
    fn a_fork_is_anywhere_and_a_new_thread_nowhere() {
        assert_eq!(
            call(libc::SYS_clone, [17, 0, 0, 0, 0, 0], 5),
            CallRange::Anywhere
        );
    }
}
