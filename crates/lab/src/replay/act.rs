//! What a recorded call does in a world.
//!
//! A mapping goes where the kernel put it, so that both sides stay comparable; the result is what the
//! core's own search would have said.

use super::action::Action;
use super::world::World;
use vmarea::Space;
use vmarea::call::mmap::{MmapRequest, Placement};
use vmarea::call::mremap::MremapRequest;
use vmarea::values::call_flags::{MapFlags, MremapFlags, map_type, prot};
use vmarea::values::{Errno, File, MmId};
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
            Action::Shmat {
                addr,
                ref file,
                read_only,
                exec,
            } => {
                shmat(space, mm, addr, file, read_only, exec, call);
                None
            }
            Action::Shmdt { addr } => {
                shmdt(space, mm, addr);
                None
            }
            Action::Setting(setting) => {
                set(space, mm, setting);
                None
            }
            // The replayer knows whose they are: `rights`.
            Action::Limit { .. } | Action::Capabilities { .. } => None,
            Action::Nothing | Action::Opaque(_) => None,
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

/// A System V segment is a shared mapping of its file, whole.
fn shmat(
    space: &Space,
    mm: MmId,
    addr: u64,
    file: &File,
    read_only: bool,
    exec: bool,
    call: &Call,
) {
    let size = call.file.map_or(0, |f| f.size);
    let mut bits = prot::READ;
    if !read_only {
        bits |= prot::WRITE;
    }
    if exec {
        bits |= prot::EXEC;
    }
    let request = MmapRequest {
        addr,
        len: size,
        prot: bits,
        flags: map_type::SHARED | MapFlags::FIXED.bits(),
        file: Some(file),
        ..MmapRequest::default()
    };
    // The kernel did it; that ours did as well shows in the next list of VMAs.
    let _ = space.mmap(mm, &request);
}

fn shmdt(space: &Space, mm: MmId, addr: u64) {
    let Some(r) = space.mmap_read_lock(mm) else {
        return;
    };
    let segment = |v: &vmarea::vma::VmaView| v.range.start.wrapping_sub(v.pgoff.0 << 12) == addr;
    let parts: Vec<_> = r
        .vmas()
        .filter(|v| {
            v.body
                .file
                .is_some_and(|f| f.kind == vmarea::values::FileKind::SysvShm)
                && segment(v)
        })
        .map(|v| v.range)
        .collect();
    drop(r);
    for part in parts {
        let _ = space.munmap(mm, part.start, part.len_bytes());
    }
}

fn set(space: &Space, mm: MmId, setting: Setting) {
    let _ = space.set_layout(mm, |layout| match setting {
        Setting::ThpDisable(on) => {
            layout.thp_disabled = if on {
                ThpDisabled::Completely
            } else {
                ThpDisabled::No
            };
        }
        Setting::MemoryMerge(on) => layout.merge_any = on,
        Setting::ReadImpliesExec(on) => layout.read_implies_exec = on,
    });
}
