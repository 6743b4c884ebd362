//! `/proc`: information about the processes and about the kernel.
//!
//! A file's text is generated when the file is opened, and again whenever the file is read from its
//! start. `maps`, `smaps`, `pagemap` and `mem` are read part by part from the address space that the
//! process had when the file was opened.

pub mod check;
mod maps;

use crate::cpu::clock;
use crate::failure::Failure;
use crate::files::open::Generated;
use crate::files::{Inode, OpenFile};
use crate::memory::{frame_numbers, frames, heap, mmu, swap};
use crate::process::{self, Process};
use crate::space::mm::Usage;
use crate::space::{Mm, background, shrinker, space};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::errno::{EACCES, EINVAL, EIO, ENOENT, ESRCH};
use maps::{Detail, Listing};
use spin::Mutex;
use vmarea::page::Pte;

/// A file of `/proc`.
#[derive(Debug)]
pub enum ProcFile {
    /// Text about a process or the machine.
    Report(Report),
    /// A file that triggers a kernel action when it is written to.
    Control(Control),
    /// `maps` or `smaps`.
    Listing(Listing),
    /// `pagemap`.
    PageMap(Arc<Mm>),
    /// `mem`.
    Memory(Arc<Mm>),
}

/// A kernel action that a program can trigger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// Moves every anonymous page to another frame.
    Compact,
    /// Gives back memory that the kernel keeps for later.
    DropCaches,
    /// Merges equal pages.
    Ksm,
    /// A one-letter command: `c` causes a panic.
    SysRq,
}

impl Control {
    fn at(path: &str) -> Option<Control> {
        Some(match path {
            "/proc/sys/vm/compact_memory" => Control::Compact,
            "/proc/sys/vm/drop_caches" => Control::DropCaches,
            "/sys/kernel/mm/ksm/run" => Control::Ksm,
            "/proc/sysrq-trigger" => Control::SysRq,
            _ => return None,
        })
    }

    fn write(self, bytes: &[u8]) {
        match (self, bytes.first()) {
            (Control::Compact, Some(b'1')) => drop(background::migrate_all()),
            (Control::DropCaches, Some(b'2' | b'3')) => shrinker::drop_caches(),
            (Control::Ksm, Some(b'1')) => drop(background::merge_equal()),
            (Control::SysRq, Some(b'c')) => panic!("a program asked for a panic"),
            _ => {}
        }
    }
}

/// Text that is generated again whenever it is read from its start.
#[derive(Debug)]
pub struct Report {
    /// The process that the text describes; `None` for the machine.
    pid: Option<u32>,
    /// Path relative to `/proc`, or to the directory of the process.
    name: String,
    text: Mutex<Vec<u8>>,
}

impl Report {
    fn open(pid: Option<u32>, name: &str) -> Result<Report, Failure> {
        Ok(Report {
            pid,
            name: name.into(),
            text: Mutex::new(text_of(pid, name)?),
        })
    }

    /// Writes to the file: only `oom_score_adj` can be changed.
    fn write(&self, from: &[u8]) -> Result<usize, Failure> {
        let process = self.pid.and_then(process::find);
        let Some(process) = process.filter(|_| self.name == "oom_score_adj") else {
            return Err(EACCES.into());
        };
        let value = core::str::from_utf8(from).ok();
        let value = value.and_then(|text| text.trim().parse::<i32>().ok());
        let value = value.filter(|value| (-1000..=1000).contains(value));
        process.inherited.lock().oom_score_adj = value.ok_or(EINVAL)?;
        Ok(from.len())
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> Result<usize, Failure> {
        if offset == 0 {
            *self.text.lock() = text_of(self.pid, &self.name)?;
        }
        let text = self.text.lock();
        let rest = text.get(offset as usize..).unwrap_or(&[]);
        let len = rest.len().min(to.len());
        to[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

/// Object that a path in `/proc` names.
#[derive(Debug)]
pub enum Found {
    /// A file.
    File(ProcFile),
    /// A directory, with its path after all links have been resolved.
    Directory(String),
    /// A symbolic link with this target.
    Link(String),
    /// An open file, found under its name in `/proc/PID/fd`.
    Descriptor(Arc<OpenFile>),
}

/// Returns the object at a path without symbolic links, or `None` if the path is not in `/proc`.
pub fn find(path: &str) -> Option<Result<Found, Failure>> {
    if let Some(control) = Control::at(path) {
        return Some(Ok(Found::File(ProcFile::Control(control))));
    }
    let path = path.strip_prefix("/proc/")?;
    let pid = process::current().pid;
    match path {
        "self" => return Some(Ok(Found::Link(pid.to_string()))),
        "thread-self" => {
            let tid = process::current_thread().tid;
            return Some(Ok(Found::Link(format!("{pid}/task/{tid}"))));
        }
        _ => {}
    }
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let process = match first {
        "self" | "thread-self" => Some(process::current()),
        number => number.parse().ok().and_then(process::find),
    };
    Some(match process {
        Some(process) => of_process(&process, rest),
        None => Report::open(None, path).map(|report| Found::File(ProcFile::Report(report))),
    })
}

fn of_process(process: &Arc<Process>, name: &str) -> Result<Found, Failure> {
    if let Some(number) = name.strip_prefix("fd/") {
        let file = descriptor(number).and_then(|number| process.files.get(number).ok());
        return file.map(Found::Descriptor).ok_or(ENOENT.into());
    }
    // The files of a thread are those of its process.
    let name = match name.strip_prefix("task/") {
        Some(rest) => rest.split_once('/').map_or("", |(_, name)| name),
        None => name,
    };
    let mm = || process.mm().ok_or(Failure::from(ESRCH));
    Ok(match name {
        "maps" => Found::File(ProcFile::Listing(Listing::new(mm()?, Detail::Line))),
        "smaps" => Found::File(ProcFile::Listing(Listing::new(mm()?, Detail::Sizes))),
        "pagemap" => Found::File(ProcFile::PageMap(mm()?)),
        "mem" => Found::File(ProcFile::Memory(mm()?)),
        "exe" => Found::Link(process.inherited.lock().program.clone()),
        "cwd" => Found::Link(process.inherited.lock().directory.clone()),
        "root" => Found::Link("/".into()),
        "fd" | "task" => Found::Directory(format!("/proc/{}/{name}", process.pid)),
        _ => Found::File(ProcFile::Report(Report::open(Some(process.pid), name)?)),
    })
}

/// Parses a name in `/proc/PID/fd` as a descriptor; rejects a sign and leading zeros.
fn descriptor(name: &str) -> Option<u32> {
    let number = name.parse::<u32>().ok()?;
    (number.to_string() == name).then_some(number)
}

fn text_of(pid: Option<u32>, name: &str) -> Result<Vec<u8>, Failure> {
    let text = match pid {
        None => of_machine(name)?,
        Some(pid) => {
            let process = process::find(pid).ok_or(ESRCH)?;
            text_of_process(&process, name)?
        }
    };
    Ok(text.into_bytes())
}

fn text_of_process(process: &Process, name: &str) -> Result<String, Failure> {
    let mm = || process.mm().ok_or(Failure::from(ESRCH));
    Ok(match name {
        "status" => status(process),
        "stat" => stat(process),
        "statm" => statm(process),
        "comm" => format!("{}\n", process.name()),
        "cmdline" => arguments(&*mm()?)?,
        "oom_score_adj" => format!("{}\n", process.inherited.lock().oom_score_adj),
        "wchan" => "0".into(),
        _ => return Err(ENOENT.into()),
    })
}

fn of_machine(path: &str) -> Result<String, Failure> {
    let system = space().system();
    let kib = |frames: usize| frames * 4;
    Ok(match path {
        "meminfo" => format!(
            "MemTotal:       {:8} kB\nMemFree:        {:8} kB\nMemAvailable:   {:8} kB\n\
             SwapTotal:      {:8} kB\nSwapFree:       {:8} kB\nSlab:           {:8} kB\n",
            kib(frames::total_frames()),
            kib(frames::free_frames()),
            kib(frames::free_frames()),
            kib(swap::slots()),
            kib(swap::slots() - space().swap_slots_in_use()),
            heap::bytes_in_use() >> 10,
        ),
        "vmstat" => {
            let (reads, writes) = swap::traffic();
            let (pages, whole) = mmu::local_flushes();
            format!(
                "pswpin {reads}\npswpout {writes}\n\
                 nr_tlb_local_flush_all {whole}\nnr_tlb_local_flush_one {pages}\n"
            )
        }
        "uptime" => {
            let hundredths = clock::now() / 10_000_000;
            format!("{}.{:02} 0.00\n", hundredths / 100, hundredths % 100)
        }
        "version" => "Linux version 6.12.0-vmarea\n".into(),
        "mounts" => "rootfs / rootfs rw 0 0\nproc /proc proc rw 0 0\n".into(),
        "filesystems" => "nodev\ttmpfs\nnodev\tproc\n".into(),
        "vmarea/check" => check::report(),
        "sys/vm/max_map_count" => format!("{}\n", system.max_map_count),
        "sys/vm/mmap_min_addr" => format!("{}\n", system.mmap_min_addr),
        "sys/vm/overcommit_memory" | "sys/kernel/randomize_va_space" => "0\n".into(),
        _ => return Err(ENOENT.into()),
    })
}

/// Returns the process's arguments, each followed by a zero byte.
fn arguments(mm: &Mm) -> Result<String, Failure> {
    let r = space().mmap_read_lock(mm.id()).ok_or(ESRCH)?;
    let [start, end] = r.state().layout.args;
    drop(r);
    let mut bytes = alloc::vec![0; (end - start).min(1 << 17) as usize];
    mm.read(start, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the memory statistics that `status` and `statm` show.
fn sizes(process: &Process) -> Option<(vmarea::mm::MmState, Usage)> {
    let mm = process.mm()?;
    let usage = mm.usage();
    let r = space().mmap_read_lock(mm.id())?;
    Some((r.state().clone(), usage))
}

fn status(process: &Process) -> String {
    let inherited = process.inherited.lock().clone();
    let threads = process.threads();
    let mut text = format!(
        "Name:\t{}\nUmask:\t{:04o}\nState:\t{}\nTgid:\t{pid}\nNgid:\t0\nPid:\t{pid}\nPPid:\t{}\n\
         TracerPid:\t0\nUid:\t{u}\t{u}\t{u}\t{u}\nGid:\t{g}\t{g}\t{g}\t{g}\n",
        inherited.name,
        inherited.umask,
        if threads.is_empty() {
            "Z (zombie)"
        } else {
            "R (running)"
        },
        process.parent_number(),
        pid = process.pid,
        u = inherited.user[0],
        g = inherited.user[1],
    );
    if let Some((state, usage)) = sizes(process) {
        let all = usage.resident();
        let lines = [
            ("VmPeak", state.total_vm),
            ("VmSize", state.total_vm),
            ("VmLck", state.locked_vm),
            ("VmPin", 0),
            ("VmHWM", all),
            ("VmRSS", all),
            ("RssAnon", usage.anonymous),
            ("RssFile", 0),
            ("RssShmem", usage.shmem),
            ("VmData", state.data_vm),
            ("VmStk", state.stack_vm),
            ("VmExe", state.exec_vm),
            ("VmPTE", usage.tables),
            ("VmSwap", usage.swapped),
        ];
        for (name, pages) in lines {
            text += &format!("{name}:\t{:8} kB\n", pages * 4);
        }
    }
    let (pending, blocked) = threads.first().map_or((0, 0), |thread| {
        (thread.pending_signals(), thread.signals.lock().mask)
    });
    text + &format!(
        "Threads:\t{}\nSigPnd:\t{pending:016x}\nSigBlk:\t{blocked:016x}\n",
        threads.len()
    )
}

fn stat(process: &Process) -> String {
    let inherited = process.inherited.lock().clone();
    let state = if process.zombie_status().is_some() {
        'Z'
    } else {
        'R'
    };
    let zeros = "0 ".repeat(43);
    format!(
        "{} ({}) {state} {} {} {} 0 {zeros}0\n",
        process.pid,
        inherited.name,
        process.parent_number(),
        inherited.group,
        inherited.session,
    )
}

fn statm(process: &Process) -> String {
    let Some((state, usage)) = sizes(process) else {
        return "0 0 0 0 0 0 0\n".to_string();
    };
    format!(
        "{} {} {} {} 0 {} 0\n",
        state.total_vm,
        usage.resident(),
        usage.shmem,
        state.exec_vm,
        state.data_vm + state.stack_vm,
    )
}

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;
const SOFT_DIRTY: u64 = 1 << 55;

/// Returns the word that `pagemap` contains for a page.
fn page_word(mm: &Mm, addr: u64) -> u64 {
    let word = mm.with_entry(addr, |vma, entry| {
        let frame = |address: u64| address >> 12;
        match entry {
            Pte::Zero => PRESENT | OF_FILE | frame(frame_numbers::zero_page()),
            Pte::Anon { frame: id, .. } => {
                let alone = space().frame_mapcount(id) == Some(1);
                let exclusive = if alone { EXCLUSIVE } else { 0 };
                PRESENT | exclusive | SOFT_DIRTY | frame(frame_numbers::physical_address(id))
            }
            Pte::Ksm { frame: id } => PRESENT | frame(frame_numbers::physical_address(id)),
            Pte::File { .. } => {
                let to = crate::space::mm::address_of_page(vma, addr, entry);
                PRESENT | OF_FILE | SOFT_DIRTY | frame(to)
            }
            // Device 0, and the slot; in Linux, slot 0 is the header of the device.
            Pte::Swap { slot } => SWAPPED | SOFT_DIRTY | (u64::from(slot.number()) + 1) << 5,
            Pte::None | Pte::Guard | Pte::Migration { .. } => 0,
        }
    });
    word.unwrap_or(0)
}

impl Generated for ProcFile {
    /// Reads bytes at an offset; returns the number of bytes read.
    ///
    /// # Errors
    /// EIO for memory that is not mapped; EINVAL for a file that cannot be read, and if a read of
    /// `pagemap` does not consist of whole words.
    fn read(&self, offset: u64, to: &mut [u8]) -> Result<usize, Failure> {
        match self {
            ProcFile::Report(report) => report.read(offset, to),
            ProcFile::Control(_) => Err(EINVAL.into()),
            ProcFile::Listing(listing) => Ok(listing.read(offset, to)),
            ProcFile::PageMap(mm) => {
                if !offset.is_multiple_of(8) || !to.len().is_multiple_of(8) {
                    return Err(EINVAL.into());
                }
                for (at, word) in to.chunks_exact_mut(8).enumerate() {
                    let addr = (offset / 8).wrapping_add(at as u64).wrapping_mul(4096);
                    word.copy_from_slice(&page_word(mm, addr).to_ne_bytes());
                }
                Ok(to.len())
            }
            ProcFile::Memory(mm) => {
                mm.read(offset, to).map_err(|_| EIO)?;
                Ok(to.len())
            }
        }
    }

    /// Writes bytes at an offset; returns the number of bytes written.
    ///
    /// # Errors
    /// EACCES for most files; EINVAL for a value out of range; EIO for memory that cannot be written.
    fn write(&self, offset: u64, from: &[u8]) -> Result<usize, Failure> {
        match self {
            ProcFile::Memory(mm) => {
                mm.write(offset, from).map_err(|_| EIO)?;
                Ok(from.len())
            }
            ProcFile::Report(report) => report.write(from),
            ProcFile::Control(control) => {
                control.write(from);
                Ok(from.len())
            }
            ProcFile::PageMap(_) | ProcFile::Listing(_) => Err(EACCES.into()),
        }
    }
}

/// Returns a `/proc` directory's entries that are not in the tree of inodes, with their names.
pub fn names(path: &str) -> Vec<(String, Arc<Inode>)> {
    let named = |number: u32, inode: &Arc<Inode>| (number.to_string(), Arc::clone(inode));
    let Some(rest) = path.strip_prefix("/proc") else {
        return Vec::new();
    };
    if rest.is_empty() {
        let directory = Inode::directory(0o555);
        return process::all()
            .map(|process| named(process.pid, &directory))
            .collect();
    }
    let parts = rest.strip_prefix('/').and_then(|r| r.split_once('/'));
    let found = parts.and_then(|(pid, name)| Some((process::find(pid.parse().ok()?)?, name)));
    let (numbers, inode) = match found {
        Some((process, "fd")) => (process.files.numbers(), Inode::link(String::new())),
        Some((process, "task")) => {
            let threads = process.threads().iter().map(|thread| thread.tid).collect();
            (threads, Inode::directory(0o555))
        }
        _ => return Vec::new(),
    };
    let named = |number| named(number, &inode);
    numbers.into_iter().map(named).collect()
}
