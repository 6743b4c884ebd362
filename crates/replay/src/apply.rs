//! What a recorded call does in a world.
//!
//! A mapping goes where the kernel put it, so that both sides stay comparable; the result is what the
//! core's own search would have said.

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

/// What an action came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Result or negative errno; none where nothing was done.
    pub result: Option<i64>,
    /// The base of the search was not known and follows from this result.
    pub learnt_base: bool,
}

fn raw(result: Result<u64, Errno>) -> Option<i64> {
    Some(match result {
        Ok(value) => value as i64,
        Err(errno) => -i64::from(errno.number()),
    })
}

impl World {
    /// Does what a call asks for. A mapping that the kernel placed goes where the kernel put it; the
    /// result is where our own search would have put it, unless `base_known` says it cannot know.
    pub fn act(&mut self, action: &Action, call: &Call, base_known: bool) -> Done {
        let Some(mm) = self.mm(call.mm) else {
            return Done::default();
        };
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
            // The replayer knows whose they are: `rights`.
            Action::Limit { .. } | Action::Capabilities { .. } => None,
            Action::Nothing | Action::Userfault { .. } | Action::Opaque(_) => None,
        };
        self.count(call.mm, mm);
        Done {
            result,
            learnt_base,
        }
    }
}

/// Any call but `mmap`.
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
            // The kernel did it: the rules are those of an older one, which does not know it.
            Err(Errno::EINVAL) => None,
            done => raw(done),
        },
        _ => raw(space.syscall(mm, call)),
    }
}

/// Where the kernel put a mapping, by the result of its call.
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
    let mut learnt = false;
    if !base_known && request.addr == 0 {
        let len = vmarea::types::page_align(request.len);
        let top = there.saturating_add(len.unwrap_or(0));
        let top = end_of_mapped(space, mm, top);
        // It cannot fail: the address space exists.
        let _ = space.set_layout(mm, |layout| layout.mmap_base = top);
        learnt = true;
    }
    let predicted = space.predict_mmap(mm, request);
    let done = space.mmap(mm, request);
    // Where the wish is not followed Linux begins its search at random: nothing to compare.
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

/// The end of the mappings that lie without a gap from `start` on. What a search that begins at the top found
/// nothing above is below `mmap_base`, and so is what `execve` had mapped there first.
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

/// `remap_file_pages` of a segment that was to be removed: the mapping in the way was its last
/// attachment, so that the segment ends before it can be mapped anew, and nothing is left there.
fn segment_ended(space: &Space, mm: MmId, (addr, len): (u64, u64), ret: i64) -> bool {
    const EINVAL: i64 = -22;
    const EIDRM: i64 = -43;
    let segment = || {
        let vma = space.mmap_read_lock(mm)?.find_vma(addr)?;
        Some(vma.body.file?.kind == FileKind::SysvShm)
    };
    matches!(ret, EINVAL | EIDRM) && segment() == Some(true) && space.munmap(mm, addr, len).is_ok()
}

/// Attaches where the kernel did; the result is where our own search would have.
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

/// Where a segment without an address would be attached.
pub(super) fn predict_shmat(
    space: &Space,
    mm: MmId,
    segment: &File,
    len: u64,
) -> Result<u64, Errno> {
    let searched = MmapRequest {
        len,
        flags: MapFlags::SHARED,
        file: Some(*segment),
        ..MmapRequest::default()
    };
    space.predict_mmap(mm, &searched)
}
