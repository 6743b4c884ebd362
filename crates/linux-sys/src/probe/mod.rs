//! Experiments that find out by memory calls in which rules this kernel differs from others.
//!
//! The version of a kernel does not tell how it behaves: vendors put fixes and features of later
//! versions into a kernel that keeps its number. Each experiment makes a few calls in a forked child
//! and looks at their results, or at the child's list of mappings. It is named like the rule that it
//! finds out, in the crate `merge`, and its answers are the values that this rule can have. An
//! experiment that is not possible (a missing permission, a kernel without the feature) has no
//! answer.
//!
//! What is not found out: rules that only a process at the limit on mappings shows, that need the heap
//! of the process, or files on a particular file system.
//!
//! # Picture
//! ```text
//! probe ──fork──▶ child: experiment 0, 1, 2 ...
//!       ◀──pipe── one byte for each: 0, or 1 + the index of the value
//! ```

mod advice;
mod area;
mod calls;
mod lists;
mod merging;
mod moving;
mod syscall;
mod uffd;

use area::Area;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;

/// Longest time until the next answer; an experiment takes at most some milliseconds.
const PATIENCE: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// An experiment about one rule.
struct Experiment {
    /// Name of the rule.
    rule: &'static str,
    /// Values that the rule can have.
    values: &'static [&'static str],
    /// Returns the index of the value, or `None` without an answer.
    make: fn(&Area) -> Option<usize>,
}

/// Lists functions as experiments about the rules that they are named after, with a prefix. A rule is
/// on or off unless its values are given.
macro_rules! experiments {
    ($($prefix:literal $module:ident: $($name:ident $($values:expr)?),+;)+) => {
        &[$($(Experiment {
            rule: concat!($prefix, stringify!($name)),
            values: experiments!(@values $($values)?),
            make: |area| $module::$name(area).map(usize::from),
        }),+),+]
    };
    (@values) => { &["off", "on"] };
    (@values $values:expr) => { &$values };
}

/// All experiments. Those that change something for the whole process are the last.
const EXPERIMENTS: &[Experiment] = experiments! {
    "" merging: anon_pgoff_of_files, one_sided ["neighbour_singular", "holder_singular"],
        close_hook ["never_merges", "may_not_disappear"], mmap_asks_next_first,
        mprotect_uncharges, map_stack_nohuge, expand_joins_next;
    "" calls: huge_aligned_anon, huge_aligned_zero, map_above_4g, map_droppable,
        onfault_asks_access, no_keys_is_none_left, mseal, seal_guards_dev_zero, memory_merge, mdwe,
        secret_locked, special_splits, hugetlb_placement ["own", "common"];
    "advice." advice: populate, populate_skips_holes, dontneed_locked, remove_asks_write,
        dofork_refuses_special, collapse, collapse_asks_write, collapse_of_none,
        dontneed_frees_tables, guard_regions, guard_flag, process_willneed, process_checks_first,
        process_own;
    "" moving: mremap_checks ["first", "after_unmapping", "late"], mremap_many;
    "dontunmap." moving: loses_anon_vma, resets_pgoff, cuts_locked, stays_apart, counts_locked,
        charges_next;
    "uffd_" uffd: takes_droppable, asks_min_addr, rwp, keeps_protection, moves_apart,
        protects_files;
    "" calls: mmap_limits ["before_cutting", "after_cutting"], mempolicy_modes ["5", "6", "7"],
        numa_balancing, thp_disable_except_advised;
    "advice." advice: process_own_free;
    "" merging: ksm_flag_first, ksm_flag_first_on_zero;
};

/// Makes all experiments. Returns the name of each rule with its value, or without one if the
/// experiment had no answer. If the child ends early, the rest is missing.
///
/// # Errors
/// The errors of `pipe` and `fork`.
pub fn probe() -> io::Result<Vec<(&'static str, Option<&'static str>)>> {
    let (from, to) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: the child makes plain system calls, on memory that it maps itself, until it exits.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(io::Error::last_os_error()),
        0 => make_all(&to),
        _ => drop(to),
    }
    let mut bytes = [0; EXPERIMENTS.len()];
    let received = receive(&from, &mut bytes);
    // SAFETY: the calls take numbers and a null pointer, which is allowed; `pid` is this process's
    // child, which has sent all answers or is stuck.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        while libc::waitpid(pid, ptr::null_mut(), 0) == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
    let answers = EXPERIMENTS.iter().zip(&bytes[..received]);
    let answers = answers.map(|(experiment, byte)| {
        let index = usize::from(*byte).checked_sub(1);
        let value = index.and_then(|index| experiment.values.get(index));
        (experiment.rule, value.copied())
    });
    Ok(answers.collect())
}

/// Returns the names of the rules that [`probe`] tries to find out, in its order.
pub fn names() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.iter().map(|experiment| experiment.rule)
}

/// Makes the experiments in the child, and sends each answer at once: an experiment that ends the
/// child leaves the answers before it.
fn make_all(to: &OwnedFd) -> ! {
    // SAFETY: the calls take numbers, or a structure on the stack.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
    }
    for experiment in EXPERIMENTS {
        let found = Area::new().and_then(|area| {
            let found = (experiment.make)(&area);
            area.release();
            found
        });
        let byte = found.map_or(0, |index| index as u8 + 1);
        // SAFETY: the call reads one byte on the stack.
        unsafe { libc::write(to.as_raw_fd(), (&raw const byte).cast(), 1) };
    }
    // SAFETY: the call ends this process at once.
    unsafe { libc::_exit(0) }
}

/// Reads answers until the child has ended, or has sent none for a while; returns their number.
fn receive(from: &OwnedFd, bytes: &mut [u8]) -> usize {
    let mut received = 0;
    while received < bytes.len() {
        let mut ready = [PollFd::new(from, PollFlags::IN)];
        match poll(&mut ready, Some(&PATIENCE)) {
            Ok(1..) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Ok(0) | Err(_) => break,
        }
        match rustix::io::read(from.as_fd(), &mut bytes[received..]) {
            Ok(0) => break,
            Ok(got) => received += got,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    received
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_answers() {
        let answers = probe().unwrap();
        assert!(answers.iter().map(|(name, _)| *name).eq(names()));
        let answered = answers.iter().filter(|(_, value)| value.is_some()).count();
        // Those about merging need no permission.
        for wanted in ["anon_pgoff_of_files", "one_sided", "expand_joins_next"] {
            let of = |(name, value): &(&str, Option<&str>)| *name == wanted && value.is_some();
            assert!(answers.iter().any(of), "{wanted}: {answers:?}");
        }
        assert!(answered > answers.len() / 2, "{answers:?}");
    }
}
