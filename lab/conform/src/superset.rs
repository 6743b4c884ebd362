//! Comparison under policies that merge more than Linux does, so that ranges have fewer VMAs.
//!
//! Under such a policy only the number of VMAs that cover a range may differ. For every VMA in
//! Linux, the core must have a VMA with the same flags, file, policy and context; results and bytes
//! must be equal. A merge that only the core performs can give pages to one side of another
//! boundary, and thereby prevent a merge that Linux later performs there; such boundaries, which
//! only the core has, are counted. Results may differ only if the core's smaller number of VMAs
//! explains the difference. Each such difference is counted under its own name and ends the
//! sequence, because the states differ from then on.
//!
//! # Picture
//! ```text
//! Linux    ├── rw ──┼── rw ──┤├─ r ─┤          equal, except that the core has no
//! vmarea   ├── rw ───────────┤├─ r ─┤          boundary between the two rw VMAs
//! ```

use super::op::{Op, Places, Step};
use super::outcome::Outcome;
use super::state::{Pairings, SpaceState, StateDifference, VmaState, counters_difference};
use serde::Serialize;
use std::collections::BTreeMap;
use vmarea::policy::{Merging, OneSided, Policy, Rules};
use vmarea::types::{PAGE_SHIFT, VmFlags, page_align};
use vmarea_trace::sysno;

/// How strictly the kernel and the core are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// All compared properties must be equal.
    Exact,
    /// The core may have fewer VMAs.
    FewerVmas,
}

/// Statistics on address spaces with fewer VMAs in the core, and on the resulting differences.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FewerVmas {
    /// Number of address spaces that were compared.
    pub compared: u64,
    /// Number of compared address spaces with fewer VMAs in the core.
    pub with_fewer: u64,
    /// Number of compared address spaces with more VMAs in the core, because of an earlier merge.
    pub with_more: u64,
    /// Number of boundaries that only the core has: an earlier merge gave pages to only one side.
    pub own_borders: u64,
    /// Counts of the boundaries that only the core has, by the property that prevents the merge.
    pub border_kinds: BTreeMap<&'static str, u64>,
    /// Total number of Linux's VMAs in the compared address spaces.
    pub linux_vmas: u64,
    /// Total number of the core's VMAs in the compared address spaces.
    pub our_vmas: u64,
    /// Number of compared ranges that are still charged (`VM_ACCOUNT`) in the core but no longer in
    /// Linux.
    pub charged_longer: u64,
    /// Counts of results that differ because the core has fewer VMAs, by explanation.
    pub results: BTreeMap<String, u64>,
}

impl FewerVmas {
    /// Adds the counts of another sequence.
    pub fn add(&mut self, other: &FewerVmas) {
        let FewerVmas {
            compared,
            with_fewer,
            with_more,
            own_borders,
            border_kinds,
            linux_vmas,
            our_vmas,
            charged_longer,
            results,
        } = other;
        self.compared += compared;
        self.with_fewer += with_fewer;
        self.with_more += with_more;
        self.own_borders += own_borders;
        self.linux_vmas += linux_vmas;
        self.our_vmas += our_vmas;
        self.charged_longer += charged_longer;
        for (kind, times) in border_kinds {
            *self.border_kinds.entry(kind).or_default() += times;
        }
        for (how, times) in results {
            *self.results.entry(how.clone()).or_default() += times;
        }
    }
}

/// Adapts `policy` to the policy of the running kernel, and selects how strictly to compare.
///
/// The resulting policy permits the merges that `policy` permits beyond Linux's; all its other
/// rules are the kernel's.
pub fn on_kernel(policy: Policy, kernel: Policy) -> (Policy, Comparison) {
    if policy.merging == Merging::MAINLINE {
        return (policy, Comparison::Exact);
    }
    let more = policy.rules;
    let rules = Rules {
        one_sided: match more.one_sided {
            OneSided::Either => OneSided::Either,
            _ => kernel.rules.one_sided,
        },
        brk_joins_next: more.brk_joins_next || kernel.rules.brk_joins_next,
        expand_joins_next: more.expand_joins_next || kernel.rules.expand_joins_next,
        ..kernel.rules
    };
    (Policy { rules, ..policy }, Comparison::FewerVmas)
}

/// Compares one address space range by range; a new range begins at each boundary of either side.
///
/// The comparison adds to the counts in `fewer`.
///
/// # Errors
/// The first difference that fewer VMAs do not explain.
pub fn compare(
    kernel: &SpaceState,
    ours: &SpaceState,
    pairings: &mut Pairings,
    fewer: &mut FewerVmas,
) -> Result<(), StateDifference> {
    let (mut linux, mut own) = (kernel.vmas.as_slice(), ours.vmas.as_slice());
    let mut at = 0;
    while let (Some(k), Some(o)) = (linux.first(), own.first()) {
        if k.start.max(at) != o.start.max(at) {
            return Err(differ("VMA", k.to_string(), o.to_string()));
        }
        if let Some(what) = piece_difference(k, o, pairings) {
            return Err(differ(what, k.to_string(), o.to_string()));
        }
        fewer.charged_longer += u64::from((k.flags ^ o.flags) & VmFlags::ACCOUNT.bits() != 0);
        at = k.end.min(o.end);
        if k.end == at {
            linux = &linux[1..];
        }
        if o.end == at {
            if k.end > at {
                let Some(kind) = own.get(1).and_then(|next| border_kind(o, next)) else {
                    return Err(differ("border of ours", k.to_string(), o.to_string()));
                };
                fewer.own_borders += 1;
                *fewer.border_kinds.entry(kind).or_default() += 1;
            }
            own = &own[1..];
        }
    }
    if let Some(extra) = linux.first().or(own.first()) {
        return Err(differ(
            "VMA at the end",
            extra.to_string(),
            "one side".to_owned(),
        ));
    }
    counters_difference(kernel, ours, &["total_vm", "locked_vm"])?;
    let (linux, own) = (kernel.vmas.len() as u64, ours.vmas.len() as u64);
    fewer.compared += 1;
    fewer.with_fewer += u64::from(own < linux);
    fewer.with_more += u64::from(own > linux);
    fewer.linux_vmas += linux;
    fewer.our_vmas += own;
    Ok(())
}

/// Returns the property that differs in a range that is mapped on both sides.
fn piece_difference(
    kernel: &VmaState,
    ours: &VmaState,
    pairings: &mut Pairings,
) -> Option<&'static str> {
    let line = |v: &VmaState| v.pgoff.wrapping_sub(v.start >> PAGE_SHIFT);
    [
        ("vm_flags", flags_agree(kernel.flags, ours.flags)),
        ("anonymous or not", kernel.anonymous == ours.anonymous),
        ("vm_pgoff", ours.anonymous || line(kernel) == line(ours)),
        ("memory policy", kernel.policy == ours.policy),
        ("file", pairings.same_file(kernel.file, ours.file)),
        (
            "userfaultfd context",
            (kernel.uffd != 0) == (ours.uffd != 0),
        ),
    ]
    .into_iter()
    .find_map(|(what, same)| (!same).then_some(what))
}

/// Returns why the core may have two VMAs where Linux has one, or `None` if there is no valid
/// reason.
///
/// A valid reason is that pages, flags or a charge belong to only one of the two VMAs in the core,
/// because of an earlier merge or because the core created an anon_vma earlier than Linux.
fn border_kind(one: &VmaState, next: &VmaState) -> Option<&'static str> {
    let spread = (one.flags ^ next.flags) & !VmFlags::ACCOUNT.bits();
    Some(match (one.anon_vma, next.anon_vma) {
        _ if spread != 0 => "flags that have spread to one side",
        _ if one.flags != next.flags => "one side is charged",
        (0, 0) => return None,
        (0, _) | (_, 0) => "one side has pages",
        (a, b) if a == b => "one anon_vma, other page offsets",
        _ => "two anon_vmas",
    })
}

/// Returns true if the flags are equal, except for flags that may spread to merged VMAs.
///
/// Linux itself spreads sticky flags over merged VMAs; the core can spread these flags over other
/// VMAs, because its merges differ. The charge (`VM_ACCOUNT`) can also spread, or can remain
/// because the VMA has an anon_vma; in the core, a VMA can get its anon_vma earlier than in Linux.
fn flags_agree(kernel: u64, ours: u64) -> bool {
    let [kernel, ours] = [kernel, ours].map(VmFlags::from_bits_retain);
    let spreads = VmFlags::STICKY | VmFlags::ACCOUNT;
    (kernel ^ ours) & spreads == kernel ^ ours && ours.contains(kernel & VmFlags::ACCOUNT)
}

fn differ(what: &'static str, kernel: String, ours: String) -> StateDifference {
    StateDifference { what, kernel, ours }
}

/// The states of an address space, in Linux and in the core, before a step with different results.
pub struct Before<'a> {
    /// State in Linux.
    pub kernel: &'a SpaceState,
    /// State in the core.
    pub ours: &'a SpaceState,
    /// `vm.max_map_count`.
    pub limit: u64,
    /// Real addresses of the symbolic regions.
    pub places: Places,
    /// The core's policy.
    pub policy: &'a Policy,
}

/// Returns why a step affects more or less memory in the core than in Linux, if the core's larger
/// VMAs explain the difference.
///
/// `kernel` is the result in Linux. Three effects of `mremap` depend on the size of VMAs:
/// `MREMAP_DONTUNMAP` unlocks the whole VMA that contains the moved part; a copy that merges with a
/// VMA registered with a userfaultfd takes over the registration of that VMA; and if Linux fails to
/// move several VMAs, some of them may already have been moved.
pub fn reaches_further(step: &Step, kernel: Outcome, before: &Before<'_>) -> Option<&'static str> {
    const DONTUNMAP: u64 = 4;
    let Op::Call(call) = &step.op else {
        return None;
    };
    if call.nr != sysno::MREMAP {
        return None;
    }
    let [addr, len, _, flags, ..] = call.placed(before.places);
    let [linux, own] = [before.kernel, before.ours].map(|s| in_range(s, addr, len));
    let any = |flags: VmFlags| own.iter().any(|v| v.flags & flags.bits() != 0);
    if flags & DONTUNMAP != 0 && any(VmFlags::LOCKED) {
        // Which VMA is unlocked also depends on the VMA with which the copy merged earlier.
        return Some("MREMAP_DONTUNMAP unlocks a whole VMA, which may be another here");
    }
    if any(VmFlags::UFFD_ANY) {
        return Some("mremap of what a userfaultfd watches");
    }
    (kernel.is_refused() && linux.len() > own.len())
        .then_some("mremap refused when some of several VMAs of Linux have moved")
}

/// Returns the VMAs that overlap a range.
fn in_range(space: &SpaceState, addr: u64, len: u64) -> Vec<&VmaState> {
    let end = addr.saturating_add(page_align(len).unwrap_or(u64::MAX).max(1));
    let overlap = |v: &&VmaState| v.start < end && addr < v.end;
    space.vmas.iter().filter(overlap).collect()
}

/// Returns true if the stack that grows to `addr` is a larger VMA in the core than in Linux.
fn larger_stack(addr: u64, before: &Before<'_>) -> bool {
    let above = |space: &SpaceState| {
        let next = space.vmas.iter().find(|v| v.end > addr);
        let grows = |v: &&VmaState| v.start > addr && v.flags & VmFlags::GROWSDOWN.bits() != 0;
        next.filter(grows).map(|v| v.end - v.start)
    };
    matches!((above(before.kernel), above(before.ours)), (Some(k), Some(o)) if o > k)
}

/// Returns why the results of a step differ, if the core's smaller number of VMAs explains that.
pub fn explanation(
    step: &Step,
    kernel: Outcome,
    ours: Outcome,
    before: &Before<'_>,
) -> Option<&'static str> {
    const ENOMEM: Outcome = Outcome::Errno(12);
    const EFAULT: Outcome = Outcome::Errno(14);
    const EINVAL: Outcome = Outcome::Errno(22);
    const MADV_COLLAPSE: u64 = 25;
    let call = match &step.op {
        Op::Call(call) => call,
        Op::Read { addr } | Op::Write { addr, .. } => {
            let addr = before.places.placed(*addr);
            let larger = !kernel.is_refused() && larger_stack(addr, before);
            return larger.then_some("a stack that is larger here has reached RLIMIT_STACK");
        }
        _ => return None,
    };
    let [addr, len, new_len, _, to, _] = call.placed(before.places);
    let end = addr.saturating_add(page_align(len).unwrap_or(u64::MAX));
    let within = |space: &SpaceState| {
        let overlap = |v: &&VmaState| v.start < end && addr < v.end;
        space.vmas.iter().filter(overlap).count()
    };
    let (theirs, own) = (within(before.kernel), within(before.ours));
    if call.nr == sysno::MREMAP && kernel == EFAULT && ours != EFAULT {
        if theirs > own {
            return Some("mremap over several VMAs of Linux that are one");
        }
        if own > 1 && before.policy.merging.remap_freely {
            return Some("mremap of several VMAs at once, where Linux moves one");
        }
    }
    let overlaps = to < end && addr < to.saturating_add(page_align(new_len).unwrap_or(u64::MAX));
    if call.nr == sysno::MREMAP && overlaps && before.policy.merging.remap_freely {
        return Some("mremap to a place that overlaps the old one");
    }
    let anonymous = |space: &SpaceState| {
        let found = space.vmas.iter().find(|v| v.start < end && addr < v.end);
        found.is_some_and(|v| v.anon_vma != 0)
    };
    if call.nr == sysno::MADVISE && new_len == MADV_COLLAPSE && kernel == EINVAL {
        if theirs > own {
            return Some("MADV_COLLAPSE of a huge page across several VMAs of Linux");
        }
        if anonymous(before.ours) && !anonymous(before.kernel) {
            return Some("MADV_COLLAPSE of what has an anon_vma sooner here");
        }
    }
    let refused = kernel.is_refused() && ours.is_refused();
    if call.nr == sysno::MREMAP && refused && before.policy.merging.remap_freely {
        return Some("mremap refused for another reason");
    }
    let near = before.kernel.vmas.len() as u64 + 4 >= before.limit;
    let fewer = before.ours.vmas.len() < before.kernel.vmas.len();
    (kernel == ENOMEM && near && fewer).then_some("Linux is at the limit of mappings")
}
