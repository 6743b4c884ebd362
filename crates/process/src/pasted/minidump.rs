//! A minidump of a Linux process, as Breakpad and Crashpad write it.
//!
//! Breakpad copies `/proc/PID/maps` into a stream of its own. Crashpad writes the list of memory
//! ranges of Windows, which has no names and no page offsets. All offsets and counts are checked
//! against the length of the file.

use super::{Listed, Pasted};
use std::borrow::Cow;
use std::fmt::Write;

/// First bytes of a minidump.
pub const SIGNATURE: &[u8] = b"MDMP";

/// Stream with a copy of `/proc/PID/maps`.
const LINUX_MAPS: u32 = 0x4767_0009;
/// Stream with a list of memory ranges.
const MEMORY_INFO_LIST: u32 = 16;

/// Returns the list of mappings of a minidump.
///
/// # Errors
/// Fails with a description if the file has no list of mappings.
pub fn read(file: &[u8]) -> Result<Pasted<'_>, String> {
    let streams = u32_at(file, 8).ok_or("the minidump is cut off in its header")?;
    let directory = u32_at(file, 12).ok_or("the minidump is cut off in its header")? as usize;
    let entries = (0..streams as usize).map_while(|n| {
        let at = directory.checked_add(n.checked_mul(12)?)?;
        Some((
            u32_at(file, at)?,
            u32_at(file, at + 4)? as usize,
            u32_at(file, at + 8)? as usize,
        ))
    });
    let entries: Vec<_> = entries.collect();
    let stream = |kind| {
        let (_, len, at) = entries.iter().find(|(one, ..)| *one == kind)?;
        let rest = file.get(*at..)?;
        Some((&rest[..rest.len().min(*len)], rest.len() < *len))
    };
    let (text, cut, nameless) = if let Some((text, cut)) = stream(LINUX_MAPS) {
        // A line that is cut off would be taken for a shorter one.
        let end = text.iter().rposition(|&byte| byte == b'\n');
        let text = if cut {
            &text[..end.map_or(0, |end| end + 1)]
        } else {
            text
        };
        (Cow::Borrowed(text), cut, false)
    } else if let Some((list, cut)) = stream(MEMORY_INFO_LIST) {
        let text = ranges(list).ok_or("the minidump's list of memory ranges is damaged")?;
        (Cow::Owned(text.into_bytes()), cut, true)
    } else {
        return Err("the minidump has no list of mappings (or is cut off before it)".to_owned());
    };
    let mut notes = Vec::new();
    if nameless {
        notes.push("the minidump lists memory ranges without names and file offsets".to_owned());
    }
    if cut {
        notes.push("the minidump is cut off in its list of mappings".to_owned());
    }
    Ok(Pasted {
        list: Listed::Text(text),
        incomplete: cut,
        notes,
        ..Pasted::default()
    })
}

fn u32_at(file: &[u8], at: usize) -> Option<u32> {
    let bytes = file.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn u64_at(file: &[u8], at: usize) -> Option<u64> {
    let bytes = file.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Converts a list of memory ranges to the text of `maps`.
fn ranges(list: &[u8]) -> Option<String> {
    const FREE: u32 = 0x1_0000;
    const PRIVATE: u32 = 0x2_0000;
    let header = u32_at(list, 0)? as usize;
    let size = u32_at(list, 4)? as usize;
    let count = u64_at(list, 8)?;
    if header < 16 || size < 48 {
        return None;
    }
    let mut text = String::new();
    for entry in list
        .get(header..)?
        .chunks_exact(size)
        .take(usize::try_from(count).ok()?)
    {
        let (start, len) = (u64_at(entry, 0)?, u64_at(entry, 24)?);
        let (state, protection, kind) =
            (u32_at(entry, 32)?, u32_at(entry, 36)?, u32_at(entry, 40)?);
        if state == FREE {
            continue;
        }
        let perms = match protection & 0xff {
            0x02 => "r--",
            0x04 | 0x08 => "rw-",
            0x10 => "--x",
            0x20 => "r-x",
            0x40 | 0x80 => "rwx",
            _ => "---",
        };
        let sharing = if kind == PRIVATE { 'p' } else { 's' };
        let end = start.checked_add(len)?;
        writeln!(text, "{start:x}-{end:x} {perms}{sharing} 00000000 00:00 0 ").ok()?;
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps;

    fn text_of<'a>(pasted: &'a Pasted<'_>) -> &'a [u8] {
        match &pasted.list {
            Listed::Text(text) => text,
            Listed::Entries(_) => panic!("not text"),
        }
    }

    /// Builds a minidump with one stream.
    fn dump(kind: u32, stream: &[u8]) -> Vec<u8> {
        let mut file = SIGNATURE.to_vec();
        for word in [0xa793, 1, 32, 0, 0, 0, 0, kind, stream.len() as u32, 44] {
            file.extend_from_slice(&u32::to_le_bytes(word));
        }
        file.extend_from_slice(stream);
        file
    }

    fn list() -> Vec<u8> {
        let mut list = [16u32, 48].map(u32::to_le_bytes).concat();
        list.extend(3u64.to_le_bytes());
        for (start, state, protection, kind) in [
            (0x1000u64, 0x1000u32, 0x04u32, 0x2_0000u32),
            (0x2000, 0x1_0000, 0x01, 0),
            (0x3000, 0x1000, 0x20, 0x4_0000),
        ] {
            for word in [start, 0, 0, 0x1000] {
                list.extend(word.to_le_bytes());
            }
            for word in [state, protection, kind, 0] {
                list.extend(word.to_le_bytes());
            }
        }
        list
    }

    #[test]
    fn both_kinds_of_lists_are_read() {
        let text = b"1000-2000 rw-p 00000000 00:00 0 \n2000-3000 r--p 00000000 08:01 7 /a\n";
        let file = dump(LINUX_MAPS, text);
        assert_eq!(text_of(&read(&file).unwrap()), text);
        let file = dump(MEMORY_INFO_LIST, &list());
        let entries = maps::parse(text_of(&read(&file).unwrap())).unwrap();
        let found: Vec<_> = entries
            .iter()
            .map(|e| (e.start, e.perms.exec, e.perms.shared))
            .collect();
        assert_eq!(found, [(0x1000, false, false), (0x3000, true, true)]);
        assert!(read(&dump(3, text)).unwrap_err().contains("no list"));
    }

    #[test]
    fn a_dump_that_is_cut_off_or_changed_anywhere_never_panics() {
        let text = b"1000-2000 rw-p 00000000 00:00 0 \n2000-3000 r--p 00000000 08:01 7 /a\n";
        for file in [dump(LINUX_MAPS, text), dump(MEMORY_INFO_LIST, &list())] {
            for at in 0..file.len() {
                if let Ok(pasted) = read(&file[..at]) {
                    maps::parse(text_of(&pasted)).unwrap();
                    assert!(pasted.notes.iter().any(|note| note.contains("cut off")));
                }
                let mut bad = file.clone();
                bad[at] = 0xff;
                let _ = read(&bad);
            }
        }
    }
}
