//! ELF executables: reading and checking the header and the segments.

use crate::failure::Failure;
use crate::files::Inode;
use crate::memory::heap;
use crate::space::TASK_SIZE;
use alloc::string::String;
use alloc::vec::Vec;
use linux_raw_sys::errno::{EINVAL, ENOEXEC, ENOMEM};
use object::LittleEndian;
use object::elf::{EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use vmarea::types::call_flags::Prot;

/// Size in bytes of the first part of the file, which must contain all headers.
const HEAD: usize = 4096;

/// A segment to be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Address of the first byte, before the load bias is added.
    pub addr: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Number of bytes that are mapped from the file.
    pub file_len: u64,
    /// Size of the segment in memory, in bytes.
    pub len: u64,
    /// Protection.
    pub prot: Prot,
}

/// Contents of an executable file's headers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Executable {
    /// Address of the first instruction, before the load bias is added.
    pub entry: u64,
    /// Segments in ascending order of addresses.
    pub segments: Vec<Segment>,
    /// Path of the program interpreter (dynamic loader), if the file names one.
    pub interpreter: Option<String>,
    /// True if the program can be loaded at any address.
    pub movable: bool,
    /// Offset of the program headers in the file, and the number of program headers.
    pub headers: (u64, u64),
}

impl Executable {
    /// Reads the headers of a file.
    ///
    /// # Errors
    /// ENOEXEC if this is not an executable file for this machine; EINVAL or ENOMEM if its segments
    /// cannot be mapped.
    pub fn read(file: &Inode) -> Result<Executable, Failure> {
        let mut head = heap::zeroed(HEAD)?;
        let len = file.read(0, &mut head)?;
        let head = &head[..len];
        let header = FileHeader64::<LittleEndian>::parse(head).map_err(|_| ENOEXEC)?;
        let endian = header.endian().map_err(|_| ENOEXEC)?;
        let kind = header.e_type(endian);
        if header.e_machine(endian) != EM_X86_64 || kind != ET_EXEC && kind != ET_DYN {
            return Err(ENOEXEC.into());
        }
        let mut segments: Vec<Segment> = Vec::new();
        let mut interpreter = None;
        let headers = header.program_headers(endian, head).map_err(|_| ENOEXEC)?;
        for header in headers {
            match header.p_type(endian) {
                PT_LOAD => {
                    let segment = segment(header, endian)?;
                    let above = segments.last().map_or(0, |s| s.addr + s.len);
                    if segment.addr < above {
                        return Err(ENOEXEC.into());
                    }
                    segments.push(segment);
                }
                PT_INTERP => {
                    let name = header.data(endian, head).map_err(|()| ENOEXEC)?;
                    let name = name.strip_suffix(b"\0").ok_or(ENOEXEC)?;
                    interpreter = Some(String::from_utf8_lossy(name).into_owned());
                }
                _ => {}
            }
        }
        if segments.is_empty() {
            return Err(ENOEXEC.into());
        }
        Ok(Executable {
            entry: header.e_entry(endian),
            segments,
            interpreter,
            movable: kind == ET_DYN,
            headers: (header.e_phoff(endian), headers.len() as u64),
        })
    }

    /// Returns the address of the program headers in memory, before the load bias is added.
    pub fn headers_addr(&self) -> u64 {
        let holds = |s: &&Segment| self.headers.0.wrapping_sub(s.offset) < s.file_len;
        let segment = self.segments.iter().find(holds);
        segment.map_or(0, |s| s.addr + (self.headers.0 - s.offset))
    }

    /// Returns the first address after the last segment.
    pub fn end(&self) -> u64 {
        self.segments.last().map_or(0, |s| s.addr + s.len)
    }
}

fn segment(
    header: &impl ProgramHeader<Endian = LittleEndian, Word = u64>,
    endian: LittleEndian,
) -> Result<Segment, Failure> {
    let flags = header.p_flags(endian);
    let mut prot = Prot::empty();
    prot.set(Prot::READ, flags.0 & PF_R.0 != 0);
    prot.set(Prot::WRITE, flags.0 & PF_W.0 != 0);
    prot.set(Prot::EXEC, flags.0 & PF_X.0 != 0);
    let segment = Segment {
        addr: header.p_vaddr(endian),
        offset: header.p_offset(endian),
        file_len: header.p_filesz(endian),
        len: header.p_memsz(endian),
        prot,
    };
    let (Some(end), Some(_)) = (
        segment.addr.checked_add(segment.len),
        segment.offset.checked_add(segment.file_len),
    ) else {
        return Err(ENOMEM.into());
    };
    if segment.file_len > segment.len || segment.addr % 4096 != segment.offset % 4096 {
        return Err(EINVAL.into());
    }
    match end <= TASK_SIZE {
        true => Ok(segment),
        false => Err(ENOMEM.into()),
    }
}
