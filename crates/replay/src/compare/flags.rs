//! VMAs that the two policies of a comparison map alike, but with different flags.
//!
//! Only the ranges that a call works on, or creates, are examined: a comparison of all VMAs after
//! each call would cost more than the replay.

use crate::action::{self, Action};
use crate::world::World;
use vmarea::syscall::Syscall;
use vmarea::types::{PAGE_SIZE, VmFlags, VmRange, page_align};
use vmarea_trace::event::{Call, MmId};

/// Memory that has different flags in the two worlds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Apart {
    /// First address of this memory.
    pub address: u64,
    /// The flags that only one world has, for each world.
    pub only: [VmFlags; 2],
}

impl Apart {
    /// Describes the flags that only one world has.
    pub fn text(&self, side: usize) -> String {
        let names: Vec<_> = self.only[side].iter_names().map(|(name, _)| name).collect();
        match names.is_empty() {
            true => "none of these flags".to_owned(),
            false => format!("flags {}", names.join(" ")),
        }
    }
}

/// Returns the first memory in the ranges of a call that both worlds map with different flags.
pub(super) fn apart(worlds: [&World; 2], action: &Action, call: &Call) -> Option<Apart> {
    let (mm, syscall) = match action {
        Action::Call(syscall) => (call.mm, syscall),
        Action::CallOn(owner, syscall) => (*owner, syscall),
        _ => return None,
    };
    let ranges = touched(syscall, call).into_iter();
    ranges
        .filter_map(|range| first_apart(worlds, mm, range))
        .min_by_key(|apart| apart.address)
}

/// Returns the ranges that a call works on or creates.
fn touched(syscall: &Syscall, call: &Call) -> Vec<VmRange> {
    let mut ranges = action::ranges(syscall);
    let created = u64::try_from(call.ret).unwrap_or(0);
    match syscall {
        Syscall::Mmap(request) => ranges.push((created, request.len)),
        Syscall::Mremap(request) => ranges.push((created, request.new_len)),
        Syscall::UserfaultfdRegister { addr, len, .. }
        | Syscall::UserfaultfdUnregister { addr, len, .. } => ranges.push((*addr, *len)),
        Syscall::Mlockall { .. } | Syscall::Munlockall => ranges.push((0, u64::MAX)),
        _ => {}
    }
    let range = |(start, len): (u64, u64)| {
        let start = start - start % PAGE_SIZE;
        let end = start.saturating_add(page_align(len).unwrap_or(u64::MAX));
        (start < end).then(|| VmRange::new(start, end))
    };
    ranges.into_iter().filter_map(range).collect()
}

fn first_apart(worlds: [&World; 2], mm: MmId, range: VmRange) -> Option<Apart> {
    let [a, b] = worlds.map(|world| flags_in(world, mm, range));
    let (a, mut b) = (a?, b?.into_iter().peekable());
    for (mapped, flags) in a {
        while let Some((other, other_flags)) = b.peek() {
            let (start, end) = (mapped.start.max(other.start), mapped.end.min(other.end));
            if start < end && flags != *other_flags {
                return Some(Apart {
                    address: start,
                    only: [flags - *other_flags, *other_flags - flags],
                });
            }
            if other.end > mapped.end {
                break;
            }
            b.next();
        }
    }
    None
}

/// Returns the VMAs that overlap a range, as parts of this range, with their flags.
///
/// They are copied, because the `mmap_lock`s of two worlds must not be held at once.
fn flags_in(world: &World, mm: MmId, range: VmRange) -> Option<Vec<(VmRange, VmFlags)>> {
    let locked = world.space.mmap_read_lock(world.existing(mm)?)?;
    let within = |part: VmRange| VmRange::new(part.start.max(range.start), part.end.min(range.end));
    let vmas = locked.vmas_in(range);
    Some(
        vmas.map(|vma| (within(vma.range), vma.body.flags))
            .collect(),
    )
}
