//! State of an address space, in the same form for the kernel and the core, and its comparison.
//!
//! The kernel and the core number their anon_vmas, files and contexts independently. Therefore the
//! numbers must only correspond one to one, across all processes at the same point in time: if two
//! VMAs have the same anon_vma, file or context on one side, they must also have the same one on
//! the other side.

use super::arena;
use super::op::Places;
use std::collections::HashMap;
use std::fmt;
use vmarea::types::VmFlags;

/// State of a VMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmaState {
    /// First address of the VMA.
    pub start: u64,
    /// First address after the VMA.
    pub end: u64,
    /// `vm_flags`, restricted to the flags that are compared.
    pub flags: u64,
    /// `vm_pgoff`.
    pub pgoff: u64,
    /// Page offset of the first anonymous page, if known; before 7.3 it is `pgoff`.
    pub anon_pgoff: Option<u64>,
    /// Identity of the anon_vma, 0 for none.
    pub anon_vma: u64,
    /// Identity of the anon_vma's root.
    pub root: u64,
    /// True if the anon_vma chain has at most one link.
    pub chain_singular: bool,
    /// `num_children` of the anon_vma, if known.
    pub num_children: Option<u64>,
    /// `num_active_vmas` of the anon_vma, if known.
    pub num_active_vmas: Option<u64>,
    /// True if no file backs the pages, even if the VMA has a file.
    pub anonymous: bool,
    /// Identity of the file, 0 for none.
    pub file: u64,
    /// True if the VMA has its own memory policy.
    pub policy: bool,
    /// Identity of the userfaultfd context, 0 for none.
    pub uffd: u64,
}

/// State of an address space.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SpaceState {
    /// VMAs in ascending order of address.
    pub vmas: Vec<VmaState>,
    /// `total_vm` and `locked_vm` in pages, and `map_count`.
    pub counters: [Option<u64>; 3],
    /// `def_flags`.
    pub def_flags: Option<u64>,
    /// `start_brk` and `brk`.
    pub brk: [Option<u64>; 2],
}

impl SpaceState {
    /// Lists the mappings in the arena, one per line.
    ///
    /// For memory that was moved out of the heap, the page offset is converted to a symbolic one.
    pub fn listed(&self, places: Places) -> Vec<String> {
        let pgoff = |v: &VmaState| places.named_pgoff(v.pgoff);
        self.vmas
            .iter()
            .filter(|v| (arena::START..arena::END).contains(&v.start))
            .map(|v| format!("{:x}-{:x} {:x} {:x}", v.start, v.end, v.flags, pgoff(v)))
            .collect()
    }

    /// Lists the VMAs of the arena and the heap that have an anon_vma, one per line.
    ///
    /// Each line contains the start address and the anon_vma's index in `known`.
    pub fn anon_vmas(&self, places: Places, known: &mut Vec<u64>) -> Vec<String> {
        let mut lines = Vec::new();
        for vma in self.vmas.iter().filter(|v| v.anon_vma != 0) {
            let start = places.named(vma.start);
            if (arena::START..arena::HEAP_END).contains(&start) {
                let place = known.iter().position(|&other| other == vma.anon_vma);
                let number = place.unwrap_or_else(|| {
                    known.push(vma.anon_vma);
                    known.len() - 1
                });
                lines.push(format!("{start:x} {number}"));
            }
        }
        lines
    }
}

/// One-to-one correspondence between the identities in the kernel and in the core.
#[derive(Debug, Default)]
pub struct Pairing {
    there: HashMap<u64, u64>,
    back: HashMap<u64, u64>,
}

impl Pairing {
    /// Returns true if the two identities can denote the same object, given the pairs seen so far.
    /// 0 corresponds only to 0.
    pub fn agree(&mut self, kernel: u64, ours: u64) -> bool {
        if kernel == 0 || ours == 0 {
            return kernel == ours;
        }
        *self.there.entry(kernel).or_insert(ours) == ours
            && *self.back.entry(ours).or_insert(kernel) == kernel
    }
}

/// The correspondences for all kinds of objects at one point in time.
#[derive(Debug, Default)]
pub struct Pairings {
    anon: Pairing,
    file: Pairing,
    uffd: Pairing,
}

impl Pairings {
    /// Returns true if the two identities can denote the same file.
    pub(super) fn same_file(&mut self, kernel: u64, ours: u64) -> bool {
        self.file.agree(kernel, ours)
    }
}

/// Difference between two states of an address space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateDifference {
    /// The property that differs.
    pub what: &'static str,
    /// Linux's value.
    pub kernel: String,
    /// vmarea's value.
    pub ours: String,
}

impl fmt::Display for StateDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} differs", self.what)?;
        writeln!(f, "  Linux   {}", self.kernel)?;
        write!(f, "  vmarea  {}", self.ours)
    }
}

impl fmt::Display for VmaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:#x}-{:#x} flags {:#x} pgoff {:#x} anon_vma {:x} root {:x}{} children {:?} active {:?} file {:x}",
            self.start,
            self.end,
            self.flags,
            self.pgoff,
            self.anon_vma,
            self.root,
            if self.chain_singular { "" } else { " (chain)" },
            self.num_children,
            self.num_active_vmas,
            self.file,
        )?;
        if self.policy {
            f.write_str(" policy")?;
        }
        if self.uffd != 0 {
            write!(f, " uffd {:x}", self.uffd)?;
        }
        Ok(())
    }
}

/// Compares one process's address space in the kernel with its address space in the core.
///
/// `pairings` holds the correspondences from other processes; `initial` returns true for addresses
/// that were mapped before the first step.
///
/// # Errors
/// The first difference.
pub fn compare(
    kernel: &SpaceState,
    ours: &SpaceState,
    pairings: &mut Pairings,
    initial: impl Fn(u64) -> bool,
) -> Result<(), StateDifference> {
    for (k, o) in kernel.vmas.iter().zip(&ours.vmas) {
        if let Some(what) = vma_difference(k, o, pairings, initial(k.start)) {
            return Err(StateDifference {
                what,
                kernel: around(&kernel.vmas, k),
                ours: around(&ours.vmas, o),
            });
        }
    }
    if kernel.vmas.len() != ours.vmas.len() {
        return Err(StateDifference {
            what: "number of VMAs",
            kernel: format!("{}", kernel.vmas.len()),
            ours: format!("{}", ours.vmas.len()),
        });
    }
    counters_difference(kernel, ours, &["total_vm", "locked_vm", "map_count"])
}

/// Compares the first `names.len()` counters, the default flags and the heap.
///
/// # Errors
/// The first difference.
pub(super) fn counters_difference(
    kernel: &SpaceState,
    ours: &SpaceState,
    names: &[&'static str],
) -> Result<(), StateDifference> {
    let differ = |a: Option<u64>, b: Option<u64>| matches!((a, b), (Some(a), Some(b)) if a != b);
    for (n, what) in names.iter().copied().enumerate() {
        if differ(kernel.counters[n], ours.counters[n]) {
            return Err(numbers(what, kernel.counters[n], ours.counters[n]));
        }
    }
    if differ(kernel.def_flags, ours.def_flags) {
        return Err(numbers("def_flags", kernel.def_flags, ours.def_flags));
    }
    for (n, what) in ["start_brk", "brk"].into_iter().enumerate() {
        if differ(kernel.brk[n], ours.brk[n]) {
            return Err(numbers(what, kernel.brk[n], ours.brk[n]));
        }
    }
    Ok(())
}

fn numbers(what: &'static str, kernel: Option<u64>, ours: Option<u64>) -> StateDifference {
    let show = |n: Option<u64>| n.map_or("?".to_owned(), |n| format!("{n:#x}"));
    StateDifference {
        what,
        kernel: show(kernel),
        ours: show(ours),
    }
}

/// Formats a VMA and its neighbours.
fn around(all: &[VmaState], one: &VmaState) -> String {
    let at = all.iter().position(|v| v == one).unwrap_or(0);
    let lines: Vec<String> = (at.saturating_sub(1)..all.len().min(at + 2))
        .map(|n| format!("{}{}", if n == at { "> " } else { "  " }, all[n]))
        .collect();
    lines.join("\n          ")
}

fn vma_difference(
    kernel: &VmaState,
    ours: &VmaState,
    pairings: &mut Pairings,
    initial: bool,
) -> Option<&'static str> {
    let VmaState {
        start,
        end,
        flags,
        pgoff,
        anon_pgoff,
        anon_vma,
        root,
        chain_singular,
        num_children,
        num_active_vmas,
        anonymous,
        file,
        policy,
        uffd,
    } = *kernel;
    // The pages of a shared mapping are never anonymous.
    let shared = flags & VmFlags::MAYSHARE.bits() != 0;
    // Initial VMAs have related anon_vmas in other processes, which the core does not know.
    let known = |a: Option<u64>, b: Option<u64>| initial || a.is_none() || b.is_none() || a == b;
    [
        ("VMA", (start, end) == (ours.start, ours.end)),
        ("vm_flags", flags == ours.flags),
        ("vm_pgoff", pgoff == ours.pgoff),
        (
            "anonymous page offset",
            shared || anon_pgoff.is_none() || anon_pgoff == ours.anon_pgoff,
        ),
        (
            "anon_vma",
            initial || pairings.anon.agree(anon_vma, ours.anon_vma),
        ),
        (
            "root of the anon_vma",
            initial || pairings.anon.agree(root, ours.root),
        ),
        (
            "length of the chain",
            initial || chain_singular == ours.chain_singular,
        ),
        ("num_children", known(num_children, ours.num_children)),
        (
            "num_active_vmas",
            known(num_active_vmas, ours.num_active_vmas),
        ),
        ("anonymous or not", initial || anonymous == ours.anonymous),
        ("file", pairings.file.agree(file, ours.file)),
        ("memory policy", policy == ours.policy),
        ("userfaultfd context", pairings.uffd.agree(uffd, ours.uffd)),
    ]
    .into_iter()
    .find_map(|(what, same)| (!same).then_some(what))
}
