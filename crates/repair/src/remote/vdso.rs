//! The place for a stub in a process to which nothing has been added yet: the end of the vDSO.
//!
//! The vDSO is mapped in whole pages, and its last page has unused bytes after the ELF image. A stub
//! there needs no call in the process to make room for it. Writing to it gives the process a private
//! copy of that page.
//!
//! # Picture
//! ```text
//! vDSO   | ELF image .......... |0000000000000000000000000000000|   one or more pages
//!                               | mark, 16-aligned | call stub |
//! ```

use std::fs::File;
use std::os::unix::fs::FileExt;

use vmarea_merge::types::VmRange;
use vmarea_process::maps::{self, MapName};

use super::image::Image;
use crate::plan::PAGE;

const HEADER_BYTES: usize = 64;
/// Maximum size of a vDSO; larger ones are not believed.
const MOST_BYTES: u64 = 1 << 20;

/// Returns the unused bytes at the end of the vDSO of process `pid`, whose memory is `memory`.
/// `None` if the process has no vDSO, or the vDSO fills its pages.
pub(super) fn slack(pid: i32, memory: &File) -> Option<VmRange> {
    // A program may have moved its vDSO since.
    Image::read(pid, memory)
        .vdso()
        .and_then(|start| slack_of(start, memory))
        .or_else(|| {
            let mappings = maps::read(pid).ok()?;
            let is_vdso =
                |name: &MapName| matches!(name, MapName::Special(name) if name == "[vdso]");
            let vdso = mappings.iter().find(|mapping| is_vdso(&mapping.name))?;
            slack_of(vdso.start, memory)
        })
}

/// Returns the bytes between the end of the ELF image at `start` and the end of its last page.
fn slack_of(start: u64, memory: &File) -> Option<VmRange> {
    let mut header = [0; HEADER_BYTES];
    memory.read_exact_at(&mut header, start).ok()?;
    if !header.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let (segments, sections) = (table(&header, 32, 54), table(&header, 40, 58));
    let mut end = segments.1.max(sections.1);
    for (place, size, count, offset, length) in [
        (segments.0, segments.2, segments.3, 8, 32),
        (sections.0, sections.2, sections.3, 24, 32),
    ] {
        for n in 0..count {
            let mut entry = [0; HEADER_BYTES];
            let len = (size as usize).min(HEADER_BYTES);
            memory
                .read_exact_at(&mut entry[..len], start + place + n * size)
                .ok()?;
            let has_no_bytes = offset == 24 && u32_at(&entry, 4) == 8;
            if !has_no_bytes {
                end = end.max(u64_at(&entry, offset).checked_add(u64_at(&entry, length))?);
            }
        }
    }
    let end = (end < MOST_BYTES)
        .then(|| start + end)?
        .next_multiple_of(16);
    Some(VmRange::new(end, end.next_multiple_of(PAGE)))
}

/// Returns the offset of a table of the ELF header, its end, and the size and number of its entries.
fn table(header: &[u8], offset: usize, sizes: usize) -> (u64, u64, u64, u64) {
    let (size, count) = (u16_at(header, sizes), u16_at(header, sizes + 2));
    let place = u64_at(header, offset).min(MOST_BYTES);
    (place, place + size * count, size, count)
}

fn u16_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(bytes[at]) | u64::from(bytes[at + 1]) << 8
}

fn u32_at(bytes: &[u8], at: usize) -> u64 {
    u16_at(bytes, at) | u16_at(bytes, at + 2) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u32_at(bytes, at) | u32_at(bytes, at + 4) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_vdso_has_room_for_a_stub() {
        let pid = std::process::id().cast_signed();
        let memory = File::open("/proc/self/mem").expect("memory");
        let slack = slack(pid, &memory).expect("a vDSO");
        let mut bytes = vec![0; slack.len_bytes() as usize];
        memory
            .read_exact_at(&mut bytes, slack.start)
            .expect("bytes");
        assert!(bytes.iter().all(|&byte| byte == 0));
        let mappings = maps::read(pid).expect("mappings");
        let vdso = mappings
            .iter()
            .find(|m| m.start < slack.start && slack.start < m.end);
        let vdso = vdso.expect("the vDSO");
        assert!(matches!(&vdso.name, MapName::Special(name) if name == "[vdso]"));
        assert_eq!(vdso.end, slack.end);
    }
}
