//! Applies recorded calls to the address spaces of a world.
//!
//! A new mapping is placed at the address that the kernel chose, so that the address spaces remain
//! comparable. The address that the core's own search returns is compared with the kernel's
//! address.

use super::action::Action;
use super::world::World;
use vmarea::Space;
use vmarea::syscall::Syscall;
use vmarea::syscall::mmap::{MmapRequest, Placement};
use vmarea::syscall::mremap::MremapRequest;
use vmarea::syscall::shm::ShmatRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags};
use vmarea::types::{Errno, File, FileKind, MmId};
use vmarea_trace::event::Call;

/// Outcome of an action in one world.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Result or negative errno; `None` if the result cannot be compared with the recorded result.
    pub result: Option<i64>,
    /// True if the base of the mmap search was unknown and was derived from this call's result.
    pub learnt_base: bool,
}

fn raw(result: Result<u64, Errno>) -> Option<i64> {
    Some(match result {
        Ok(value) => value as i64,
        Err(errno) => -i64::from(errno.number()),
    })
}

impl World {
    /// Applies an action of the trace in this world.
    ///
    /// A mapping is placed at the address that the kernel chose; the returned result is the address
    /// that the core's own search finds. If `base_known` is false, the base of that search is first
    /// derived from the kernel's address.
    pub fn act(&mut self, action: &Action, call: &Call, base_known: bool) -> Done {
        let Some(mm) = self.mm(call.mm) else {
            return Done::default();
        };
        if self.act_changed(action, call) {
            return Done::default();
        }
        let space = &self.space;
        let mut learnt_base = false;
        let result = match *action {
            Action::Call(Syscall::Mmap(ref request)) => {
                let (result, learnt) = mmap(space, mm, request, call.ret, base_known);
                learnt_base = learnt;
                result
            }
            Action::Call(ref request) => perform(space, mm, request, call.ret),
            Action::CallOn(owner, ref request) => {
                let owner = self.existing(owner).unwrap_or(mm);
                raw(space.syscall(owner, request))
            }
            Action::Refuse(errno) => raw(Err(errno)),
            Action::ReadImpliesExec(on) => {
                let _ = space.set_layout(mm, |layout| layout.read_implies_exec = on);
                None
            }
            Action::Parts([data, data_end, heap, heap_end, stack]) => {
                let _ = space.set_layout(mm, |layout| {
                    (layout.start_data, layout.end_data) = (data, data_end);
                    (layout.start_brk, layout.brk) = (heap, heap_end);
                    layout.start_stack = stack;
                });
                None
            }
            // `Rights` tracks these.
            Action::Limit { .. } | Action::Capabilities { .. } => None,
            Action::Nothing | Action::Userfault { .. } | Action::Opaque(_) => None,
        };
        self.collect_merges(mm);
        self.count(call.mm, mm);
        if let (Some(changed), Some(errno @ -4095..0)) = (&mut self.changed, result)
            && call.ret >= 0
        {
            changed.fails(call, errno);
        }
        Done {
            result,
            learnt_base,
        }
    }

    /// Checks whether the call would plausibly return its recorded result if it were applied now.
    ///
    /// Only the address of a new mapping is checked, because no other result shows the order of
    /// calls as reliably.
    pub fn is_plausible(&mut self, action: &Action, call: &Call) -> bool {
        let (Some(mm), Placement::At(there)) = (self.mm(call.mm), place(call.ret)) else {
            return true;
        };
        match action {
            Action::Call(Syscall::Mmap(request)) => {
                let told = MapFlags::FIXED | MapFlags::FIXED_NOREPLACE | MapFlags::BIT32;
                request.flags.intersects(told) || self.space.predict_mmap(mm, request) == Ok(there)
            }
            Action::Call(Syscall::Shmat(request)) => {
                let (segment, len) = (&request.segment, request.len);
                request.addr != 0 || predict_shmat(&self.space, mm, segment, len) == Ok(there)
            }
            Action::Call(Syscall::Mremap(request)) => {
                there == request.addr
                    || request.flags.contains(MremapFlags::FIXED)
                    || self.space.predict_mremap(mm, request) == Ok(there)
            }
            _ => true,
        }
    }
}

/// Applies any call except `mmap`.
fn perform(space: &Space, mm: MmId, call: &Syscall, ret: i64) -> Option<i64> {
    match *call {
        Syscall::Mremap(ref request) => mremap(space, mm, request),
        Syscall::Shmat(ref request) => shmat(space, mm, request),
        Syscall::RemapFilePages { addr, len, .. } => {
            let done = space.syscall(mm, call);
            match done.is_ok() && segment_ended(space, mm, (addr, len), ret) {
                true => Some(ret),
                false => raw(done),
            }
        }
        Syscall::Prctl { .. } => match space.syscall(mm, call) {
            // The recorded call succeeded, but this policy has the rules of an older kernel without
            // this command.
            Err(Errno::EINVAL) => None,
            done => raw(done),
        },
        _ => raw(space.syscall(mm, call)),
    }
}

/// Returns where to place a mapping: at the returned address, or by a search if the call failed.
pub(super) fn place(ret: i64) -> Placement {
    if (-4095..0).contains(&ret) {
        Placement::Search
    } else {
        Placement::At(ret as u64)
    }
}

fn mmap(
    space: &Space,
    mm: MmId,
    request: &MmapRequest,
    ret: i64,
    base_known: bool,
) -> (Option<i64>, bool) {
    let flags = request.flags;
    let searched = !flags.intersects(MapFlags::FIXED | MapFlags::FIXED_NOREPLACE);
    let Placement::At(there) = request.placement else {
        return (raw(space.mmap(mm, request)), false);
    };
    if !searched {
        return (raw(space.mmap(mm, request)), false);
    }
    let learnt = !base_known && request.addr == 0 && learn_base(space, mm, request.len, there);
    let predicted = space.predict_mmap(mm, request);
    let done = space.mmap(mm, request);
    // If Linux does not follow the hint, it starts its search at a random address, so the result
    // cannot be compared.
    let wish = vmarea::types::page_align(request.addr).unwrap_or(0);
    let random = flags.contains(MapFlags::BIT32) && there != wish && predicted != Ok(wish);
    let result = match (done, predicted) {
        (Ok(_), _) if random => Some(ret),
        (Ok(_), predicted) => raw(predicted),
        (error, _) => raw(error),
    };
    (result, learnt)
}

fn mremap(space: &Space, mm: MmId, request: &MremapRequest) -> Option<i64> {
    let fixed = request.flags.contains(MremapFlags::FIXED);
    let predicted = match request.placement {
        Placement::At(there) if !fixed && there != request.addr => {
            space.predict_mremap(mm, request).ok()
        }
        _ => None,
    };
    match (space.mremap(mm, request), predicted) {
        (Ok(addr), Some(ours)) if addr != request.addr => raw(Ok(ours)),
        (done, _) => raw(done),
    }
}

/// Takes `mmap_base` from a mapping that the kernel placed at `there`; returns whether it is there.
///
/// The base known so far is the end of the highest mapping below the stack, so `mmap_base` is no
/// lower. The kernel places a mapping directly below `mmap_base`, or below what lies there, unless
/// it finds a hole further down, which an older process has.
fn learn_base(space: &Space, mm: MmId, len: u64, there: u64) -> bool {
    let Some(lowest) = space.mmap_read_lock(mm).map(|r| r.state().layout.mmap_base) else {
        return false;
    };
    let len = vmarea::types::page_align(len).unwrap_or(0);
    let top = end_of_mapped(space, mm, there.saturating_add(len));
    // Setting it cannot fail, because the address space exists.
    top >= lowest
        && space
            .set_layout(mm, |layout| layout.mmap_base = top)
            .is_ok()
}

/// Returns the end of the contiguous mappings that begin at `start`.
fn end_of_mapped(space: &Space, mm: MmId, start: u64) -> u64 {
    let Some(r) = space.mmap_read_lock(mm) else {
        return start;
    };
    let mut end = start;
    while let Some(vma) = r.find_vma(end).filter(|vma| vma.range.start == end) {
        end = vma.range.end;
    }
    end
}

/// Checks whether `remap_file_pages` destroyed a mapped segment; if so, unmaps the segment's range.
///
/// The call destroys a segment that is marked for removal if the replaced mapping was its last
/// attachment. The segment cannot then be mapped again, and its range stays unmapped.
fn segment_ended(space: &Space, mm: MmId, (addr, len): (u64, u64), ret: i64) -> bool {
    const EINVAL: i64 = -22;
    const EIDRM: i64 = -43;
    let segment = || {
        let vma = space.mmap_read_lock(mm)?.find_vma(addr)?;
        Some(vma.body.file?.kind == FileKind::SysvShm)
    };
    matches!(ret, EINVAL | EIDRM) && segment() == Some(true) && space.munmap(mm, addr, len).is_ok()
}

/// Attaches a segment at the address that the kernel chose; returns the address that the core's own
/// search finds.
fn shmat(space: &Space, mm: MmId, request: &ShmatRequest) -> Option<i64> {
    let predicted = match request.addr {
        0 => predict_shmat(space, mm, &request.segment, request.len).ok(),
        _ => None,
    };
    match (space.shmat(mm, request), predicted) {
        (Ok(_), Some(ours)) => raw(Ok(ours)),
        (done, _) => raw(done),
    }
}

/// Returns the address at which a segment would be attached without an address hint.
fn predict_shmat(space: &Space, mm: MmId, segment: &File, len: u64) -> Result<u64, Errno> {
    let searched = MmapRequest {
        len,
        flags: MapFlags::SHARED,
        file: Some(*segment),
        ..MmapRequest::default()
    };
    space.predict_mmap(mm, &searched)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea::mm::{Layout, Limits};
    use vmarea::policy::Policy;
    use vmarea::types::PAGE_SIZE;

    const TOP: u64 = 0x7f00_0010_0000;
    const ANONYMOUS: MapFlags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS);

    /// Returns an address space with pages mapped below `TOP`, all that is known of `mmap_base`.
    fn with_mapped(pages: &[u64]) -> (Space, MmId) {
        let space = Space::new(Policy::LINUX, vmarea::System::default());
        let layout = Layout {
            mmap_base: TOP,
            ..Layout::default()
        };
        let mm = space.mm_create(layout, Limits::default()).unwrap();
        for below in pages {
            let request = MmapRequest {
                addr: TOP - below * PAGE_SIZE,
                len: PAGE_SIZE,
                flags: ANONYMOUS | MapFlags::FIXED,
                ..MmapRequest::default()
            };
            space.mmap(mm, &request).unwrap();
        }
        (space, mm)
    }

    /// Maps a page at `there`; returns the core's own place, whether the base is known then, and
    /// the base.
    fn mapped(pages: &[u64], there: u64) -> (u64, bool, u64) {
        let (space, mm) = with_mapped(pages);
        let request = MmapRequest {
            len: PAGE_SIZE,
            flags: ANONYMOUS,
            placement: Placement::At(there),
            ..MmapRequest::default()
        };
        let (result, learnt) = mmap(&space, mm, &request, there as i64, false);
        let base = space.mmap_read_lock(mm).unwrap().state().layout.mmap_base;
        (result.unwrap() as u64, learnt, base)
    }

    #[test]
    fn a_mapping_below_a_hole_does_not_show_the_base() {
        let hole = TOP - 2 * PAGE_SIZE;
        assert_eq!(mapped(&[1, 3], hole), (hole, true, TOP));
        let hole = TOP - 3 * PAGE_SIZE;
        assert_eq!(mapped(&[1, 2, 4], hole), (hole, true, TOP));
        // The kernel could have used the hole above.
        let (ours, learnt, base) = mapped(&[1, 3], TOP - 4 * PAGE_SIZE);
        assert_eq!((ours, learnt, base), (TOP - 2 * PAGE_SIZE, false, TOP));
    }

    #[test]
    fn the_highest_mapping_shows_the_base() {
        let there = TOP - 2 * PAGE_SIZE;
        assert_eq!(mapped(&[1], there), (there, true, TOP));
        let there = TOP + 5 * PAGE_SIZE;
        assert_eq!(mapped(&[1], there), (there, true, there + PAGE_SIZE));
    }
}
