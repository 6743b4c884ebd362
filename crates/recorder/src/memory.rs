//! Reads the data behind pointer arguments in the memory of a stopped thread.
//!
//! The pointers come from the program and may be invalid. Memory that cannot be read counts as
//! empty, because the call that uses it will fail. All lengths are bounded.

use super::call_table::{Data, number};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::IoSliceMut;

/// Maximum number of entries in an array of `struct iovec`: `UIO_MAXIOV`.
const IOVECS: u64 = 1024;
/// Maximum length of a node mask in bytes: one page, as in Linux, which refuses a longer mask.
const NODE_MASK: u64 = 4096;
/// Maximum number of instructions in a filter, of 8 bytes each: `BPF_MAXINSNS`.
const FILTER_STEPS: u64 = 4096;
/// Maximum length of a VMA name: `ANON_VMA_NAME_MAX_LEN`.
const NAME: u64 = 80;

/// A range of memory, as address and length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub addr: u64,
    pub len: u64,
}

/// Reads up to `len` bytes at `addr` from a stopped thread, or fewer if the memory ends earlier.
pub(crate) fn bytes(tid: i32, addr: u64, len: u64) -> Vec<u8> {
    let (Ok(base), Ok(len)) = (usize::try_from(addr), usize::try_from(len)) else {
        return Vec::new();
    };
    let mut bytes = vec![0; len];
    let remote = [RemoteIoVec { base, len }];
    let read = match (base, len) {
        (0, _) | (_, 0) => 0,
        _ => process_vm_readv(
            Pid::from_raw(tid),
            &mut [IoSliceMut::new(&mut bytes)],
            &remote,
        )
        .unwrap_or(0),
    };
    bytes.truncate(read);
    bytes
}

/// Reads up to `count` 64-bit words at `addr`.
pub(crate) fn words(tid: i32, addr: u64, count: u64) -> Vec<u64> {
    let bytes = bytes(tid, addr, count.saturating_mul(8));
    let words = bytes.chunks_exact(8);
    words
        .filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?)))
        .collect()
}

/// Returns the ranges described by an array of `struct iovec`, limited to `total` bytes.
pub(crate) fn iovecs(tid: i32, addr: u64, count: u64, total: u64) -> Vec<Range> {
    let words = words(tid, addr, count.min(IOVECS) * 2);
    let mut left = total;
    let mut ranges = Vec::new();
    for pair in words.chunks_exact(2) {
        let (addr, len) = (pair[0], pair[1]);
        let len = len.min(left);
        left -= len;
        if len != 0 {
            ranges.push(Range { addr, len });
        }
    }
    ranges
}

/// Reads a null-terminated string of at most `len` bytes, without the terminator.
pub(crate) fn string(tid: i32, addr: u64, len: u64) -> Vec<u8> {
    // Read page by page: the next page may not exist.
    let to_page_end = 4096 - addr % 4096;
    let mut text = bytes(tid, addr, len.min(to_page_end));
    if !text.contains(&0) && len > to_page_end {
        text.extend(bytes(tid, addr + to_page_end, len - to_page_end));
    }
    if let Some(end) = text.iter().position(|b| *b == 0) {
        text.truncate(end);
    }
    text
}

/// Reads the data behind a call's pointers, for [`vmarea_trace::event::Call::data`].
pub(crate) fn data(tid: i32, kind: Data, args: &[u64; 6]) -> Vec<u8> {
    let arg = |n: u8| args[usize::from(n)];
    match kind {
        Data::None => Vec::new(),
        Data::Iovecs { at, count } => bytes(tid, arg(at), arg(count).min(IOVECS) * 16),
        Data::NodeMask { at, bits } => {
            // Linux subtracts one from the number of bits, and reads whole words.
            let len = arg(bits).saturating_sub(1).div_ceil(64) * 8;
            bytes(tid, arg(at), len.min(NODE_MASK))
        }
        Data::Limit { at } => bytes(tid, arg(at), 16),
        Data::VmaName if arg(1) == 0 => string(tid, arg(4), NAME),
        Data::VmaName => Vec::new(),
        Data::Ioctl => bytes(tid, arg(2), arg(1) >> 16 & 0x3fff),
        Data::MmMap if arg(1) == number::PR_SET_MM_MAP => bytes(tid, arg(2), arg(3).min(4096)),
        Data::MmMap => Vec::new(),
        Data::Filter { at } => match words(tid, arg(at), 2).as_slice() {
            // The structure `sock_fprog` contains a 16-bit length and a pointer.
            &[steps, filter] => bytes(tid, filter, (steps & 0xffff).min(FILTER_STEPS) * 8),
            _ => Vec::new(),
        },
    }
}
