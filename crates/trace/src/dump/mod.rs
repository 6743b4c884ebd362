//! Text form of events, one line each, for people and for `grep`.
//!
//! The format is stable: spaces separate the columns, `-` marks a column that an event does not
//! have, and no text from a traced program (names, paths) can break a line. A snapshot is printed
//! as one line, plus one line per mapping, in the style of `/proc/PID/maps`.
//!
//! # Picture
//! ```text
//! seconds since the  mm  thread  what
//! first event
//!     0.000214      mm1     693  mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f5d0e7b2000
//!     0.000220      mm1     693  fault write 0x7f5d0e7b2010
//!     0.010977      mm1       -  snapshot exit: 29 mappings
//!     0.010977      mm1       -  map 55d0c7a00000-55d0c7a01000 r--p 00000000 fd:01 131 /usr/bin/true
//! ```

mod call;
pub mod signature;

use crate::Error;
use crate::date::utc;
use crate::event::{
    Access, Call, Event, Fault, FaultSource, Header, Inode, InodeId, InodeKind, MmId, MmInfo,
    Nanos, Order, Origin, SnapKind, SnapReason, SnapVma, Snapshot, Tid, Touch,
};
use crate::reader::Reader;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::{self, Read, Write};

/// Prints the header and all events of a trace.
///
/// # Errors
/// [`Error::Print`] if `out` fails; the errors of [`Reader`], after all events before the damage
/// have been printed.
pub fn dump<R: Read>(reader: Reader<R>, out: impl Write) -> Result<(), Error> {
    let mut printer = Printer::new(out);
    printer.header(reader.header()).map_err(Error::Print)?;
    for event in reader {
        printer.event(&event?).map_err(Error::Print)?;
    }
    printer.out.flush().map_err(Error::Print)
}

/// Printer of events, one at a time.
///
/// A printer remembers the time of the first event and the paths of inodes, so each trace needs a
/// separate printer.
pub struct Printer<W: Write> {
    out: W,
    line: String,
    first: Option<Nanos>,
    last: Nanos,
    inodes: HashMap<InodeId, MapsFile>,
}

/// The file columns of a line in `/proc/PID/maps`.
struct MapsFile {
    dev: u64,
    ino: u64,
    path: String,
}

impl<W: Write> Printer<W> {
    /// Creates a printer for one trace.
    pub fn new(out: W) -> Self {
        Self {
            out,
            line: String::new(),
            first: None,
            last: 0,
            inodes: HashMap::new(),
        }
    }

    /// Prints the header, each line prefixed with `#`.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn header(&mut self, header: &Header) -> io::Result<()> {
        let Header {
            kernel_release,
            machine,
            page_size,
            settings,
            command,
            faults,
            kernel_view,
            writer,
            started_unix_ms,
        } = header;
        let known = |text: &str| match text {
            "" => "unknown".to_owned(),
            text => clean(text),
        };
        let faults = match faults {
            FaultSource::None => "none",
            FaultSource::Tracepoints => "tracepoints",
            FaultSource::SoftwareUser => "software events of user mode",
        };
        writeln!(self.out, "# kernel {}", known(kernel_release))?;
        writeln!(self.out, "# machine {}", known(machine))?;
        writeln!(self.out, "# page size {page_size}")?;
        for (name, value) in settings {
            writeln!(self.out, "# setting {} = {}", clean(name), clean(value))?;
        }
        writeln!(self.out, "# command {}", clean(&command.join(" ")))?;
        writeln!(self.out, "# faults {faults}")?;
        let view = if *kernel_view { "yes" } else { "no" };
        writeln!(self.out, "# kernel view {view}")?;
        writeln!(self.out, "# writer {}", known(writer))?;
        match started_unix_ms {
            Some(time) => writeln!(self.out, "# started {}", utc(*time)),
            None => Ok(()),
        }
    }

    /// Prints one event.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Inode(inode) => self.inode(inode),
            Event::MmStart(start) => match start.origin {
                Origin::Exec => self.put(start.t, Some(start.mm), None, "mm_start exec"),
                Origin::Attach => self.put(start.t, Some(start.mm), None, "mm_start attach"),
                Origin::Fork { parent } => {
                    let what = format_args!("mm_start fork of mm{}", parent.0);
                    self.put(start.t, Some(start.mm), None, what)
                }
            },
            &Event::MmEnd { mm, t } => self.put(t, Some(mm), None, "mm_end"),
            &Event::TaskStart { tid, pid, mm, t } => {
                let what = format_args!("task_start pid {}", pid.0);
                self.put(t, Some(mm), Some(tid), what)
            }
            &Event::TaskEnd { tid, status, t } => self.put(
                t,
                None,
                Some(tid),
                format_args!("task_end {}", Status(status)),
            ),
            Event::Call(call) => self.put(call.t, Some(call.mm), Some(call.tid), call::Text(call)),
            Event::Fault(fault) => {
                self.put(fault.t, Some(fault.mm), Some(fault.tid), FaultText(fault))
            }
            Event::Touch(touch) => {
                self.put(touch.t, Some(touch.mm), Some(touch.tid), TouchText(touch))
            }
            Event::Snapshot(snapshot) => self.snapshot(snapshot),
            &Event::Lost { count, t } => self.put(t, None, None, format_args!("lost {count}")),
            Event::Note(text) => {
                self.put(self.last, None, None, format_args!("note {}", clean(text)))
            }
            &Event::End { status, t } => {
                self.put(t, None, None, format_args!("end {}", Status(status)))
            }
        }
    }

    /// Prints one line. Times count from the first event that has a time.
    fn put(
        &mut self,
        t: Nanos,
        mm: Option<MmId>,
        tid: Option<Tid>,
        what: impl fmt::Display,
    ) -> io::Result<()> {
        let line = &mut self.line;
        line.clear();
        self.last = t;
        let first = match self.first {
            Some(first) => first,
            // Notes and inodes have no time and may precede the first event with a time.
            None if t == 0 => 0,
            None => *self.first.insert(t),
        };
        let sign = if t < first { "-" } else { "" };
        let micros = t.abs_diff(first) / 1000;
        let seconds = format!("{sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        let mm = mm.map_or("-".to_owned(), |mm| format!("mm{}", mm.0));
        let tid = tid.map_or("-".to_owned(), |tid| tid.0.to_string());
        writeln!(line, "{seconds:>12} {mm:>8} {tid:>7}  {what}").map_err(io::Error::other)?;
        self.out.write_all(line.as_bytes())
    }

    fn inode(&mut self, inode: &Inode) -> io::Result<()> {
        let Inode {
            id,
            dev,
            ino,
            kind,
            fs_magic,
            mount_flags,
            size,
            path,
        } = inode;
        let kind = match kind {
            InodeKind::Regular => "regular",
            InodeKind::Shmem => "shmem",
            InodeKind::SharedAnon => "shared-anon",
            InodeKind::Hugetlb => "hugetlb",
            InodeKind::DevZero => "dev-zero",
            InodeKind::Device => "device",
            InodeKind::Other => "other",
        };
        let path = clean(path);
        let what = format!(
            "inode {} {} {ino} {kind} size {size} fs {fs_magic:#x} mount {mount_flags:#x} {path}",
            id.0,
            Dev(*dev),
        );
        let file = MapsFile {
            dev: *dev,
            ino: *ino,
            path,
        };
        self.inodes.insert(*id, file);
        self.put(self.last, None, None, what)
    }

    fn snapshot(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let Snapshot {
            mm,
            reason,
            t,
            exact,
            info,
            vmas,
        } = snapshot;
        let reason = match reason {
            SnapReason::Exec => "exec",
            SnapReason::Attach => "attach",
            SnapReason::Checkpoint => "checkpoint",
            SnapReason::Exit => "exit",
        };
        let exact = if *exact { "" } else { " inexact" };
        let mut what = format!("snapshot {reason}{exact}: {} mappings", vmas.len());
        if let Some(info) = info {
            show_info(&mut what, info);
        }
        self.put(*t, Some(*mm), None, what)?;
        for vma in vmas {
            let what = self.vma(vma);
            self.put(*t, Some(*mm), None, what)?;
        }
        Ok(())
    }

    fn vma(&self, vma: &SnapVma) -> String {
        let SnapVma {
            start,
            end,
            perms,
            offset,
            inode,
            kind,
            kernel,
        } = vma;
        let mut text = format!("map {start:08x}-{end:08x} {perms} {offset:08x}");
        let file = inode.as_ref().map(|id| (id, self.inodes.get(id)));
        // Writing to a string cannot fail.
        let _ = match file {
            None => write!(text, " 00:00 0"),
            Some((id, None)) => write!(text, " ?:? ? inode {}", id.0),
            Some((_, Some(file))) => {
                write!(text, " {} {} {}", Dev(file.dev), file.ino, file.path)
            }
        };
        let _ = match kind {
            SnapKind::Plain => Ok(()),
            SnapKind::Heap => write!(text, " [heap]"),
            SnapKind::Stack => write!(text, " [stack]"),
            SnapKind::Special(name) => write!(text, " {}", clean(name)),
            SnapKind::Named(name) => write!(text, " {}", clean(name)),
        };
        if let Some(k) = kernel {
            let _ = write!(
                text,
                " pgoff={:#x} flags={:#x} anon_vma={} root={} chain={} file={} policy={}",
                k.pgoff,
                k.flags,
                k.anon_vma,
                k.root,
                if k.chain_singular { "singular" } else { "many" },
                k.file,
                if k.policy { "own" } else { "none" },
            );
        }
        text
    }
}

/// Appends the known fields of a snapshot's mm.
fn show_info(text: &mut String, info: &MmInfo) {
    let MmInfo {
        mmap_base,
        start_brk,
        brk,
        start_data,
        end_data,
        start_stack,
        def_flags,
        total_vm,
        locked_vm,
        personality,
        rlimit_as,
        rlimit_data,
        rlimit_stack,
        rlimit_memlock,
        cap_ipc_lock,
        thp_disabled,
    } = info;
    let numbers = [
        ("mmap_base", mmap_base),
        ("start_brk", start_brk),
        ("brk", brk),
        ("start_data", start_data),
        ("end_data", end_data),
        ("start_stack", start_stack),
        ("def_flags", def_flags),
        ("total_vm", total_vm),
        ("locked_vm", locked_vm),
        ("personality", personality),
        ("rlimit_as", rlimit_as),
        ("rlimit_data", rlimit_data),
        ("rlimit_stack", rlimit_stack),
        ("rlimit_memlock", rlimit_memlock),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            let _ = write!(text, " {name}={value:#x}");
        }
    }
    for (name, value) in [
        ("cap_ipc_lock", cap_ipc_lock),
        ("thp_disabled", thp_disabled),
    ] {
        if let Some(value) = value {
            let _ = write!(text, " {name}={value}");
        }
    }
}

struct FaultText<'a>(&'a Fault);

impl fmt::Display for FaultText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = self.0;
        write!(f, "fault {} {:#x}", access(fault.access), fault.addr)?;
        if fault.kernel {
            f.write_str(" kernel")?;
        }
        show_order(f, fault.order)
    }
}

struct TouchText<'a>(&'a Touch);

impl fmt::Display for TouchText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let touch = self.0;
        write!(
            f,
            "touch {} {:#x} {}",
            access(touch.access),
            touch.addr,
            touch.len
        )?;
        show_order(f, touch.order)
    }
}

fn show_order(f: &mut fmt::Formatter<'_>, order: Order) -> fmt::Result {
    match order {
        Order::Exact => Ok(()),
        Order::Overlapping => f.write_str(" overlapping"),
    }
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::Exec => "exec",
        Access::Unknown => "unknown",
    }
}

/// A wait status, to be printed.
struct Status(i32);

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 & 0x7f {
            0 => write!(f, "exited {}", self.0 >> 8 & 0xff),
            signal => write!(f, "killed by signal {signal}"),
        }
    }
}

/// A device, to be printed as in `/proc/PID/maps`.
struct Dev(u64);

impl fmt::Display for Dev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}:{:02x}", self.0 >> 20, self.0 & 0xf_ffff)
    }
}

/// Replaces characters that break lines or move a terminal's cursor.
fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            clean.extend(c.escape_default());
        } else {
            clean.push(c);
        }
    }
    clean
}

/// Returns a call in the style of `strace`, as [`dump`] prints it.
pub fn call_text(call: &Call) -> String {
    call::Text(call).to_string()
}
