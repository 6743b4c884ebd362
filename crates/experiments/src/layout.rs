//! What a VMA costs under each kind of lock: its layout, and all bytes that an address space has for it.
//!
//! Nothing is timed. The text's figures stand beside: 160 bytes with 40 of lock elsewhere before it, 256
//! with the lock aligned inside, 192 in three cache lines with the atomic.

use serde::Serialize;
use thiserror::Error;
use vmarea::fault::Access;
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::{Errno, File, FileId, FileKind, NoBytes, WithVmaLock};
use vmarea::vma::layout::{self, Object, VmaBytes};
use vmarea::vma::lock::{
    AlignedRwLock, BoxedRwLock, FlaggedVmaLock, MmapLockOnly, VmaLock, VmaLockKind,
};
use vmarea::{HugePages, Space, System};

const PAGE: u64 = 4096;
const BASE: u64 = 0x10_0000_0000;
/// Most VMAs.
pub const MOST_VMAS: u64 = 1 << 20;

/// Why there are no figures.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// Too few or too many.
    #[error("{0} VMAs cannot be counted: take 1 to 1,048,576")]
    Vmas(u64),
    /// The core refused.
    #[error("the core refused a call with the lock \"{0}\": {1}")]
    Core(&'static str, Errno),
}

/// A field of the VMA.
#[derive(Clone, Debug, Serialize)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// Cache lines, first and last.
    pub lines: (usize, usize),
}

/// Bytes for each VMA.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Each {
    /// What kind of VMA: `unfaulted`, `faulted` (an anon_vma of its own), `file` (private, written to).
    pub vma: &'static str,
    /// Its slot, with the lock.
    pub slot: f64,
    /// What the lock has elsewhere.
    pub lock: f64,
    /// A chain of more than one link.
    pub chain: f64,
    /// Its anon_vma.
    pub anon_vma: f64,
    /// Interval trees of more than one VMA.
    pub rmap: f64,
    /// The index by address.
    pub index: f64,
    /// All.
    pub total: f64,
}

/// One kind of lock.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which.
    pub who: &'static str,
    /// Bytes of a slot.
    pub size: usize,
    /// Alignment.
    pub align: usize,
    /// Cache lines.
    pub lines: usize,
    /// Unused bytes, as offset and length.
    pub holes: Vec<(usize, usize)>,
    /// VMAs in a page.
    pub per_page: usize,
    /// Pages for 1,000 VMAs.
    pub pages_per_1000: usize,
    /// Its fields.
    pub fields: Vec<Field>,
    /// All bytes.
    pub bytes: Vec<Each>,
}

/// What it came to.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// VMAs of the address spaces that were counted.
    pub vmas: u64,
    /// Kinds of lock.
    pub rows: Vec<Row>,
}

/// Counts everything, with so many VMAs.
///
/// # Errors
/// Where that is too many, or the core refuses a call.
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
    let file = File {
        id: FileId(1),
        inode: 1,
        kind: FileKind::Regular,
        readable: true,
        writable: true,
        noexec: false,
        append_only: false,
        write_sealed: false,
    };
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
