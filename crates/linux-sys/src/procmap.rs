//! The `PROCMAP_QUERY` ioctl on an open `/proc/PID/maps`.
//!
//! # Linux
//! `include/uapi/linux/fs.h`, 6.11 and later.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::calls;

/// Maximum size in bytes of a mapping's name.
pub const NAME_BYTES: usize = libc::PATH_MAX as usize;

/// `PROCMAP_QUERY_VMA_READABLE`.
pub const VMA_READABLE: u64 = 1;
/// `PROCMAP_QUERY_VMA_WRITABLE`.
pub const VMA_WRITABLE: u64 = 2;
/// `PROCMAP_QUERY_VMA_EXECUTABLE`.
pub const VMA_EXECUTABLE: u64 = 4;
/// `PROCMAP_QUERY_VMA_SHARED`.
pub const VMA_SHARED: u64 = 8;

const COVERING_OR_NEXT: u64 = 0x10;
// `_IOWR('f', 17, struct procmap_query)`.
const REQUEST: u64 = 3 << 30 | (size_of::<Request>() as u64) << 16 | (b'f' as u64) << 8 | 17;

/// `struct procmap_query`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Request {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// Data that the kernel returns about one mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// First address of the mapping.
    pub start: u64,
    /// First address after the mapping.
    pub end: u64,
    /// `PROCMAP_QUERY_VMA_*` bits: readable, writable, executable, shared.
    pub flags: u64,
    /// Offset of the mapping in its file, in bytes.
    pub offset: u64,
    /// Inode number of the mapped file, or 0 if there is none.
    pub ino: u64,
    /// Major number of the file's device.
    pub dev_major: u32,
    /// Minor number of the file's device.
    pub dev_minor: u32,
    /// Length in bytes of the name in the name buffer.
    pub name_len: usize,
}

/// Queries the mapping that contains `addr`, or the next higher one if no mapping contains it.
///
/// # Errors
/// `ENOENT` after the last mapping, `ENOTTY` on older kernels, `ESRCH` if the process no longer
/// has an address space, `ENAMETOOLONG` if the name does not fit.
pub fn query(maps: &File, addr: u64, name: &mut [u8]) -> io::Result<Answer> {
    let mut request = Request {
        size: size_of::<Request>() as u64,
        query_flags: COVERING_OR_NEXT,
        query_addr: addr,
        vma_name_size: name.len() as u32,
        // The kernel requires both the address and the size of the name buffer, or neither.
        vma_name_addr: if name.is_empty() {
            0
        } else {
            name.as_mut_ptr() as u64
        },
        ..Request::default()
    };
    // SAFETY: `request` contains its own size and that of `name`, and both live across the call.
    let done = unsafe { calls::request(maps.as_raw_fd(), REQUEST, &mut request) };
    if done < 0 {
        return Err(io::Error::from_raw_os_error(-done as i32));
    }
    // The returned size includes the terminating zero; a mapping without a name has size 0.
    let name_len = (request.vma_name_size as usize).saturating_sub(1);
    Ok(Answer {
        start: request.vma_start,
        end: request.vma_end,
        flags: request.vma_flags,
        offset: request.vma_offset,
        ino: request.inode,
        dev_major: request.dev_major,
        dev_minor: request.dev_minor,
        name_len: name_len.min(name.len()),
    })
}
