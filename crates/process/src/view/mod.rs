//! The kernel's own view of an address space, read by a BPF iterator.
//!
//! `/proc/PID/maps` does not say which anon_vma a mapping hangs on, what its page offset is, or
//! where the address space begins to place new mappings. The `task_vma` iterator lets a small
//! program look at each `vm_area_struct`; the program is assembled for the running kernel from
//! its BTF (see `program`), so no compiler and no headers are needed. Deliberately absent: any
//! judgement of what is read, and numbering of the kernel's pointers.
//!
//! # Picture
//! ```text
//! read(2) of the iterator -> mm record, once | VMA record | VMA record | ... (at most 32 KiB a read)
//! ```
//! Between two reads the kernel lets go of `mmap_lock`: above [`VMAS_PER_READ`] VMAs the picture
//! is exact only while no thread of the process runs.
//!
//! # Linux
//! `kernel/bpf/task_iter.c`, 6.1 and later. Before that (5.8 and later, with the list of VMAs) the
//! iterator over tasks serves, for up to [`VMAS_PER_READ`] VMAs, without `mmap_lock`: only for processes
//! that stand still, by their number in the first pid namespace. The iterator is restricted to a thread group, never to
//! a thread: by thread the tail repeats for ever on 6.18. When the group's leader is gone, or a
//! thread has its own file table, the list comes again for other threads; it ends for us where
//! `vm_start` goes backwards.

mod program;

use std::fs::File;
use std::io::{self, Read};

use crate::rights::{self, Capability};
use vmarea_trace::event::MmInfo;

use program::{LISTED, Loaded, MM_WORDS, VMA_WORDS};
use std::sync::{Mutex, PoisonError};
use vmarea_linux_sys::btf::{Btf, BtfError};

/// Where the kernel describes its types.
const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";
/// What the kernel gives by one read of an iterator, at most.
const READ_BYTES: usize = 32 << 10;

/// VMAs that one read gives; more are read in several steps, with `mmap_lock` let go between them.
pub const VMAS_PER_READ: usize = (READ_BYTES - MM_WORDS * 8) / (VMA_WORDS * 8);

/// What an address space looks like from inside of the kernel. Memory is kept between reads, so
/// reuse one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// What stands in the `mm_struct`.
    pub mm: MmFields,
    /// Its VMAs by address.
    pub vmas: Vec<ViewVma>,
    bytes: Vec<u8>,
}

/// Fields of `mm_struct`. `None` where the running kernel has no such member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MmFields {
    /// Address of the `mm_struct` in the kernel; the same number as in
    /// `Sample::LockTaken` of the recorder.
    pub mm: u64,
    /// `mmap_base`, bytes: where top-down placement begins.
    pub mmap_base: Option<u64>,
    /// `start_brk`, bytes.
    pub start_brk: Option<u64>,
    /// `brk`, bytes.
    pub brk: Option<u64>,
    /// `start_data`, bytes.
    pub start_data: Option<u64>,
    /// `end_data`, bytes.
    pub end_data: Option<u64>,
    /// `start_stack`, bytes.
    pub start_stack: Option<u64>,
    /// `def_flags`: flags that each new mapping gets.
    pub def_flags: Option<u64>,
    /// `total_vm`, pages.
    pub total_vm: Option<u64>,
    /// `locked_vm`, pages.
    pub locked_vm: Option<u64>,
    /// `map_count`.
    pub map_count: Option<u64>,
    /// The `MMF_` bits; on 6.18 the first word of a bitmap.
    pub flags: Option<u64>,
    /// `start_code`, bytes.
    pub start_code: Option<u64>,
    /// `end_code`, bytes.
    pub end_code: Option<u64>,
    /// `arg_start`, bytes.
    pub arg_start: Option<u64>,
    /// `arg_end`, bytes.
    pub arg_end: Option<u64>,
    /// `env_start`, bytes.
    pub env_start: Option<u64>,
    /// `env_end`, bytes.
    pub env_end: Option<u64>,
}

impl MmFields {
    /// Fills in what this view knows and leaves the rest as it is.
    pub fn fill(&self, info: &mut MmInfo) {
        let MmFields {
            mm: _,
            mmap_base,
            start_brk,
            brk,
            start_data,
            end_data,
            start_stack,
            def_flags,
            total_vm,
            locked_vm,
            map_count: _,
            flags: _,
            start_code: _,
            end_code: _,
            arg_start: _,
            arg_end: _,
            env_start: _,
            env_end: _,
        } = *self;
        for (to, from) in [
            (&mut info.mmap_base, mmap_base),
            (&mut info.start_brk, start_brk),
            (&mut info.brk, brk),
            (&mut info.start_data, start_data),
            (&mut info.end_data, end_data),
            (&mut info.start_stack, start_stack),
            (&mut info.def_flags, def_flags),
            (&mut info.total_vm, total_vm),
            (&mut info.locked_vm, locked_vm),
        ] {
            *to = from.or(*to);
        }
    }
}

/// Fields of one `vm_area_struct`. Pointers are the kernel's addresses, 0 for none; a `None` means
/// that the running kernel has no such member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ViewVma {
    /// `vm_start`, bytes.
    pub start: u64,
    /// `vm_end`, bytes.
    pub end: u64,
    /// `vm_pgoff`, pages.
    pub pgoff: u64,
    /// `vm_flags`.
    pub flags: u64,
    /// `anon_vma`.
    pub anon_vma: u64,
    /// `anon_vma->root`, 0 where there is no anon_vma.
    pub root: u64,
    /// True where the VMA hangs on one anon_vma only, or on none.
    pub chain_singular: bool,
    /// `anon_vma->num_children` (the anon_vma itself included when it is a root), where there is an
    /// anon_vma.
    pub num_children: Option<u64>,
    /// `anon_vma->num_active_vmas`, where there is an anon_vma.
    pub num_active_vmas: Option<u64>,
    /// `vm_file`.
    pub file: u64,
    /// `vm_policy`; a kernel without NUMA has none.
    pub policy: Option<u64>,
    /// What that policy says: `mode`, `flags`, the first 64 nodes, `home_node`; 0 for what the
    /// running kernel does not have. Policies whose terms differ are different; those whose terms
    /// are equal may still differ in what is not read.
    pub policy_terms: [u64; 4],
    /// `vm_userfaultfd_ctx.ctx`; a kernel without userfaultfd has none.
    pub uffd: Option<u64>,
    /// `vm_ops`.
    pub ops: u64,
}

impl ViewVma {
    /// True where other processes may share its pages since a fork.
    pub fn is_forked(&self) -> bool {
        // A root counts itself among its children.
        let own = u64::from(self.root == self.anon_vma);
        let children = self.num_children.unwrap_or(own).saturating_sub(own);
        self.anon_vma != 0 && (children > 0 || !self.chain_singular)
    }
}

/// Why the kernel's view cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The kernel does not describe its types.
    #[error(
        "no kernel type information at {BTF_PATH}: needs a kernel with CONFIG_DEBUG_INFO_BTF ({0})"
    )]
    NoBtf(#[source] io::Error),
    /// The description cannot be read.
    #[error("{BTF_PATH}: {0}")]
    BadBtf(String),
    /// Not permitted.
    #[error(
        "no permission to look into the kernel: needs CAP_BPF and CAP_PERFMON ({})",
        rights::remedy(&[Capability::Bpf, Capability::Perfmon])
    )]
    Permission,
    /// The kernel lacks something; what it is.
    #[error("the kernel is too old or was built without it: {0} (Linux 5.8 or later is needed)")]
    TooOld(String),
    /// The kernel refused the program.
    #[error("the kernel refused the iterator program: {cause}: {verdict}")]
    Refused {
        /// What `bpf(2)` answered.
        cause: io::Error,
        /// What its verifier said last.
        verdict: String,
    },
    /// No such process, or one without an address space (a zombie, a kernel thread).
    #[error("process {0} has no address space (it has ended, or is a kernel thread)")]
    NoAddressSpace(i32),
    /// A read failed.
    #[error("reading the address space of process {pid}: {cause}")]
    Read {
        /// Whose.
        pid: i32,
        /// Why.
        cause: io::Error,
    },
    /// More VMAs than a program for an old kernel can write.
    #[error(
        "process {0} has more than {LISTED} VMAs: too many for the program for kernels before 6.1"
    )]
    TooMany(i32),
    /// The records do not look as the program writes them.
    #[error("the kernel's records about process {0} are cut off")]
    Malformed(i32),
}

impl From<BtfError> for ViewError {
    fn from(error: BtfError) -> ViewError {
        ViewError::BadBtf(error.to_string())
    }
}

/// The loaded iterator program. Loading takes some milliseconds; a read some microseconds and
/// about 0.3 µs for each VMA.
#[derive(Debug)]
pub struct KernelView {
    loaded: Loaded,
    /// Held for a read where the program is told by a number of its own whose VMAs are wanted.
    one_at_a_time: Mutex<()>,
}

impl KernelView {
    /// Assembles the program for the running kernel, loads it, and tries it on this process.
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

    /// Reads the address space of thread group `tgid` (in this process's pid namespace) into
    /// `out`, whose earlier content is dropped.
    ///
    /// # Errors
    /// [`ViewError::NoAddressSpace`], [`ViewError::Read`], [`ViewError::Malformed`]. `out` is then
    /// empty or incomplete.
    pub fn read(&self, tgid: i32, out: &mut View) -> Result<(), ViewError> {
        out.mm = MmFields::default();
        out.vmas.clear();
        let id = u32::try_from(tgid)
            .ok()
            .filter(|&id| id != 0)
            .ok_or(ViewError::NoAddressSpace(tgid))?;
        let failed = |cause: io::Error| match cause.raw_os_error() {
            Some(libc::ESRCH) => ViewError::NoAddressSpace(tgid),
            _ => ViewError::Read { pid: tgid, cause },
        };
        let _alone = self
            .one_at_a_time
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Loaded {
            program, missing, ..
        } = &self.loaded;
        let iterator = match &self.loaded.wanted {
            None => program.iterate(id),
            Some(number) => number.set(id.into()).and_then(|()| program.iterate_all()),
        };
        let mut iterator = File::from(iterator.map_err(failed)?);
        out.bytes.resize(READ_BYTES, 0);
        let mut have_mm = false;
        // Bytes of an unfinished record at the beginning of the buffer; with larger pages a read
        // may end inside of one.
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
                    program::take_words::<MM_WORDS>(records).ok_or(ViewError::Malformed(tgid))?;
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
            return Err(ViewError::Malformed(tgid));
        }
        if out.vmas.is_empty() {
            return Err(ViewError::NoAddressSpace(tgid));
        }
        if self.loaded.wanted.is_some() && out.vmas.len() >= LISTED {
            return Err(ViewError::TooMany(tgid));
        }
        Ok(())
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

    /// The view, or a word about why the test cannot run here.
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
            // Three VMAs from one mapping, all on one anon_vma; and one that nobody touched.
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
    fn no_such_process_is_an_error() {
        let Some(kernel) = open() else { return };
        let mut view = View::default();
        for pid in [i32::MAX, 0, -1, 2] {
            let error = kernel.read(pid, &mut view).unwrap_err();
            assert!(
                matches!(error, ViewError::NoAddressSpace(p) if p == pid),
                "{pid}: {error}"
            );
        }
    }
}
