//! Subjects that handle page faults: the core with one kind of VMA lock, or the kernel.

use super::{Beside, FaultError, Place, Work};
use crate::parallel::{Speed, together};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::hint::black_box;
use std::io;
use std::marker::PhantomData;
use std::thread;
use vmarea::fault::{Access, Faulted};
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::{Errno, FrameId, MmId, Platform, WithVmaLock};
use vmarea::vma::lock::VmaLockKind;
use vmarea::{HugePages, Space, System};
use vmarea_linux_sys::perf::{Begin, Event, What};
use vmarea_linux_sys::tracefs;
use vmarea_oracle::own_memory::{Untouched, map_and_unmap};

const PAGE: u64 = 4096;
const BASE: u64 = 0x10_0000_0000;
/// Distance from the end of one thread's pages to the start of the next thread's pages.
///
/// With this distance, threads that advance at the same speed do not contend for a page-table lock.
const APART: u64 = 8 << 21;
/// Address at which the concurrent mapping thread maps memory.
const ELSEWHERE: u64 = 0x20_0000_0000;
const READ_WRITE: Prot = Prot::READ.union(Prot::WRITE);
const PRIVATE_FIXED: MapFlags = MapFlags::PRIVATE
    .union(MapFlags::ANONYMOUS)
    .union(MapFlags::FIXED);

/// Work that a fault does to fill its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Page {
    /// Number of times that a fault fills 4 KiB with zeros.
    ///
    /// Each thread always fills the same 4 KiB of memory, which stays in the processor's cache.
    pub(super) fills: u32,
}

/// A subject that handles page faults.
pub(super) trait Subject {
    fn name(&self) -> &'static str;
    /// Returns the speed, and the number of faults that took `mmap_lock` (`None` if it was not
    /// counted).
    fn run(&self, work: &Work, pages: u64) -> Result<(Speed, Option<u64>), FaultError>;
}

/// Subject that handles page faults in the core.
pub(super) struct Core<K> {
    page: Page,
    kind: PhantomData<fn() -> K>,
}

impl<K> Core<K> {
    pub(super) fn new(page: Page) -> Self {
        Core {
            page,
            kind: PhantomData,
        }
    }
}

thread_local! {
    static ZEROS: RefCell<[u8; PAGE as usize]> = const { RefCell::new([0; PAGE as usize]) };
}

struct Pages(Page);

impl Platform for Pages {
    fn zero(&self, _: FrameId) -> Result<(), Errno> {
        if self.0.fills > 0 {
            ZEROS.with_borrow_mut(|page| {
                (0..self.0.fills).for_each(|_| black_box(&mut *page).fill(0))
            });
        }
        Ok(())
    }
    fn copy(&self, _: FrameId, _: FrameId) -> Result<(), Errno> {
        Ok(())
    }
    fn copy_file(&self, _: FrameId, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }
    fn free(&self, _: FrameId) {}
}

impl<K: VmaLockKind> Core<K> {
    fn space(&self) -> Result<(Space<WithVmaLock<K>>, MmId), Errno> {
        let system = System {
            huge_pages: HugePages::Never,
            ..System::default()
        };
        let platform = Box::new(Pages(self.page));
        let space = Space::<WithVmaLock<K>>::in_environment(Policy::LINUX, system, platform);
        let layout = Layout {
            mmap_base: 0x7f00_0000_0000,
            ..Layout::default()
        };
        let mm = space.mm_create(layout, Limits::default())?;
        Ok((space, mm))
    }
}

fn map<K: VmaLockKind>(
    space: &Space<WithVmaLock<K>>,
    mm: MmId,
    addr: u64,
    pages: u64,
) -> Result<(), Errno> {
    let request = MmapRequest {
        addr,
        len: pages * PAGE,
        prot: READ_WRITE,
        flags: PRIVATE_FIXED,
        ..MmapRequest::default()
    };
    space.mmap(mm, &request)?;
    // The first fault creates the anon_vma, which needs `mmap_lock` with every kind of lock. This
    // fault touches the last page, so that every measured page is new.
    touch(space, mm, addr + (pages - 1) * PAGE)
}

/// Writes once to each page of a new VMA in a single thread, without measuring the time.
///
/// The work is the same as in one round with one thread. An instruction counter that is limited to
/// [`touch_all`] counts only the page faults.
pub(super) fn once<K: VmaLockKind>(pages: u64) -> Result<(), FaultError> {
    let refused = |errno| FaultError::Core(K::NAME, errno);
    let (space, mm) = Core::<K>::new(Page { fills: 0 }).space().map_err(refused)?;
    map(&space, mm, BASE, pages + 1).map_err(refused)?;
    touch_all(&space, mm, pages).map_err(refused)
}

/// Writes once to each page. Not inlined, so that an instruction counter finds it by name.
#[inline(never)]
fn touch_all<K: VmaLockKind>(
    space: &Space<WithVmaLock<K>>,
    mm: MmId,
    pages: u64,
) -> Result<(), Errno> {
    (0..pages).try_for_each(|page| touch(space, mm, BASE + page * PAGE))
}

#[inline]
fn touch<K: VmaLockKind>(space: &Space<WithVmaLock<K>>, mm: MmId, addr: u64) -> Result<(), Errno> {
    match space.fault(mm, addr, Access::Write)? {
        Faulted::Done => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

impl<K: VmaLockKind> Subject for Core<K> {
    fn name(&self) -> &'static str {
        K::NAME
    }

    fn run(&self, work: &Work, pages: u64) -> Result<(Speed, Option<u64>), FaultError> {
        let refused = |errno| FaultError::Core(K::NAME, errno);
        let (space, mm) = self.space().map_err(refused)?;
        let stride = (pages * PAGE).next_multiple_of(32 << 20) + APART;
        let start = |thread: u64| BASE + thread * stride;
        match work.place {
            Place::Own => (0..work.threads).try_for_each(|n| map(&space, mm, start(n), pages + 1)),
            Place::Shared => map(&space, mm, BASE, work.threads * stride / PAGE),
        }
        .map_err(refused)?;
        let before = fell_back(&space, mm);
        let fault = |thread, page| touch(&space, mm, start(thread) + page * PAGE).map_err(refused);
        let beside = |n: u64| {
            let addr = ELSEWHERE + n % 16 * 2 * PAGE;
            let request = MmapRequest {
                addr,
                len: PAGE,
                prot: READ_WRITE,
                flags: PRIVATE_FIXED,
                ..MmapRequest::default()
            };
            space.mmap(mm, &request).map_err(refused)?;
            space.munmap(mm, addr, PAGE).map_err(refused)
        };
        let beside: &(dyn Fn(u64) -> _ + Sync) = &beside;
        let beside = (work.beside == Beside::Mapping).then_some(beside);
        let speed = together((work.threads, pages), &fault, beside)?;
        let took = if K::HAS_READERS {
            fell_back(&space, mm) - before
        } else {
            work.threads * pages
        };
        Ok((speed, Some(took)))
    }
}

fn fell_back<K: VmaLockKind>(space: &Space<WithVmaLock<K>>, mm: MmId) -> u64 {
    space.fault_counts(mm).fell_back().map(|(_, n)| n).sum()
}

/// Subject that causes page faults in threads of this process, on the running kernel.
pub(super) struct Kernel {
    /// Id of the tracepoint for releases of `mmap_lock`, or why the releases cannot be counted.
    released: Result<u64, String>,
}

impl Kernel {
    pub(super) fn new() -> Kernel {
        let id = tracefs::open()
            .and_then(|tracefs| tracefs::event_id(&tracefs, "mmap_lock/mmap_lock_released"));
        let released = id.and_then(|id| counters(id).map(|_| id));
        Kernel {
            released: released.map_err(|error| error.to_string()),
        }
    }

    /// Returns the reason why the uses of `mmap_lock` are not counted; `None` if they are counted.
    pub(super) fn uncounted(&self) -> Option<&str> {
        self.released.as_ref().err().map(String::as_str)
    }
}

/// Opens counters for a tracepoint in the calling thread, one per processor.
fn counters(id: u64) -> io::Result<Vec<Event>> {
    let processors = thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let open = |cpu| Event::open(What::Tracepoint(id), 0, cpu, Begin::Now, 0);
    (0..processors).map(open).collect()
}

impl Subject for Kernel {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn run(&self, work: &Work, pages: u64) -> Result<(Speed, Option<u64>), FaultError> {
        let (vmas, size) = match work.place {
            Place::Own => (work.threads, pages + 1),
            Place::Shared => (1, work.threads * pages + 1),
        };
        let memory = (0..vmas)
            .map(|_| Untouched::new(size as usize))
            .collect::<std::io::Result<Vec<_>>>()?;
        for memory in &memory {
            memory.touch(size as usize - 1);
        }
        let counted = work.beside == Beside::Mapping;
        let released = self.released.as_ref().ok().filter(|_| counted);
        let opened = Mutex::new(Vec::new());
        let touch = |thread: u64, page: u64| {
            if let (Some(id), 0) = (released, page) {
                opened.lock().extend(counters(*id)?);
            }
            match work.place {
                Place::Own => memory[thread as usize].touch(page as usize),
                Place::Shared => memory[0].touch((thread * pages + page) as usize),
            }
            Ok(())
        };
        let beside: &(dyn Fn(u64) -> _ + Sync) = &|_| map_and_unmap().map_err(FaultError::from);
        let beside = (work.beside == Beside::Mapping).then_some(beside);
        let speed = together((work.threads, pages), &touch, beside)?;
        let opened = opened.into_inner();
        let took = opened.iter().map(Event::count).sum::<io::Result<u64>>()?;
        Ok((speed, released.map(|_| took)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that maps memory takes `mmap_lock` at least once for each call.
    #[test]
    fn the_tracepoint_counts_the_uses_of_the_lock() {
        let kernel = Kernel::new();
        let Ok(id) = kernel.released else {
            eprintln!("skipped: {:?}", kernel.uncounted());
            return;
        };
        let count = |calls: u64| {
            thread::spawn(move || {
                let counters = counters(id).unwrap();
                for _ in 0..calls {
                    let untouched = Untouched::new(1).unwrap();
                    drop(untouched);
                }
                counters.iter().map(|one| one.count().unwrap()).sum::<u64>()
            })
            .join()
            .unwrap()
        };
        let (few, many) = (count(10), count(1010));
        assert!(
            many - few >= 3 * 1000,
            "mmap, mprotect, munmap: {few} to {many}"
        );
    }
}
