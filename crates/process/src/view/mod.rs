//! The kernel view of an address space: kernel structs, read by a BPF iterator.
//!
//! `/proc/PID/maps` shows neither the anon_vma and page offset of a mapping nor the address from
//! which the kernel places new mappings. The `task_vma` iterator runs a small program on each
//! `vm_area_struct`. The program is assembled for the running kernel from the kernel's BTF (see
//! `program`), so neither a compiler nor headers are needed. This module returns raw data: it does
//! not interpret the fields or replace kernel pointers.
//!
//! # Picture
//! ```text
//! read(2) of the iterator -> mm record, once | VMA record | VMA record | ... (<= 32 KiB per read)
//! ```
//! Between two reads the kernel releases `mmap_lock`: with more than [`VMAS_PER_READ`] VMAs the
//! view is exact only if no thread of the process runs.
//!
//! # Linux
//! `kernel/bpf/task_iter.c`, 6.1 and later. On older kernels (5.8 and later, with a linked list of
//! VMAs) the task iterator is used instead. The task iterator reads up to [`VMAS_PER_READ`] VMAs
//! without `mmap_lock`, so the process must be stopped. It identifies the process by the ID in the
//! first pid namespace.
//!
//! The `task_vma` iterator is restricted to a thread group, never to a thread: with a thread ID,
//! the iterator repeats the end of the list endlessly on 6.18. If the group leader has exited or a
//! thread has a separate file table, the iterator repeats the list for other threads; therefore the
//! reader stops if `vm_start` does not increase.

mod mm_fields;
mod program;

pub use mm_fields::MmFields;

use std::fs::File;
use std::io::{self, Read};

use crate::rights::{self, Capability};

use program::{LISTED, Loaded, MM_WORDS, VMA_WORDS};
use std::sync::{Mutex, PoisonError};
use vmarea_linux_sys::bpf::Tasks;
use vmarea_linux_sys::btf::{Btf, BtfError};

/// File that contains the kernel's type information (BTF).
const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";
/// Maximum number of bytes that the kernel returns per read from an iterator.
const READ_BYTES: usize = 32 << 10;

/// Number of VMAs per read; the kernel releases `mmap_lock` between the reads of a longer list.
pub const VMAS_PER_READ: usize = (READ_BYTES - MM_WORDS * 8) / (VMA_WORDS * 8);

/// The kernel view of an address space. Callers should reuse a `View`, because it reuses its
/// buffers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// Fields of the address space's `mm_struct`.
    pub mm: MmFields,
    /// VMAs by address.
    pub vmas: Vec<ViewVma>,
    bytes: Vec<u8>,
}

/// Fields of one `vm_area_struct`.
///
/// Pointers are kernel addresses, with 0 for null; `None` means that the running kernel lacks the
/// member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ViewVma {
    /// `vm_start`, in bytes.
    pub start: u64,
    /// `vm_end`, in bytes.
    pub end: u64,
    /// `vm_pgoff`, in pages.
    pub pgoff: u64,
    /// Page offset of the first anonymous page (`vma_start_anon_pgoff`), in pages; `None` on a kernel
    /// before 7.3, on which it is `pgoff`.
    pub anon_pgoff: Option<u64>,
    /// `vm_flags`.
    pub flags: u64,
    /// `anon_vma`.
    pub anon_vma: u64,
    /// `anon_vma->root`; 0 if the VMA has no anon_vma.
    pub root: u64,
    /// True if the VMA's chain has at most one anon_vma.
    pub chain_singular: bool,
    /// `anon_vma->num_children`, if the VMA has an anon_vma. A root anon_vma counts itself as a
    /// child.
    pub num_children: Option<u64>,
    /// `anon_vma->num_active_vmas`, if the VMA has an anon_vma.
    pub num_active_vmas: Option<u64>,
    /// `vm_file`.
    pub file: u64,
    /// `vm_policy`; `None` on a kernel without NUMA.
    pub policy: Option<u64>,
    /// Members of the memory policy: `mode`, `flags`, the first 64 nodes, and `home_node`.
    ///
    /// A member is 0 if the running kernel lacks it. If any member differs, the policies are
    /// different; if all members are equal, the policies may still differ in parts that are not
    /// read.
    pub policy_terms: [u64; 4],
    /// `vm_userfaultfd_ctx.ctx`; `None` on a kernel without userfaultfd.
    pub uffd: Option<u64>,
    /// `vm_ops`.
    pub ops: u64,
}

impl ViewVma {
    /// Returns true if other processes may share pages of the VMA because of a fork.
    pub fn is_forked(&self) -> bool {
        // A root counts itself among its children.
        let own = u64::from(self.root == self.anon_vma);
        let children = self.num_children.unwrap_or(own).saturating_sub(own);
        self.anon_vma != 0 && (children > 0 || !self.chain_singular)
    }
}

/// Reason why the kernel's data about address spaces is not available.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The kernel has no type information.
    #[error(
        "no kernel type information at {BTF_PATH}: needs a kernel with CONFIG_DEBUG_INFO_BTF ({0})"
    )]
    NoBtf(#[source] io::Error),
    /// The type information cannot be read.
    #[error("{BTF_PATH}: {0}")]
    BadBtf(String),
    /// Insufficient privilege.
    #[error(
        "reading the kernel's own data needs CAP_BPF and CAP_PERFMON ({})",
        rights::remedy(&[Capability::Bpf, Capability::Perfmon])
    )]
    Permission,
    /// The kernel lacks the named feature.
    #[error(
        "the kernel is too old, or built without a feature that is needed: {0} (needs Linux 5.8 or later)"
    )]
    TooOld(String),
    /// The kernel rejected the program.
    #[error("the kernel refused the iterator program: {cause}: {verdict}")]
    Refused {
        /// Error returned by `bpf(2)`.
        cause: io::Error,
        /// Last message of the BPF verifier.
        verdict: String,
    },
    /// The process does not exist or has no address space (a zombie, a kernel thread).
    #[error("process {0} has no address space (it has ended, or is a kernel thread)")]
    NoAddressSpace(i32),
    /// A read failed.
    #[error("cannot read the address space of process {pid}: {cause}")]
    Read {
        /// ID of the process.
        pid: i32,
        /// Underlying error.
        cause: io::Error,
    },
    /// The process has more VMAs than the program for kernels before 6.1 can return.
    #[error("process {0} has more than {LISTED} VMAs: too many to list before Linux 6.1")]
    TooMany(i32),
    /// The records do not have the format that the program writes.
    #[error("the kernel's list of the VMAs of process {0} is incomplete")]
    Malformed(i32),
}

impl From<BtfError> for ViewError {
    fn from(error: BtfError) -> ViewError {
        ViewError::BadBtf(error.to_string())
    }
}

/// The iterator program, loaded into the kernel.
///
/// Loading takes a few milliseconds. A read takes a few microseconds, plus about 0.3 µs per VMA.
#[derive(Debug)]
pub struct KernelView {
    loaded: Loaded,
    /// Serializes reads, because before Linux 6.1, one shared word selects the process to read.
    one_at_a_time: Mutex<()>,
}

impl KernelView {
    /// Assembles the program for the running kernel, loads it, and tests it on this process.
    ///
    /// # Errors
    /// [`ViewError::NoBtf`], [`ViewError::Permission`], [`ViewError::TooOld`] and
    /// [`ViewError::Refused`], each naming what is missing.
    pub fn open() -> Result<KernelView, ViewError> {
        let bytes = std::fs::read(BTF_PATH).map_err(ViewError::NoBtf)?;
        let btf = Btf::parse(bytes)?;
        let view = KernelView {
            loaded: program::load(&btf)?,
            one_at_a_time: Mutex::new(()),
        };
        let own = std::process::id() as i32;
        let mut first = View::default();
        view.read(own, &mut first).map_err(|error| match error {
            ViewError::Read { cause, .. } if cause.raw_os_error() == Some(libc::EINVAL) => {
                ViewError::TooOld("iterators restricted to one process".to_owned())
            }
            error => error,
        })?;
        Ok(view)
    }

    /// Reads the address space of thread group `tgid` into `out`, whose previous content is
    /// discarded.
    ///
    /// `tgid` is an ID in this process's pid namespace.
    ///
    /// # Errors
    /// [`ViewError::NoAddressSpace`], [`ViewError::Read`], [`ViewError::TooMany`],
    /// [`ViewError::Malformed`]. `out` is then empty or incomplete.
    pub fn read(&self, tgid: i32, out: &mut View) -> Result<(), ViewError> {
        self.read_tasks(tgid, Tasks::Process, out)
    }

    /// Reads the address space that thread `tid` uses into `out`, as [`read`](KernelView::read)
    /// does.
    ///
    /// While the leader of its process exits, only this finds the address space at all times.
    ///
    /// # Errors
    /// The errors of [`read`](KernelView::read).
    pub fn read_thread(&self, tid: i32, out: &mut View) -> Result<(), ViewError> {
        self.read_tasks(tid, Tasks::Thread, out)
    }

    fn read_tasks(
        &self,
        number: i32,
        tasks: impl Fn(u32) -> Tasks,
        out: &mut View,
    ) -> Result<(), ViewError> {
        out.mm = MmFields::default();
        out.vmas.clear();
        let id = u32::try_from(number)
            .ok()
            .filter(|&id| id != 0)
            .ok_or(ViewError::NoAddressSpace(number))?;
        let failed = |cause: io::Error| match cause.raw_os_error() {
            Some(libc::ESRCH) => ViewError::NoAddressSpace(number),
            _ => ViewError::Read { pid: number, cause },
        };
        let _alone = self
            .one_at_a_time
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let missing = &self.loaded.missing;
        let mut iterator = self.iterator(tasks(id)).map_err(failed)?;
        out.bytes.resize(READ_BYTES, 0);
        let mut have_mm = false;
        // Length of an unfinished record at the beginning of the buffer: with larger pages, a read
        // may end inside a record.
        let mut kept = 0;
        loop {
            let len = match iterator.read(&mut out.bytes[kept..]) {
                Ok(0) => break,
                Ok(len) => kept + len,
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => continue,
                Err(e) => return Err(failed(e)),
            };
            let mut records = &out.bytes[..len];
            if !have_mm {
                let (mm, rest) =
                    program::take_words::<MM_WORDS>(records).ok_or(ViewError::Malformed(number))?;
                out.mm = missing.mm_fields(mm);
                have_mm = true;
                records = rest;
            }
            while let Some((words, rest)) = program::take_words::<VMA_WORDS>(records) {
                let vma = missing.vma(words);
                if out.vmas.last().is_some_and(|last| vma.start <= last.start) {
                    return Ok(());
                }
                out.vmas.push(vma);
                records = rest;
            }
            let rest = len - records.len()..len;
            kept = rest.len();
            out.bytes.copy_within(rest, 0);
        }
        if kept != 0 {
            return Err(ViewError::Malformed(number));
        }
        if out.vmas.is_empty() {
            return Err(ViewError::NoAddressSpace(number));
        }
        if self.loaded.wanted.is_some() && out.vmas.len() >= LISTED {
            return Err(ViewError::TooMany(number));
        }
        Ok(())
    }

    /// Opens an iterator for a thread or a process.
    fn iterator(&self, tasks: Tasks) -> io::Result<File> {
        let Loaded {
            program, wanted, ..
        } = &self.loaded;
        let iterator = match wanted {
            None => program.iterate(tasks),
            Some(number) => {
                let (Tasks::Thread(id) | Tasks::Process(id)) = tasks;
                number.set(id.into()).and_then(|()| program.iterate_all())
            }
        };
        iterator.map(File::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;
    use vmarea_linux_sys::child::{Child, Inside};
    use vmarea_linux_sys::inject;

    /// Opens the kernel view, or prints why the test cannot run here.
    fn open() -> Option<KernelView> {
        match KernelView::open() {
            Ok(view) => Some(view),
            Err(error @ (ViewError::Permission | ViewError::NoBtf(_) | ViewError::TooOld(_))) => {
                eprintln!("skipped: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn at(view: &View, addr: u64) -> ViewVma {
        *view
            .vmas
            .iter()
            .find(|vma| vma.start <= addr && addr < vma.end)
            .unwrap_or_else(|| panic!("nothing at {addr:#x}"))
    }

    #[test]
    fn signals_do_not_keep_the_program_from_being_loaded() {
        if open().is_none() {
            return;
        }
        let flag = Arc::default();
        signal_hook::flag::register(libc::SIGURG, flag).unwrap();
        let done = AtomicBool::new(false);
        let (pid, tid) = (
            std::process::id() as i32,
            vmarea_linux_sys::own_process::thread_id(),
        );
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    inject::signal_thread(pid, tid, libc::SIGURG).unwrap();
                    std::thread::sleep(Duration::from_micros(20));
                }
            });
            let opened: Vec<_> = (0..30).map(|_| KernelView::open()).collect();
            done.store(true, Ordering::SeqCst);
            assert!(opened.iter().all(Result::is_ok), "{opened:?}");
        });
    }

    #[test]
    fn anon_vma_and_pgoff_of_a_split_mapping_and_of_its_fork() {
        let Some(kernel) = open() else { return };
        let page = rustix::param::page_size() as u64;
        let mut child = Child::start(|inside: &mut Inside| {
            // Three VMAs of one mapping, all with the same anon_vma; and one VMA that was never
            // accessed.
            let idle = inside.map(1);
            inside.protect(idle, 1);
            let base = inside.map(9);
            inside.write(base);
            inside.protect(base + 3 * page, 3);
            inside.say(base);
            inside.say(idle);
            inside.wait();
            inside.fork(|inside| {
                inside.write(base);
                inside.say(std::process::id().into());
                inside.wait();
            });
        });
        let (base, idle) = (child.hear(), child.hear());
        let mut parent = View::default();
        kernel.read(child.pid(), &mut parent).unwrap();
        let parts = [0, 3, 6].map(|n| at(&parent, base + n * page));
        for (n, part) in parts.iter().enumerate() {
            assert_eq!(
                (part.start, part.end),
                (base + n as u64 * 3 * page, base + (n as u64 + 1) * 3 * page)
            );
            assert_ne!(part.anon_vma, 0);
            assert_eq!(part.anon_vma, parts[0].anon_vma);
            assert_eq!(part.root, part.anon_vma);
            assert_eq!(part.pgoff, part.start / page);
            assert!(part.chain_singular);
            assert_eq!((part.file, part.ops), (0, 0));
        }
        assert_eq!(at(&parent, idle).anon_vma, 0);
        assert_eq!(at(&parent, idle).root, 0);
        assert_ne!(parent.mm.mm, 0);
        assert_eq!(parent.mm.map_count, Some(parent.vmas.len() as u64));

        child.go_on();
        let grandchild = child.hear() as i32;
        let mut fork = View::default();
        kernel.read(grandchild, &mut fork).unwrap();
        let copy = at(&fork, base);
        assert_ne!(copy.anon_vma, 0);
        assert_ne!(copy.anon_vma, parts[0].anon_vma);
        assert_eq!(copy.root, parts[0].root);
        assert!(!copy.chain_singular);
        assert_ne!(fork.mm.mm, parent.mm.mm);
        assert_eq!(fork.mm.mmap_base, parent.mm.mmap_base);
        child.go_on();
    }

    #[test]
    fn many_vmas_come_whole_and_in_order() {
        let Some(kernel) = open() else { return };
        const PIECES: u64 = 3 * VMAS_PER_READ as u64;
        let page = rustix::param::page_size() as u64;
        let mut child = Child::start(|inside: &mut Inside| {
            let base = inside.map(2 * PIECES as usize);
            for n in 0..PIECES {
                inside.protect(base + 2 * n * page, 1);
            }
            inside.say(base);
            inside.wait();
        });
        let base = child.hear();
        let mut view = View::default();
        kernel.read(child.pid(), &mut view).unwrap();
        let inside: Vec<_> = view
            .vmas
            .iter()
            .filter(|vma| vma.start >= base && vma.end <= base + 2 * PIECES * page)
            .collect();
        assert!(inside.len() as u64 >= 2 * PIECES - 1);
        assert!(inside.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!(view.mm.map_count, Some(view.vmas.len() as u64));
        child.go_on();
    }

    #[test]
    fn a_thread_has_the_address_space_of_its_process() {
        let Some(kernel) = open() else { return };
        let own = std::process::id() as i32;
        let mm_of = |read: &dyn Fn(&mut View) -> Result<(), ViewError>| {
            let mut view = View::default();
            read(&mut view).unwrap();
            (view.mm.mm, view.vmas.is_empty())
        };
        let of_process = mm_of(&|view| kernel.read(own, view));
        let thread = || {
            let tid = vmarea_linux_sys::own_process::thread_id();
            assert_ne!(tid, own);
            mm_of(&|view| kernel.read_thread(tid, view))
        };
        let of_thread = std::thread::scope(|scope| scope.spawn(thread).join().unwrap());
        assert_ne!(of_thread.0, 0);
        assert_eq!(of_thread, of_process);
        assert!(!of_thread.1);
    }

    #[test]
    fn no_such_process_is_an_error() {
        let Some(kernel) = open() else { return };
        let mut view = View::default();
        for pid in [i32::MAX, 0, -1, 2] {
            let read = kernel.read(pid, &mut view);
            for error in [read, kernel.read_thread(pid, &mut view)].map(Result::unwrap_err) {
                assert!(
                    matches!(error, ViewError::NoAddressSpace(p) if p == pid),
                    "{pid}: {error}"
                );
            }
        }
    }
}
