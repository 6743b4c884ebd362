//! Memory cost of a VMA with each kind of lock: the layout, and the total number of bytes.
//!
//! No time is measured. The figures of the Linux series that moved the lock into the VMA
//! (`vm_area_struct`) allow a comparison: before the series, a VMA took 160 bytes and its
//! separately allocated lock 40 bytes. With the lock embedded in the VMA and aligned to a cache
//! line, a VMA took 256 bytes. With an atomic as the lock, a VMA takes 192 bytes in three cache
//! lines.

use serde::Serialize;
use thiserror::Error;
use vmarea::fault::Access;
use vmarea::mm::bytes::VmaBytes;
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::{Errno, File, FileId, FileKind, NoBytes, WithVmaLock};
use vmarea::vma::layout::{self, Object};
use vmarea::vma::lock::{
    AlignedRwLock, BoxedRwLock, FlaggedVmaLock, MmapLockOnly, VmaLock, VmaLockKind,
};
use vmarea::{HugePages, Space, System};

const PAGE: u64 = 4096;
const BASE: u64 = 0x10_0000_0000;
/// Maximum number of VMAs in a measured address space.
pub const MOST_VMAS: u64 = 1 << 20;

/// Reason why the layout measurement produced no results.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// The number of VMAs is too small or too large.
    #[error("{0} VMAs cannot be counted: take 1 to 1,048,576")]
    Vmas(u64),
    /// The core refused a call.
    #[error("the core refused a call with the lock \"{0}\": {1}")]
    Core(&'static str, Errno),
}

/// Layout of one field of the VMA.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Field {
    /// Name of the field.
    pub name: &'static str,
    /// Offset of the first byte.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    /// First and last cache line that the field occupies, counted from 0.
    pub lines: (usize, usize),
}

/// Bytes per VMA, by part.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Each {
    /// Kind of VMA: `unfaulted`, `faulted` (own anon_vma), or `file` (private, written to).
    pub vma: &'static str,
    /// Size of the slot in bytes, including the embedded lock.
    pub slot: f64,
    /// Size of the lock outside of the slot, in bytes.
    pub lock: f64,
    /// Size in bytes of the anon_vma chain, if it has more than one link.
    pub chain: f64,
    /// Bytes of the anon_vma.
    pub anon_vma: f64,
    /// Size in bytes of the reverse-map interval trees that contain more than one VMA.
    pub rmap: f64,
    /// Size in bytes of the index that maps addresses to VMAs.
    pub index: f64,
    /// Total bytes.
    pub total: f64,
}

/// Results for one kind of lock.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// Name of the kind of lock.
    pub who: &'static str,
    /// Size of a slot in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// Number of cache lines that a slot occupies.
    pub lines: usize,
    /// Offset and length in bytes of each unused range in a slot.
    pub holes: Vec<(usize, usize)>,
    /// Number of slots that fit in a page.
    pub per_page: usize,
    /// Number of pages that 1,000 VMAs need.
    pub pages_per_1000: usize,
    /// Layout of each field.
    pub fields: Vec<Field>,
    /// Bytes per VMA for each kind of VMA.
    pub bytes: Vec<Each>,
}

/// Results of the measurement.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Number of VMAs in the measured address spaces.
    pub vmas: u64,
    /// One row per kind of lock.
    pub rows: Vec<Row>,
}

/// Measures the layout and the memory cost for each kind of lock, with address spaces of `vmas`
/// VMAs.
///
/// # Errors
/// If `vmas` is out of range, or the core refuses a call.
pub fn run(vmas: u64) -> Result<Report, LayoutError> {
    if !(1..=MOST_VMAS).contains(&vmas) {
        return Err(LayoutError::Vmas(vmas));
    }
    let rows = vec![
        row::<MmapLockOnly>(vmas)?,
        row::<FlaggedVmaLock<BoxedRwLock>>(vmas)?,
        row::<FlaggedVmaLock<AlignedRwLock>>(vmas)?,
        row::<FlaggedVmaLock>(vmas)?,
        row::<VmaLock>(vmas)?,
    ];
    Ok(Report { vmas, rows })
}

fn row<K: VmaLockKind>(vmas: u64) -> Result<Row, LayoutError> {
    let object: Object = layout::vma::<K>();
    let fields = object.fields.iter().map(|field| Field {
        name: field.name,
        offset: field.offset,
        size: field.size,
        lines: field.lines(),
    });
    let kinds = [Kind::Unfaulted, Kind::Faulted, Kind::File];
    let bytes = kinds
        .into_iter()
        .map(|kind| each::<K>(kind, vmas))
        .collect::<Result<_, _>>();
    Ok(Row {
        who: K::NAME,
        size: object.size,
        align: object.align,
        lines: object.lines(),
        holes: object.holes(),
        per_page: object.per_page(),
        pages_per_1000: object.pages_for(1000),
        fields: fields.collect(),
        bytes: bytes.map_err(|errno| LayoutError::Core(K::NAME, errno))?,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unfaulted,
    Faulted,
    File,
}

fn each<K: VmaLockKind>(kind: Kind, vmas: u64) -> Result<Each, Errno> {
    let system = System {
        huge_pages: HugePages::Never,
        max_map_count: MOST_VMAS as u32 + 8,
        ..System::default()
    };
    let space = Space::<WithVmaLock<K>>::in_environment(Policy::LINUX, system, Box::new(NoBytes));
    let layout = Layout {
        mmap_base: 0x7f00_0000_0000,
        ..Layout::default()
    };
    let mm = space.mm_create(layout, Limits::default())?;
    let file = File::read_write(FileId(1), 1, FileKind::Regular);
    let fixed = MapFlags::PRIVATE | MapFlags::FIXED;
    for n in 0..vmas {
        let file = (kind == Kind::File).then_some(file);
        let request = MmapRequest {
            addr: BASE + n * 2 * PAGE,
            len: PAGE,
            prot: Prot::READ | Prot::WRITE,
            flags: if file.is_some() {
                fixed
            } else {
                fixed | MapFlags::ANONYMOUS
            },
            file,
            ..MmapRequest::default()
        };
        let at = space.mmap(mm, &request)?;
        if kind != Kind::Unfaulted {
            space.fault(mm, at, Access::Write)?;
        }
    }
    let bytes = space.vma_bytes(mm).unwrap_or_default();
    Ok(per_vma(kind, &bytes))
}

fn per_vma(kind: Kind, bytes: &VmaBytes) -> Each {
    let each = |of: usize| of as f64 / bytes.vmas.max(1) as f64;
    Each {
        vma: match kind {
            Kind::Unfaulted => "unfaulted",
            Kind::Faulted => "faulted",
            Kind::File => "file",
        },
        slot: each(bytes.slots),
        lock: each(bytes.locks),
        chain: each(bytes.chains),
        anon_vma: each(bytes.anon_vmas),
        rmap: each(bytes.rmap),
        index: each(bytes.index),
        total: each(bytes.total()),
    }
}
