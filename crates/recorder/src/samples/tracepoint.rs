//! The recorded tracepoints: finds their formats in tracefs and decodes their records.
//!
//! A tracepoint's number and the offsets of its fields differ between kernels, so this module reads
//! them from the tracepoint's `format` file. If tracefs is mounted, the module reads the files
//! there. Otherwise it creates a private mount without a path for as long as it reads the files.
//! [`super`] opens the events.
//!
//! # Linux
//! `arch/x86/include/asm/trace/exceptions.h` and `include/trace/events/mmap_lock.h`. The fault
//! tracepoints exist with this meaning of `error_code` on x86 only.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use vmarea_linux_sys::{arch, tracefs};

use super::Sample;

// Bits of the x86 page-fault error code.
const ERROR_PRESENT: u64 = 1 << 0;
const ERROR_WRITE: u64 = 1 << 1;
const ERROR_FETCH: u64 = 1 << 4;

/// The tracepoints of this kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tracepoints {
    common_type: Field,
    user: Fault,
    kernel: Fault,
    lock: Lock,
}

/// Tracepoint `exceptions:page_fault_user` or `exceptions:page_fault_kernel`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fault {
    id: u64,
    address: Field,
    error_code: Field,
}

/// Tracepoint `mmap_lock:mmap_lock_acquire_returned`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lock {
    id: u64,
    mm: Field,
    write: Field,
    success: Field,
}

/// Offset and size of a numeric field in a raw record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    offset: usize,
    size: usize,
}

impl Field {
    fn of(self, raw: &[u8]) -> Option<u64> {
        let bytes = raw.get(self.offset..self.offset.checked_add(self.size)?)?;
        Some(match *bytes {
            [a] => a.into(),
            [a, b] => u16::from_ne_bytes([a, b]).into(),
            [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
            _ => u64::from_ne_bytes(bytes.try_into().ok()?),
        })
    }
}

impl Tracepoints {
    /// Reads the formats of all three tracepoints. On failure, the error briefly explains the
    /// reason.
    pub(super) fn find() -> Result<Tracepoints, String> {
        if !arch::HAS_FAULT_TRACEPOINTS {
            return Err("this architecture has no tracepoints of page faults".to_owned());
        }
        let tracefs = tracefs::open().map_err(|e| format!("tracefs cannot be read: {e}"))?;
        let format = |name: &str| -> Result<Format, String> {
            let text = read_format(&tracefs, name).map_err(|e| format!("{name}: {e}"))?;
            Format::parse(name, text)
        };
        let user = format("exceptions/page_fault_user")?;
        let kernel = format("exceptions/page_fault_kernel")?;
        let lock = format("mmap_lock/mmap_lock_acquire_returned")?;
        Ok(Tracepoints {
            common_type: user.field("common_type")?,
            user: Fault::new(&user)?,
            kernel: Fault::new(&kernel)?,
            lock: Lock {
                id: lock.id,
                mm: lock.field("mm")?,
                write: lock.field("write")?,
                success: lock.field("success")?,
            },
        })
    }

    /// Returns the tracepoint ids for opening the events.
    pub(super) fn ids(&self) -> [u64; 3] {
        [self.user.id, self.kernel.id, self.lock.id]
    }

    /// Decodes a raw record.
    ///
    /// Returns `Ok(None)` for a record that is not needed: a failed lock attempt, or a fault at a
    /// kernel address.
    pub(super) fn decode(
        &self,
        t: u64,
        pid: i32,
        tid: i32,
        raw: &[u8],
    ) -> Result<Option<Sample>, FormatMismatch> {
        let id = self.common_type.of(raw).ok_or(FormatMismatch)?;
        if id == self.lock.id {
            let lock = &self.lock;
            let taken = lock.success.of(raw).ok_or(FormatMismatch)? != 0;
            let mm = lock.mm.of(raw).ok_or(FormatMismatch)?;
            let write = lock.write.of(raw).ok_or(FormatMismatch)? != 0;
            return Ok(taken.then_some(Sample::LockTaken {
                t,
                pid,
                tid,
                mm,
                write,
                late: false,
            }));
        }
        let (fault, kernel) = match id {
            _ if id == self.user.id => (&self.user, false),
            _ if id == self.kernel.id => (&self.kernel, true),
            _ => return Err(FormatMismatch),
        };
        let addr = fault.address.of(raw).ok_or(FormatMismatch)?;
        let error = fault.error_code.of(raw).ok_or(FormatMismatch)?;
        Ok(fault_at(addr, error, (t, pid, tid), kernel))
    }
}

/// Returns the sample of a fault, given by its time, process and thread; `None` for a fault at a
/// kernel address.
pub(super) fn fault_at(
    addr: u64,
    error: u64,
    (t, pid, tid): (u64, i32, i32),
    kernel: bool,
) -> Option<Sample> {
    (!is_kernel_address(addr)).then_some(Sample::Fault {
        t,
        pid,
        tid,
        addr,
        write: Some(error & ERROR_WRITE != 0),
        exec: error & ERROR_FETCH != 0,
        present: error & ERROR_PRESENT != 0,
        kernel,
    })
}

/// Error for a record that does not match its format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FormatMismatch;

/// True for an address in the kernel's half of the address space.
pub(super) fn is_kernel_address(addr: u64) -> bool {
    addr >> 63 == 1
}

impl Fault {
    fn new(format: &Format) -> Result<Fault, String> {
        Ok(Fault {
            id: format.id,
            address: format.field("address")?,
            error_code: format.field("error_code")?,
        })
    }
}

/// Text of a `format` file.
struct Format {
    name: String,
    id: u64,
    text: String,
}

impl Format {
    fn parse(name: &str, text: String) -> Result<Format, String> {
        let id = text
            .lines()
            .find_map(|line| line.strip_prefix("ID:"))
            .and_then(|id| id.trim().parse().ok())
            .ok_or_else(|| format!("{name}: the format has no ID"))?;
        Ok(Format {
            name: name.to_owned(),
            id,
            text,
        })
    }

    /// Finds a numeric field by name.
    ///
    /// A line of a format reads `field:unsigned long address; offset:8; size:8; signed:0;`, with
    /// tabs as separators.
    fn field(&self, name: &str) -> Result<Field, String> {
        let number = |line: &str, key: &str| -> Option<usize> {
            let value = line
                .split(';')
                .find_map(|part| part.trim().strip_prefix(key))?;
            value.parse().ok()
        };
        self.text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("field:"))
            .find(|line| {
                let declaration = line.split(';').next().unwrap_or_default();
                declaration.rsplit([' ', '*']).next() == Some(name)
            })
            .and_then(|line| {
                let offset = number(line, "offset:")?;
                let size = number(line, "size:")?;
                matches!(size, 1 | 2 | 4 | 8).then_some(Field { offset, size })
            })
            .ok_or_else(|| format!("{}: the format has no number {name}", self.name))
    }
}

fn read_format(tracefs: &OwnedFd, name: &str) -> io::Result<String> {
    let path = format!("events/{name}/format");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(tracefs, path, flags, Mode::empty())?;
    let mut text = String::new();
    File::from(file).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: x\nID: 675\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:struct mm_struct * mm;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:struct mm_struct *next;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:char comm[16];\toffset:32;\tsize:16;\tsigned:0;\n\
        \tfield:bool write;\toffset:16;\tsize:1;\tsigned:0;\n";

    #[test]
    fn a_format_gives_number_and_places() {
        let format = Format::parse("x", TEXT.to_owned()).unwrap();
        assert_eq!(format.id, 675);
        let place = |name| format.field(name).map(|f| (f.offset, f.size));
        assert_eq!(place("mm"), Ok((8, 8)));
        assert_eq!(place("next"), Ok((24, 8)));
        assert_eq!(place("write"), Ok((16, 1)));
        assert_eq!(place("common_type"), Ok((0, 2)));
        assert!(place("comm").is_err());
        assert!(place("absent").is_err());
        assert!(Format::parse("x", "name: x\n".to_owned()).is_err());
    }

    #[test]
    fn a_record_that_is_too_short_is_a_misfit() {
        let field = |offset, size| Field { offset, size };
        let fault = |id| Fault {
            id,
            address: field(8, 8),
            error_code: field(24, 8),
        };
        let points = Tracepoints {
            common_type: field(0, 2),
            user: fault(1),
            kernel: fault(2),
            lock: Lock {
                id: 3,
                mm: field(8, 8),
                write: field(16, 1),
                success: field(17, 1),
            },
        };
        let mut raw = [0; 32];
        raw[..2].copy_from_slice(&1u16.to_ne_bytes());
        raw[8..16].copy_from_slice(&0x7000u64.to_ne_bytes());
        raw[24..].copy_from_slice(&0x17u64.to_ne_bytes());
        assert_eq!(
            points.decode(5, 6, 7, &raw),
            Ok(Some(Sample::Fault {
                t: 5,
                pid: 6,
                tid: 7,
                addr: 0x7000,
                write: Some(true),
                exec: true,
                present: true,
                kernel: false,
            }))
        );
        for len in 0..raw.len() {
            assert_eq!(points.decode(5, 6, 7, &raw[..len]), Err(FormatMismatch));
        }
        raw[15] = 0xff;
        assert_eq!(points.decode(5, 6, 7, &raw), Ok(None));
        raw[..2].copy_from_slice(&9u16.to_ne_bytes());
        assert_eq!(points.decode(5, 6, 7, &raw), Err(FormatMismatch));
    }
}
