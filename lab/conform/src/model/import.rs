//! Initial address space of the model, imported from the kernel's view.

use std::collections::HashMap;
use vmarea::mm::lifecycle::{ImportedAnon, ImportedVma};
use vmarea::mm::{Layout, Limits};
use vmarea::types::{Errno, FileId, FileKind, MmId, PAGE_SIZE, Pgoff, VmFlags, VmRange, VmaId};
use vmarea::vma::{MappedFile, VmaBody};
use vmarea_process::view::{View, ViewVma};
use vmarea_soft_platform::Machine;

/// Returns true for a special mapping of the kernel: only these have VMA operations but no file.
pub(super) fn is_special(vma: &ViewVma) -> bool {
    vma.file == 0 && vma.ops != 0
}

/// Returns special mappings like those of Linux 6.18, for use without a kernel.
pub(super) fn special() -> Vec<ViewVma> {
    const AT: u64 = 0x7fff_f7f0_0000;
    const VVAR: VmFlags = VmFlags::READ
        .union(VmFlags::MAYREAD)
        .union(VmFlags::PFNMAP)
        .union(VmFlags::IO)
        .union(VmFlags::DONTEXPAND)
        .union(VmFlags::DONTDUMP);
    const VDSO: VmFlags = VmFlags::READ
        .union(VmFlags::EXEC)
        .union(VmFlags::MAYRWX)
        .union(VmFlags::DONTEXPAND);
    let vma = |(first, pages, flags): (u64, u64, VmFlags)| ViewVma {
        start: AT + first * PAGE_SIZE,
        end: AT + (first + pages) * PAGE_SIZE,
        flags: flags.bits(),
        ops: 1,
        chain_singular: true,
        ..ViewVma::default()
    };
    [(0, 4, VVAR), (4, 2, VVAR), (6, 2, VDSO)].map(vma).into()
}

pub(super) fn import(machine: &Machine, view: &View, limits: Limits) -> Result<MmId, Errno> {
    let space = machine.space();
    let fields = &view.mm;
    let layout = Layout {
        mmap_base: fields.mmap_base.unwrap_or(0x7fff_0000_0000),
        legacy_base: (space.system().task_size / 3) & !0xfff,
        start_brk: fields.start_brk.unwrap_or(0),
        brk: fields.brk.unwrap_or(0),
        start_data: fields.start_data.unwrap_or(0),
        end_data: fields.end_data.unwrap_or(0),
        start_stack: fields.start_stack.unwrap_or(0),
        code: [fields.start_code, fields.end_code].map(Option::unwrap_or_default),
        args: [fields.arg_start, fields.arg_end].map(Option::unwrap_or_default),
        env: [fields.env_start, fields.env_end].map(Option::unwrap_or_default),
        ..Layout::default()
    };
    let mm = space.mm_create(layout, limits)?;
    let mut owners: HashMap<u64, VmaId> = HashMap::new();
    for vma in &view.vmas {
        let anon = match owners.get(&vma.anon_vma) {
            _ if vma.anon_vma == 0 => ImportedAnon::Unfaulted,
            Some(&other) => ImportedAnon::SameAs(other),
            None => ImportedAnon::New,
        };
        let kind = if is_special(vma) {
            FileKind::Special
        } else {
            FileKind::Regular
        };
        let file = (vma.file != 0 || vma.ops != 0).then_some(MappedFile {
            id: FileId(vma.file),
            inode: vma.file,
            kind,
        });
        let imported = ImportedVma {
            range: VmRange::new(vma.start, vma.end),
            pgoff: Pgoff(vma.pgoff),
            anon_pgoff: vma.anon_pgoff.map(Pgoff),
            body: VmaBody {
                // `VM_SOFTDIRTY` is not modelled: see `Kernel::state`.
                flags: VmFlags::from_bits_retain(vma.flags) - VmFlags::SOFTDIRTY,
                file,
                policy: vma.policy.map_or(0, |p| u32::from(p != 0)),
                ..VmaBody::default()
            },
            anon,
        };
        let id = space.mm_import(mm, &imported)?;
        owners.entry(vma.anon_vma).or_insert(id);
    }
    Ok(mm)
}
