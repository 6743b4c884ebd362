//! `/proc/PID/maps` and `smaps`: a process's mappings, as Linux prints them.

use crate::memory::mapped;
use crate::space::{Mm, space};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::ops::ControlFlow;
use spin::Mutex;
use vmarea::mm::Layout;
use vmarea::page::{Pte, SwapMap};
use vmarea::types::{PAGE_SIZE, VmFlags, VmRange};
use vmarea::vma::VmaView;

/// Column at which a mapping's name starts.
const NAME_COLUMN: usize = 73;

/// Returns the first line that describes a mapping, which is the same in `maps` and `smaps`.
fn line(vma: &VmaView, layout: &Layout) -> String {
    let flags = vma.body.flags;
    let letter = |flag, letter| if flags.contains(flag) { letter } else { '-' };
    let (inode, offset, name) = match vma.body.file {
        Some(file) => {
            let number = file.inode;
            (
                number & 0xff_ffff,
                vma.pgoff().0 << 12,
                mapped::path(number),
            )
        }
        None => (0, 0, special_name(vma, layout).into()),
    };
    let mut text = format!(
        "{:08x}-{:08x} {}{}{}{} {offset:08x} 00:{:02x} {inode} ",
        vma.range.start,
        vma.range.end,
        letter(VmFlags::READ, 'r'),
        letter(VmFlags::WRITE, 'w'),
        letter(VmFlags::EXEC, 'x'),
        if flags.contains(VmFlags::MAYSHARE) {
            's'
        } else {
            'p'
        },
        if inode == 0 { 0 } else { 2 },
    );
    if !name.is_empty() {
        while text.len() < NAME_COLUMN {
            text.push(' ');
        }
        text.push_str(&name);
    }
    text.push('\n');
    text
}

fn special_name(vma: &VmaView, layout: &Layout) -> &'static str {
    let range = vma.range;
    if range.start < layout.brk && range.end > layout.start_brk {
        "[heap]"
    } else if range.contains(layout.start_stack) {
        "[stack]"
    } else {
        ""
    }
}

/// How much a listing says about each mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// `maps`: a line.
    Line,
    /// `smaps`: also sizes and flags.
    Sizes,
}

/// An open `maps` or `smaps`, whose text is made as far as it is read.
#[derive(Debug)]
pub struct Listing {
    mm: Arc<Mm>,
    detail: Detail,
    place: Mutex<Place>,
}

/// The place up to which a listing was read.
#[derive(Debug, Default)]
struct Place {
    offset: u64,
    /// Text at `offset`.
    text: String,
    /// Address from which mappings follow the text.
    next: u64,
}

impl Listing {
    /// Opens the listing of an address space.
    pub fn new(mm: Arc<Mm>, detail: Detail) -> Listing {
        Listing {
            mm,
            detail,
            place: Mutex::default(),
        }
    }

    /// Reads from `offset`. As in Linux, a read returns at most a page, and whole mappings if they
    /// fit, so that a program that looks for one of the first mappings does not pay for all.
    #[doc(alias = "seq_read_iter")]
    pub fn read(&self, offset: u64, to: &mut [u8]) -> usize {
        let mut place = self.place.lock();
        if offset < place.offset {
            *place = Place::default();
        }
        while place.offset < offset {
            self.extend(&mut place);
            let skipped = (offset - place.offset).min(place.text.len() as u64);
            if skipped == 0 {
                return 0;
            }
            place.take(skipped as usize);
        }
        self.extend(&mut place);
        let len = place.text.len().min(to.len());
        to[..len].copy_from_slice(&place.text.as_bytes()[..len]);
        place.take(len);
        len
    }

    /// Adds the text of the next mappings, as many as a page holds but at least one, unless some text
    /// is left.
    fn extend(&self, place: &mut Place) {
        if !place.text.is_empty() {
            return;
        }
        let Some(r) = space().mmap_read_lock(self.mm.id()) else {
            return;
        };
        let layout = r.state().layout;
        for vma in r.vmas_in(VmRange::new(place.next, u64::MAX)) {
            let mut text = line(&vma, &layout);
            if self.detail == Detail::Sizes {
                push_sizes(&mut text, &vma, &count(&r, &vma));
            }
            if !place.text.is_empty() && place.text.len() + text.len() > PAGE_SIZE as usize {
                break;
            }
            place.text += &text;
            place.next = vma.range.end;
        }
    }
}

impl Place {
    fn take(&mut self, len: usize) {
        self.text.drain(..len);
        self.offset += len as u64;
    }
}

/// The two-letter abbreviation of each flag, in the order of the flags' bits.
const LETTERS: [(VmFlags, &str); 29] = [
    (VmFlags::READ, "rd"),
    (VmFlags::WRITE, "wr"),
    (VmFlags::EXEC, "ex"),
    (VmFlags::SHARED, "sh"),
    (VmFlags::MAYREAD, "mr"),
    (VmFlags::MAYWRITE, "mw"),
    (VmFlags::MAYEXEC, "me"),
    (VmFlags::MAYSHARE, "ms"),
    (VmFlags::GROWSDOWN, "gd"),
    (VmFlags::UFFD_MISSING, "um"),
    (VmFlags::PFNMAP, "pf"),
    (VmFlags::UFFD_WP, "uw"),
    (VmFlags::LOCKED, "lo"),
    (VmFlags::IO, "io"),
    (VmFlags::SEQ_READ, "sr"),
    (VmFlags::RAND_READ, "rr"),
    (VmFlags::DONTCOPY, "dc"),
    (VmFlags::DONTEXPAND, "de"),
    (VmFlags::LOCKONFAULT, "lf"),
    (VmFlags::ACCOUNT, "ac"),
    (VmFlags::NORESERVE, "nr"),
    (VmFlags::WIPEONFORK, "wf"),
    (VmFlags::DONTDUMP, "dd"),
    (VmFlags::SOFTDIRTY, "sd"),
    (VmFlags::MIXEDMAP, "mm"),
    (VmFlags::HUGEPAGE, "hg"),
    (VmFlags::NOHUGEPAGE, "nh"),
    (VmFlags::MERGEABLE, "mg"),
    (VmFlags::SEALED, "sl"),
];

/// Page counts of one mapping, by page property.
#[derive(Default)]
struct Counts {
    resident: u64,
    anonymous: u64,
    shared: u64,
    share_of: u64,
    swapped: u64,
    share_of_swapped: u64,
}

fn count(
    r: &vmarea::mm::MmapReadGuard<'_, crate::memory::platform::Machine>,
    vma: &VmaView,
) -> Counts {
    let mut counts = Counts::default();
    r.pages().for_each(vma.range, |_, entry| {
        let users = match entry {
            Pte::Anon { frame, .. } | Pte::Ksm { frame } => {
                counts.anonymous += 1;
                space().frame_mapcount(frame).unwrap_or(1).max(1)
            }
            Pte::File { .. } => 1,
            Pte::Swap { slot } => {
                counts.swapped += 1;
                let users = u64::from(space().swap_map(slot).0 & SwapMap::MAX);
                counts.share_of_swapped += 4096 / users.max(1);
                return ControlFlow::Continue(());
            }
            _ => return ControlFlow::Continue(()),
        };
        counts.resident += 1;
        counts.shared += u64::from(users > 1);
        counts.share_of += 4096 / u64::from(users);
        ControlFlow::Continue(())
    });
    counts
}

/// Appends a line of `smaps`: a name and a number in columns.
///
/// Each mapping has two dozen of them, for which `write!` takes most of the time.
fn push_size(text: &mut String, name: &str, kib: u64) {
    const SPACES: &str = "                       ";
    let digits = kib.checked_ilog10().unwrap_or(0) as usize + 1;
    let spaces = 15usize.saturating_sub(name.len()) + 8usize.saturating_sub(digits);
    text.push_str(name);
    text.push(':');
    text.push_str(&SPACES[..spaces]);
    for digit in (0..digits as u32).rev() {
        text.push(char::from(b'0' + (kib / 10u64.pow(digit) % 10) as u8));
    }
    text.push_str(" kB\n");
}

/// Appends what `smaps` says about a mapping after its line.
fn push_sizes(text: &mut String, vma: &VmaView, counts: &Counts) {
    let locked = vma.body.flags.contains(VmFlags::LOCKED);
    let private = counts.resident - counts.shared;
    let kib = counts.share_of / 1024;
    for (name, kib) in [
        ("Size", vma.range.pages() * 4),
        ("KernelPageSize", 4),
        ("MMUPageSize", 4),
        ("Rss", counts.resident * 4),
        ("Pss", kib),
        ("Pss_Dirty", kib),
        ("Shared_Clean", 0),
        ("Shared_Dirty", counts.shared * 4),
        ("Private_Clean", 0),
        ("Private_Dirty", private * 4),
        ("Referenced", counts.resident * 4),
        ("Anonymous", counts.anonymous * 4),
        ("KSM", 0),
        ("LazyFree", 0),
        ("AnonHugePages", 0),
        ("ShmemPmdMapped", 0),
        ("FilePmdMapped", 0),
        ("Shared_Hugetlb", 0),
        ("Private_Hugetlb", 0),
        ("Swap", counts.swapped * 4),
        ("SwapPss", counts.share_of_swapped / 1024),
        ("Locked", if locked { kib } else { 0 }),
    ] {
        push_size(text, name, kib);
    }
    text.push_str("THPeligible:           0\nVmFlags: ");
    for (flag, letters) in LETTERS {
        if vma.body.flags.contains(flag) {
            text.push_str(letters);
            text.push(' ');
        }
    }
    text.push('\n');
}
