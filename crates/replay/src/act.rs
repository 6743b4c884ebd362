//! What a recorded call does in a world.
//!
//! A mapping goes where the kernel put it, so that both sides stay comparable; the result is what the
//! core's own search would have said.

use super::action::Action;
use super::world::World;
use vmarea::Space;
use vmarea::call::mmap::{MmapRequest, Placement};
use vmarea::call::mremap::MremapRequest;
use vmarea::call::shm::ShmatRequest;
use vmarea::values::call_flags::{MapFlags, MremapFlags, map_type};
use vmarea::values::{Errno, File, FileKind, MmId};
use vmarea_trace::event::Call;

/// What an action came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Result or negative errno; none where nothing was done.
    pub result: Option<i64>,
    /// The base of the search was not known and follows from this result.
    pub learnt_base: bool,
}

fn raw<T: Into<u64>>(result: Result<T, Errno>) -> Option<i64> {
    Some(match result {
        Ok(value) => value.into() as i64,
        Err(errno) => -i64::from(errno.number()),
    })
}

fn unit(result: Result<(), Errno>) -> Option<i64> {
    raw(result.map(|()| 0u64))
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
            Action::Mmap {
                addr,
                len,
                prot,
                flags,
                ref file,
                offset,
                refused,
            } => {
                let placement = place(call.ret);
                let request = MmapRequest {
                    addr,
                    len,
                    prot,
                    flags,
                    file: file.as_ref(),
                    offset,
                    placement,
                    refused,
                };
                let (result, learnt) = mmap(space, mm, &request, call.ret, base_known);
                learnt_base = learnt;
                result
            }
            Action::Mremap {
                addr,
                old_len,
                new_len,
                flags,
                new_addr,
            } => {
                let placement = place(call.ret);
                mremap(
                    space,
                    mm,
                    &MremapRequest {
                        addr,
                        old_len,
                        new_len,
                        flags,
                        new_addr,
                        placement,
                    },
                )
            }
            Action::Munmap { addr, len } => unit(space.munmap(mm, addr, len)),
            Action::Mprotect {
                addr,
                len,
                prot,
                pkey,
            } => unit(space.mprotect(mm, addr, len, prot, pkey)),
            Action::PkeyAlloc { flags, denied } => {
                raw(space.pkey_alloc(mm, flags, denied).map(u64::from))
            }
            Action::PkeyFree { pkey } => unit(space.pkey_free(mm, pkey)),
            Action::Brk { addr } => raw(space.brk(mm, addr)),
            Action::Madvise { addr, len, advice } => unit(space.madvise(mm, addr, len, advice)),
            Action::Mlock { addr, len, pages } => unit(space.mlock(mm, addr, len, pages)),
            Action::Munlock { addr, len } => unit(space.munlock(mm, addr, len)),
            Action::Mlockall { flags } => unit(space.mlockall(mm, flags)),
            Action::Munlockall => unit(space.munlockall(mm)),
            Action::Mseal { addr, len, flags } => unit(space.mseal(mm, addr, len, flags)),
            Action::Refuse(errno) => unit(Err(errno)),
            Action::RemapFilePages {
                addr,
                len,
                prot,
                pgoff,
                flags,
            } => {
                let done = space.remap_file_pages(mm, addr, len, prot, pgoff, flags);
                match done.is_ok() && segment_ended(space, mm, (addr, len), call.ret) {
                    true => Some(call.ret),
                    false => unit(done),
                }
            }
            Action::Mbind {
                addr,
                len,
                mode,
                nodes,
                flags,
            } => unit(space.mbind(mm, addr, len, (mode, nodes), flags)),
            Action::ProcessMadvise {
                ref ranges,
                advice,
                advised,
            } => raw(space.process_madvise(mm, ranges, advice, advised)),
            Action::Shmat {
                ref segment,
                len,
                addr,
                flags,
            } => {
                let request = ShmatRequest {
                    segment,
                    len,
                    addr,
                    flags,
                };
                shmat(space, mm, &request, place(call.ret))
            }
            Action::Shmdt { addr, ref sizes } => {
                let size = |inode| Some(sizes.iter().find(|s| s.0 == inode)?.1);
                unit(space.shmdt(mm, addr, size))
            }
            Action::Watch {
                owner,
                context,
                start,
                len,
                mode,
            } => {
                let owner = self.existing(owner).unwrap_or(mm);
                unit(
                    self.space
                        .userfaultfd_register(owner, context, (start, len), mode),
                )
            }
            Action::Unwatch {
                owner,
                context,
                start,
                len,
            } => {
                let owner = self.existing(owner).unwrap_or(mm);
                unit(
                    self.space
                        .userfaultfd_unregister(owner, context, (start, len)),
                )
            }
            Action::Prctl { args } => match space.prctl(mm, args) {
                // The kernel did it: the rules are those of an older one, which does not know it.
                Err(Errno::EINVAL) => None,
                done => raw(done),
            },
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
    request: &MmapRequest<'_>,
    ret: i64,
    base_known: bool,
) -> (Option<i64>, bool) {
    let flags = MapFlags::from_bits_retain(request.flags);
    let searched = !flags.intersects(MapFlags::FIXED | MapFlags::FIXED_NOREPLACE);
    let Placement::At(there) = request.placement else {
        return (raw(space.mmap(mm, request)), false);
    };
    if !searched {
        return (raw(space.mmap(mm, request)), false);
    }
    let mut learnt = false;
    if !base_known && request.addr == 0 {
        let len = vmarea::values::page_align(request.len);
        let top = there.saturating_add(len.unwrap_or(0));
        let top = end_of_mapped(space, mm, top);
        // It cannot fail: the address space exists.
        let _ = space.set_layout(mm, |layout| layout.mmap_base = top);
        learnt = true;
    }
    let predicted = space.predict_mmap(mm, request);
    let done = space.mmap(mm, request);
    // Where the wish is not followed Linux begins its search at random: nothing to compare.
    let wish = vmarea::values::page_align(request.addr).unwrap_or(0);
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
        (Ok(addr), Some(ours)) if addr != request.addr => raw(Ok::<u64, Errno>(ours)),
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
fn shmat(space: &Space, mm: MmId, request: &ShmatRequest<'_>, placement: Placement) -> Option<i64> {
    let predicted = match request.addr {
        0 => predict_shmat(space, mm, request.segment, request.len).ok(),
        _ => None,
    };
    match (space.shmat_at(mm, request, placement), predicted) {
        (Ok(_), Some(ours)) => raw(Ok::<u64, Errno>(ours)),
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
        flags: map_type::SHARED,
        file: Some(segment),
        ..MmapRequest::default()
    };
    space.predict_mmap(mm, &searched)
}
