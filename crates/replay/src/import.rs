//! Imports an address space from a snapshot of the kernel's mappings.
//!
//! If the snapshot includes the kernel's own view, all attributes are known. Otherwise the flags
//! are derived from the permissions, and only the stack is known to have an anon_vma; results that
//! depend on other attributes are undecided.

use super::files::{BY_VIEW, Files};
use super::world::World;
use std::collections::HashMap;
use vmarea::mm::lifecycle::{ImportedAnon, ImportedVma};
use vmarea::mm::{Layout, Limits, ThpDisabled};
use vmarea::types::{FileId, FileKind, Pgoff, VmFlags, VmRange, VmaId};
use vmarea::vma::{MappedFile, VmaBody};
use vmarea_trace::event::{InodeId, InodeKind, KernelVma, MmInfo, SnapKind, SnapVma, Snapshot};

/// First file id for files that neither a call nor the kernel's view identifies.
const BY_INODE: u64 = 1 << 41;
/// File number for the kernel's own (special) mappings, which have no file.
const SPECIAL: FileId = FileId(1 << 42);
/// Placeholder for a memory policy whose content is not known.
const UNKNOWN_POLICY: u32 = u32::MAX;

/// Sets an address space of a world to the state shown by a snapshot.
pub fn import(world: &mut World, files: &mut Files, snapshot: &Snapshot) {
    files.rings_in(snapshot);
    let before = world.layout(snapshot.mm);
    world.mm_empty(snapshot.mm);
    let Some(mm) = world.mm(snapshot.mm) else {
        return;
    };
    let info = snapshot.info.clone().unwrap_or_default();
    // These calls cannot fail: the address space was just created.
    let _ = world.space.set_layout(mm, |l| {
        *l = Layout {
            // A list of mappings does not show these settings.
            merge_any: before.merge_any,
            mdwe: before.mdwe,
            ..layout(&info, &snapshot.vmas)
        };
        if info.thp_disabled.is_none() {
            l.thp_disabled = before.thp_disabled;
        }
    });
    let _ = world.space.set_limits(mm, |l| *l = limits(&info));
    let mut anon: HashMap<u64, VmaId> = HashMap::new();
    for vma in &snapshot.vmas {
        let seen = vma.kernel.filter(KernelVma::knows_anon_vma);
        let number = seen.map_or(0, |k| k.anon_vma);
        let side = match (&seen, anon.get(&number)) {
            (None, _) if vma.kind == SnapKind::Stack => ImportedAnon::New,
            (None, _) => ImportedAnon::Unfaulted,
            (Some(_), _) if number == 0 => ImportedAnon::Unfaulted,
            (Some(_), Some(other)) => ImportedAnon::SameAs(*other),
            // A chain of several links comes from a fork before the snapshot.
            (Some(kernel), None) if !kernel.chain_singular => ImportedAnon::Inherited,
            (Some(_), None) => ImportedAnon::New,
        };
        let imported = ImportedVma {
            range: VmRange {
                start: vma.start,
                end: vma.end.max(vma.start),
            },
            pgoff: pgoff(vma),
            anon_pgoff: None,
            body: body(files, vma),
            anon: side,
        };
        // A list with overlapping or empty VMAs cannot come from the kernel.
        if vma.start < vma.end
            && let Ok(id) = world.space.mm_import(mm, &imported)
            && number != 0
        {
            anon.entry(number).or_insert(id);
        }
    }
    if let Some(def_flags) = info.def_flags {
        let _ = world
            .space
            .set_def_flags(mm, VmFlags::from_bits_retain(def_flags));
    }
    world.count(snapshot.mm, mm);
}

fn layout(info: &MmInfo, vmas: &[SnapVma]) -> Layout {
    const ADDR_COMPAT_LAYOUT: u64 = 0x20_0000;
    const READ_IMPLIES_EXEC: u64 = 0x40_0000;
    const TASK_SIZE: u64 = 0x7fff_ffff_f000;
    let heap = vmas.iter().find(|v| v.kind == SnapKind::Heap);
    let stack = vmas.iter().find(|v| v.kind == SnapKind::Stack);
    let stack_start = stack.map_or(TASK_SIZE, |v| v.start);
    // The dynamic linker is the first mapping that was placed below the stack.
    let below = vmas
        .iter()
        .filter(|v| v.end <= stack_start && v.start > 0x7000_0000_0000)
        .map(|v| v.end)
        .max();
    let personality = info.personality.unwrap_or(0);
    let start_brk = info.start_brk.or(heap.map(|v| v.start)).unwrap_or(0);
    Layout {
        mmap_base: info.mmap_base.or(below).unwrap_or(0),
        legacy_base: (TASK_SIZE / 3) & !0xfff,
        start_brk,
        brk: info.brk.or(heap.map(|v| v.end)).unwrap_or(start_brk),
        start_data: info.start_data.unwrap_or(0),
        end_data: info.end_data.unwrap_or(0),
        start_stack: info.start_stack.or(stack.map(|v| v.end - 1)).unwrap_or(0),
        bottom_up: personality & ADDR_COMPAT_LAYOUT != 0,
        read_implies_exec: personality & READ_IMPLIES_EXEC != 0,
        thp_disabled: match info.thp_disabled {
            Some(true) => ThpDisabled::Completely,
            _ => ThpDisabled::No,
        },
        ..Layout::default()
    }
}

pub(super) fn limits(info: &MmInfo) -> Limits {
    let default = Limits::default();
    Limits {
        address_space: info.rlimit_as.unwrap_or(default.address_space),
        data: info.rlimit_data.unwrap_or(default.data),
        stack: info.rlimit_stack.unwrap_or(default.stack),
        memlock: info.rlimit_memlock.unwrap_or(default.memlock),
        ipc_lock: info.cap_ipc_lock.unwrap_or(default.ipc_lock),
        raw_io: info.cap_ipc_lock.unwrap_or(default.raw_io),
        ..default
    }
}

fn pgoff(vma: &SnapVma) -> Pgoff {
    match (&vma.kernel, vma.inode) {
        (Some(kernel), _) => Pgoff(kernel.pgoff),
        (None, Some(_)) => Pgoff(vma.offset >> 12),
        (None, None) => Pgoff::of_addr(vma.start),
    }
}

fn body(files: &mut Files, vma: &SnapVma) -> VmaBody {
    let flags = match &vma.kernel {
        Some(kernel) => VmFlags::from_bits_retain(kernel.flags),
        None => guessed_flags(vma),
    };
    let special = matches!(vma.kind, SnapKind::Special(_)).then_some(MappedFile {
        id: SPECIAL,
        inode: 0,
        kind: FileKind::Special,
    });
    let file = vma.inode.map(|inode| {
        let id = match vma.kernel.map_or(0, |k| k.file) {
            0 => FileId(BY_INODE + u64::from(inode.0)),
            number => FileId(BY_VIEW + number),
        };
        MappedFile {
            id,
            inode: our_inode(files, inode),
            kind: files.kind(inode),
        }
    });
    let policy = match vma.kernel {
        Some(kernel) if kernel.policy => UNKNOWN_POLICY,
        _ => 0,
    };
    VmaBody {
        flags: flags - VmFlags::SOFTDIRTY,
        file: file.or(special),
        policy,
        name: 0,
        uffd: 0,
    }
}

/// Returns the replay's number for an inode. This may be the number of the nameless file that
/// represents the inode.
fn our_inode(files: &Files, inode: InodeId) -> u64 {
    let nameless = files
        .get(inode)
        .is_some_and(|i| i.kind == InodeKind::SharedAnon);
    let found = files
        .nameless
        .iter()
        .find(|(_, id)| nameless && **id == inode);
    found.map_or(u64::from(inode.0), |(ours, _)| *ours)
}

fn guessed_flags(vma: &SnapVma) -> VmFlags {
    let mut flags = VmFlags::MAYRWX;
    for (set, flag) in [
        (vma.perms.read, VmFlags::READ),
        (vma.perms.write, VmFlags::WRITE),
        (vma.perms.exec, VmFlags::EXEC),
        (vma.perms.shared, VmFlags::SHARED | VmFlags::MAYSHARE),
        (vma.perms.write && !vma.perms.shared, VmFlags::ACCOUNT),
        (vma.kind == SnapKind::Stack, VmFlags::GROWSDOWN),
        (
            matches!(vma.kind, SnapKind::Special(_)),
            VmFlags::DONTEXPAND,
        ),
    ] {
        if set {
            flags |= flag;
        }
    }
    flags
}
