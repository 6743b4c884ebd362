//! Encoding of a snapshot in a block: a few bytes per VMA.
//!
//! Every checkpoint contains a snapshot, so snapshots dominate the size of some traces. Each VMA is
//! encoded relative to the previous one. Therefore two snapshots of one mm have nearly the same
//! bytes and compress well. The encoding does not use the block's state.
//!
//! # Picture
//! ```text
//! snapshot  mm │ flags: reason 2 bits, EXACT, INFO │ time │ postcard of MmInfo? │ VMAs │ vma...
//! vma       form │ extra │ Δstart (from the last end) │ length │ Δoffset (from the file's next byte)
//!           │ inode? │ name? │ kernel?
//! form      perms 4 bits │ kind << 4
//! kernel    Δpgoff (from the offset, or from the start without a file) │ flags
//!           │ Δanon_vma (from the last one) │ Δroot (from anon_vma) │ Δfile (from the last one)
//! ```

use crate::Error;
use crate::event::{
    InodeId, KernelVma, MmId, MmInfo, Perms, SnapKind, SnapReason, SnapVma, Snapshot,
};
use crate::rare_events::postcard_into;
use crate::varint::{Cursor, Malformed, put, put_diff};

const REASON: u8 = 0b11;
const EXACT: u8 = 1 << 2;
const INFO: u8 = 1 << 3;

const INODE: u8 = 1;
const KERNEL: u8 = 1 << 1;
const CHAIN_SINGULAR: u8 = 1 << 2;
const POLICY: u8 = 1 << 3;

/// Assumed page shift. If the assumption is wrong, the encoding is merely longer.
const PAGE_SHIFT: u32 = 12;

/// Largest number of VMAs in a snapshot. The limit is needed because in memory a VMA takes about 50
/// times the size of its shortest encoding.
const MAX_VMAS: usize = 2 << 20;

/// Size of the shortest encoded VMA in bytes.
const MIN_VMA: usize = 5;

/// Fails if readers would reject the snapshot.
pub(crate) fn check(snapshot: &Snapshot) -> Result<(), Error> {
    if snapshot.vmas.len() <= MAX_VMAS {
        return Ok(());
    }
    Err(Error::TooLarge {
        what: "a snapshot",
        bytes: snapshot.vmas.len() * MIN_VMA,
        limit: MAX_VMAS * MIN_VMA,
    })
}

/// The previous VMA, relative to which the next one is encoded.
#[derive(Default)]
struct Last {
    end: u64,
    inode: Option<InodeId>,
    /// File offset at which the previous VMA ends.
    offset: u64,
    anon_vma: u64,
    file: u64,
}

impl Last {
    fn expected_offset(&self, inode: Option<InodeId>) -> u64 {
        if inode.is_some() && inode == self.inode {
            self.offset
        } else {
            0
        }
    }

    fn follow(&mut self, vma: &SnapVma) {
        self.end = vma.end;
        self.inode = vma.inode;
        self.offset = vma.offset.wrapping_add(vma.end).wrapping_sub(vma.start);
        if let Some(kernel) = &vma.kernel {
            self.anon_vma = kernel.anon_vma;
            self.file = kernel.file;
        }
    }
}

fn expected_pgoff(inode: Option<InodeId>, start: u64, offset: u64) -> u64 {
    match inode {
        Some(_) => offset >> PAGE_SHIFT,
        None => start >> PAGE_SHIFT,
    }
}

/// Appends `snapshot`.
pub(crate) fn encode(out: &mut Vec<u8>, snapshot: &Snapshot) {
    let Snapshot {
        mm,
        reason,
        t,
        exact,
        info,
        vmas,
    } = snapshot;
    put(out, u64::from(mm.0));
    let reason = match reason {
        SnapReason::Exec => 0,
        SnapReason::Attach => 1,
        SnapReason::Checkpoint => 2,
        SnapReason::Exit => 3,
    };
    out.push(reason | flag(*exact, EXACT) | flag(info.is_some(), INFO));
    put(out, *t);
    if let Some(info) = info {
        postcard_into(out, info);
    }
    put(out, vmas.len() as u64);
    let mut last = Last::default();
    for vma in vmas {
        encode_vma(out, &last, vma);
        last.follow(vma);
    }
}

fn encode_vma(out: &mut Vec<u8>, last: &Last, vma: &SnapVma) {
    let SnapVma {
        start,
        end,
        perms,
        offset,
        inode,
        kind,
        kernel,
    } = vma;
    let (kind, name) = match kind {
        SnapKind::Plain => (0, None),
        SnapKind::Heap => (1, None),
        SnapKind::Stack => (2, None),
        SnapKind::Special(name) => (3, Some(name)),
        SnapKind::Named(name) => (4, Some(name)),
    };
    out.push(perm_bits(*perms) | kind << 4);
    out.push(
        flag(inode.is_some(), INODE)
            | flag(kernel.is_some(), KERNEL)
            | flag(kernel.is_some_and(|k| k.chain_singular), CHAIN_SINGULAR)
            | flag(kernel.is_some_and(|k| k.policy), POLICY),
    );
    put_diff(out, last.end, *start);
    put(out, end.wrapping_sub(*start));
    put_diff(out, last.expected_offset(*inode), *offset);
    if let Some(inode) = inode {
        put(out, u64::from(inode.0));
    }
    if let Some(name) = name {
        put(out, name.len() as u64);
        out.extend_from_slice(name.as_bytes());
    }
    if let Some(kernel) = kernel {
        let KernelVma {
            pgoff,
            flags,
            anon_vma,
            root,
            chain_singular: _,
            file,
            policy: _,
        } = kernel;
        put_diff(out, expected_pgoff(*inode, *start, *offset), *pgoff);
        put(out, *flags);
        put_diff(out, last.anon_vma, *anon_vma);
        put_diff(out, *anon_vma, *root);
        put_diff(out, last.file, *file);
    }
}

/// Decodes the snapshot at `cursor`.
pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Result<Snapshot, Malformed> {
    let mm = MmId(cursor.varint32()?);
    let flags = cursor.byte()?;
    let reason = match flags & REASON {
        0 => SnapReason::Exec,
        1 => SnapReason::Attach,
        2 => SnapReason::Checkpoint,
        _ => SnapReason::Exit,
    };
    let t = cursor.varint()?;
    let info = match flags & INFO {
        0 => None,
        _ => Some(cursor.postcard::<MmInfo>()?),
    };
    let count = usize::try_from(cursor.varint()?).unwrap_or(usize::MAX);
    if count > MAX_VMAS || count > cursor.left() / MIN_VMA {
        return Err(Malformed("a snapshot has more mappings than bytes"));
    }
    let mut vmas = Vec::with_capacity(count);
    let mut last = Last::default();
    for _ in 0..count {
        let vma = decode_vma(cursor, &last)?;
        last.follow(&vma);
        vmas.push(vma);
    }
    Ok(Snapshot {
        mm,
        reason,
        t,
        exact: flags & EXACT != 0,
        info,
        vmas,
    })
}

fn decode_vma(cursor: &mut Cursor<'_>, last: &Last) -> Result<SnapVma, Malformed> {
    let form = cursor.byte()?;
    let extra = cursor.byte()?;
    let start = cursor.diff(last.end)?;
    let end = start.wrapping_add(cursor.varint()?);
    // The offset comes before the inode on which its prediction depends.
    let offset_diff = cursor.diff(0)?;
    let inode = match extra & INODE {
        0 => None,
        _ => Some(InodeId(cursor.varint32()?)),
    };
    let offset = last.expected_offset(inode).wrapping_add(offset_diff);
    let kind = match form >> 4 {
        0 => SnapKind::Plain,
        1 => SnapKind::Heap,
        2 => SnapKind::Stack,
        3 => SnapKind::Special(name(cursor)?),
        4 => SnapKind::Named(name(cursor)?),
        _ => return Err(Malformed("a mapping of an unknown kind")),
    };
    let kernel = match extra & KERNEL {
        0 => None,
        _ => {
            let pgoff = cursor.diff(expected_pgoff(inode, start, offset))?;
            let flags = cursor.varint()?;
            let anon_vma = cursor.diff(last.anon_vma)?;
            Some(KernelVma {
                pgoff,
                flags,
                anon_vma,
                root: cursor.diff(anon_vma)?,
                chain_singular: extra & CHAIN_SINGULAR != 0,
                file: cursor.diff(last.file)?,
                policy: extra & POLICY != 0,
            })
        }
    };
    Ok(SnapVma {
        start,
        end,
        perms: perms_of(form),
        offset,
        inode,
        kind,
        kernel,
    })
}

fn name(cursor: &mut Cursor<'_>) -> Result<String, Malformed> {
    let len = cursor.varint()?;
    let bytes = cursor.take(len)?;
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed("a name is not UTF-8"))?;
    Ok(text.to_owned())
}

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

fn perm_bits(perms: Perms) -> u8 {
    let Perms {
        read,
        write,
        exec,
        shared,
    } = perms;
    flag(read, 1) | flag(write, 2) | flag(exec, 4) | flag(shared, 8)
}

fn perms_of(form: u8) -> Perms {
    Perms {
        read: form & 1 != 0,
        write: form & 2 != 0,
        exec: form & 4 != 0,
        shared: form & 8 != 0,
    }
}
