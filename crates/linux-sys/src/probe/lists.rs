//! The child's own lists in `/proc/self`, read line by line without an allocation.

use super::syscall::call;
use std::ffi::CStr;

/// Returns the start of the mapping that contains an address.
pub(super) fn mapping_at(addr: usize) -> Option<usize> {
    let mut found = None;
    each_line(c"/proc/self/maps", |line| {
        let (start, end) = range(line).unwrap_or((0, 0));
        if (start..end).contains(&addr) {
            found = Some(start);
        }
        found.is_none() && start <= addr
    })?;
    found
}

/// Tells whether the `VmFlags` of the mapping at an address contain a flag of two letters.
pub(super) fn has_flag(addr: usize, flag: &[u8; 2]) -> Option<bool> {
    let (mut inside, mut found) = (false, None);
    each_line(c"/proc/self/smaps", |line| {
        if let Some((start, end)) = range(line) {
            inside = (start..end).contains(&addr);
        } else if let Some(flags) = line.strip_prefix(b"VmFlags:").filter(|_| inside) {
            found = Some(flags.split(|&byte| byte == b' ').any(|word| word == flag));
        }
        found.is_none()
    })?;
    found
}

/// Returns how much of this process's memory is locked, in KiB.
pub(super) fn locked_kib() -> Option<usize> {
    status_kib(b"VmLck:")
}

/// Returns the size of this process's page tables, in KiB.
pub(super) fn page_tables_kib() -> Option<usize> {
    status_kib(b"VmPTE:")
}

fn status_kib(field: &[u8]) -> Option<usize> {
    let mut found = None;
    each_line(c"/proc/self/status", |line| {
        if let Some(rest) = line.strip_prefix(field) {
            let mut words = rest.split(u8::is_ascii_whitespace);
            found = words.find_map(|word| std::str::from_utf8(word).ok()?.parse().ok());
        }
        found.is_none()
    })?;
    found
}

/// Returns the addresses at the beginning of a line of `maps`.
fn range(line: &[u8]) -> Option<(usize, usize)> {
    let dash = line.iter().position(|&byte| byte == b'-')?;
    let space = line.iter().position(|&byte| byte == b' ')?;
    let number = |digits: &[u8]| usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    Some((number(&line[..dash])?, number(line.get(dash + 1..space)?)?))
}

/// Passes the lines of a file to `goes_on` until that returns false. A line that is too long for the
/// buffer is passed in parts.
fn each_line(path: &CStr, mut goes_on: impl FnMut(&[u8]) -> bool) -> Option<()> {
    let here = libc::AT_FDCWD as usize;
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let fd = call(libc::SYS_openat, &[here, path.as_ptr() as usize, flags]).ok()?;
    let mut buffer = [0u8; 8192];
    let mut filled = 0;
    loop {
        let room = [
            fd,
            buffer[filled..].as_mut_ptr() as usize,
            buffer.len() - filled,
        ];
        let got = call(libc::SYS_read, &room).unwrap_or(0);
        filled += got;
        let mut rest = &buffer[..filled];
        let mut ended = got == 0;
        while let Some(len) = rest.iter().position(|&byte| byte == b'\n') {
            ended |= !goes_on(&rest[..len]);
            rest = &rest[len + 1..];
            if ended {
                break;
            }
        }
        if ended {
            break;
        }
        if rest.len() == buffer.len() {
            goes_on(rest);
            rest = &[];
        }
        let left = rest.len();
        buffer.copy_within(filled - left..filled, 0);
        filled = left;
    }
    call(libc::SYS_close, &[fd]).ok().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_lists_are_read() {
        let local = 0u8;
        let addr = (&raw const local) as usize;
        let start = mapping_at(addr).expect("the stack is mapped");
        assert!(start <= addr);
        assert_eq!(mapping_at(0), None);
        assert_eq!(has_flag(addr, b"rd"), Some(true));
        assert_eq!(has_flag(addr, b"sh"), Some(false));
        assert!(locked_kib().is_some());
        assert!(page_tables_kib() > Some(0));
    }

    #[test]
    fn ranges_begin_a_line() {
        assert_eq!(range(b"1000-2f00 r--p 0"), Some((0x1000, 0x2f00)));
        assert_eq!(range(b"VmFlags: rd mr-x"), None);
    }
}
