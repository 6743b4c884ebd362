//! Tries on this process's own memory what the kernel makes of an emptied mapping.

use std::fs::File;
use std::ptr;

use crate::{PAGE, procmap};

/// True if a mapping that `MREMAP_DONTUNMAP` has emptied gets the page offset that follows from its
/// address, so that it can be joined in place wherever it came from (Linux 7.2).
///
/// A page is written elsewhere, moved next to an untouched mapping, and emptied. If the kernel then
/// joins the two, the offset follows.
pub fn emptied_offset_follows() -> bool {
    let page = PAGE as usize;
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: all calls concern memory that the first one has mapped at an address of the kernel's
    // choice, and that the last one unmaps; nothing else refers to it.
    unsafe {
        let area = libc::mmap(ptr::null_mut(), 16 * page, libc::PROT_NONE, private, -1, 0);
        if area == libc::MAP_FAILED {
            return false;
        }
        let at = |n: usize| area.byte_add(n * page);
        let fixed = private | libc::MAP_FIXED;
        let over = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let mut done = libc::mmap(at(2), page, rights, fixed, -1, 0) != libc::MAP_FAILED
            && libc::mmap(at(9), page, rights, fixed, -1, 0) != libc::MAP_FAILED;
        if done {
            at(9).cast::<u8>().write_volatile(1);
            let empties = over | libc::MREMAP_DONTUNMAP;
            done = libc::mremap(at(9), page, page, over, at(3)) != libc::MAP_FAILED
                && libc::mremap(at(3), page, page, empties, at(13)) != libc::MAP_FAILED
                // A change of flags makes the kernel look for neighbours.
                && libc::madvise(at(2), 2 * page, libc::MADV_DONTFORK) == 0;
        }
        let joined = done && is_one_mapping(at(2) as u64, at(4) as u64);
        libc::munmap(area, 16 * page);
        joined
    }
}

fn is_one_mapping(start: u64, end: u64) -> bool {
    let found =
        File::open("/proc/self/maps").and_then(|maps| procmap::query(&maps, start, &mut [0; 256]));
    found.is_ok_and(|mapping| mapping.start == start && mapping.end == end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_follow_from_7_2_on() {
        let release = rustix::system::uname();
        let release = release.release().to_string_lossy().into_owned();
        let numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut numbers = numbers.map_while(|n| n.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        assert_eq!(emptied_offset_follows(), version >= (7, 2), "{release}");
    }
}
