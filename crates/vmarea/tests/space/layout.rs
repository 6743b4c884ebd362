//! Memory cost of a VMA, per field and in total.

use vmarea::fault::{Access, Faulted};
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::types::MmId;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::vma::layout::{self, Object};
use vmarea::{HugePages, Space, System};
use vmarea_sync::{AlignedRwLock, BoxedRwLock, FlaggedVmaLock, MmapLockOnly, VmaLock, VmaLockKind};

const PAGE: u64 = vmarea::types::PAGE_SIZE;
const BASE: u64 = 0x10_0000_0000;

/// Returns the number of the cache line that contains the field `name`.
fn line(object: &Object, name: &str) -> usize {
    let field = object
        .fields
        .iter()
        .find(|field| field.name == name)
        .unwrap();
    let (first, last) = field.lines();
    assert_eq!(first, last, "{name} lies on one line");
    first
}

#[test]
fn a_vma_with_its_lock_is_two_cache_lines_without_a_hole() {
    let vma = layout::vma::<VmaLock>();
    assert_eq!((vma.size, vma.align, vma.lines()), (128, 8, 2), "{vma:?}");
    assert_eq!(vma.holes(), []);
    for name in [
        "generation, next free",
        "start",
        "end",
        "page offsets",
        "anon_vma",
        "mm",
        "rmap_span",
        "lock",
    ] {
        assert_eq!(line(&vma, name), 0, "{name}");
    }
    for name in ["flags", "file", "policy", "name", "uffd", "chain"] {
        assert_eq!(line(&vma, name), 1, "{name}");
    }
    // The paper reports 48 pages of 4 KiB for 1,000 VMAs; here it is 32.
    let per_page = PAGE as usize / 128;
    assert_eq!(vma.per_page(), per_page);
    assert_eq!(vma.pages_for(1000), 1000_usize.div_ceil(per_page));
}

#[test]
fn other_kinds_of_lock_cost_more() {
    type Aligned = FlaggedVmaLock<AlignedRwLock>;
    type Boxed = FlaggedVmaLock<BoxedRwLock>;
    assert!(layout::vma::<Aligned>().lines() >= 3);
    assert!(layout::vma::<FlaggedVmaLock>().size > 128);
    assert!(layout::vma::<MmapLockOnly>().size <= 128);
    assert!(layout::vma::<Boxed>().size + Boxed::SIDE_BYTES > 128);
}

fn space() -> (Space, MmId) {
    let system = System {
        huge_pages: HugePages::Never,
        max_map_count: 1 << 20,
        ..System::default()
    };
    let space = Space::new(Policy::LINUX, system);
    let layout = Layout {
        mmap_base: 0x7f00_0000_0000,
        ..Layout::default()
    };
    let mm = space.mm_create(layout, Limits::default()).unwrap();
    (space, mm)
}

/// Each VMA has its own anon_vma: the highest memory cost per VMA without a fork.
#[test]
fn a_faulted_vma_takes_256_bytes_with_everything_at_65_000() {
    let (space, mm) = space();
    for n in 0..65_000 {
        let request = MmapRequest {
            addr: BASE + n * 2 * PAGE,
            len: PAGE,
            prot: Prot::READ | Prot::WRITE,
            flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
            ..MmapRequest::default()
        };
        let at = space.mmap(mm, &request).unwrap();
        assert_eq!(space.fault(mm, at, Access::Write), Ok(Faulted::Done));
    }
    let bytes = space.vma_bytes(mm).unwrap();
    let each = |bytes_of: usize| bytes_of as f64 / bytes.vmas as f64;
    assert_eq!(bytes.vmas, 65_000);
    assert!(each(bytes.index) <= 32.0, "{bytes:?}");
    assert!(each(bytes.total()) <= 256.0, "{bytes:?}");
    assert_eq!(
        (bytes.chains, bytes.rmap, bytes.locks),
        (0, 0, 0),
        "{bytes:?}"
    );
}
