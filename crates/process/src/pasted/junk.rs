//! Text around the lines of a pasted list: prefixes of a log, quotes, other line endings.
//!
//! If every line is one of a list, the text is used as it is, so that an error names its line.
//! Otherwise each line is searched for a mapping, or for a value that follows one in `smaps`.

use super::Pasted;
use crate::maps;
use std::borrow::Cow;

/// Values of `smaps` that the parser uses.
const VALUES: [&[u8]; 5] = [
    b"Rss:",
    b"Anonymous:",
    b"Swap:",
    b"ProtectionKey:",
    b"VmFlags:",
];

/// Returns the list without what surrounds it; without change if there is no list.
pub fn removed(file: &[u8]) -> Pasted<'_> {
    let plain = trimmed(file);
    if maps::parse_smaps(&plain).is_ok() {
        let notes = missing_end(&plain, !file.ends_with(b"\n"));
        return Pasted {
            text: plain,
            notes: notes.map(str::to_owned).into_iter().collect(),
            ..Pasted::default()
        };
    }
    let (text, other, cut) = extracted(file);
    if text.is_empty() {
        return Pasted {
            text: plain,
            ..Pasted::default()
        };
    }
    let mut notes = Vec::new();
    if cut {
        notes.push("the list is cut off: its last line is incomplete and was left out".to_owned());
    } else if let Some(note) = missing_end(&text, false) {
        notes.push(note.to_owned());
    }
    if other > 0 {
        let s = if other == 1 { " that is" } else { "s that are" };
        notes.push(format!(
            "left out {other} line{s} not part of a list of mappings"
        ));
    }
    Pasted {
        text: Cow::Owned(text),
        notes,
        ..Pasted::default()
    }
}

/// Returns a note if the end of a list is missing, although every line of it can be parsed.
///
/// `is_torn` says that the last line has no line end, so that its name may be incomplete.
fn missing_end(list: &[u8], is_torn: bool) -> Option<&'static str> {
    // Number of mappings from which on a list is taken for that of a whole process.
    const WHOLE: usize = 20;
    let (mut mappings, mut flags_follow, mut any_flags, mut stack, mut files) =
        (0, true, false, false, false);
    for line in list.split(|&byte| byte == b'\n') {
        if line.starts_with(b"VmFlags:") {
            (flags_follow, any_flags) = (true, true);
        } else if maps::parse(line).is_ok_and(|list| list.len() == 1) {
            mappings += 1;
            flags_follow = false;
            stack |= line.ends_with(b"[stack]");
            files |= line.contains(&b'/');
        }
    }
    if any_flags && !flags_follow {
        return Some("the list is cut off: its last mapping has no flags");
    }
    if is_torn {
        return Some("the last line has no line end: the list may be cut off there");
    }
    // The stack is near the end of every process's list.
    let is_short = mappings >= WHOLE && files && !stack;
    is_short.then_some("the list has no [stack]: its end may be missing")
}

/// Removes empty lines at both ends, and carriage returns, which an editor on another system may
/// have added.
fn trimmed(file: &[u8]) -> Cow<'_, [u8]> {
    let text = file.trim_ascii();
    if text.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len() + 1);
    for line in text.split(|&byte| byte == b'\n') {
        plain.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
        plain.push(b'\n');
    }
    Cow::Owned(plain)
}

/// Returns the lines of the list, the number of other lines, and whether the last line is cut off.
pub(super) fn extracted(file: &[u8]) -> (Vec<u8>, usize, bool) {
    let mut text = Vec::new();
    let (mut other, mut cut) = (0, false);
    let is_torn = !file.ends_with(b"\n");
    let mut in_list = false;
    let lines: Vec<_> = file.trim_ascii().split(|&byte| byte == b'\n').collect();
    for (n, line) in lines.iter().enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // The space after an empty name belongs to the line; quotes and spaces around it do not.
        let end = line.iter().rposition(|byte| !b"\"'`, ".contains(byte));
        let line = &line[..end.map_or(0, |end| end + 1)];
        let is_last = n + 1 == lines.len() && !text.is_empty();
        if let Some(part) = mapping(line).or_else(|| value(line).filter(|_| !text.is_empty())) {
            text.extend_from_slice(part);
            text.push(b'\n');
            in_list = true;
        } else if is_last && (is_begun(line) || (is_torn && in_list)) {
            cut = true;
        } else if is_other_value(line) {
            in_list = true;
        } else {
            in_list = false;
            other += 1;
        }
    }
    (text, other, cut)
}

/// Returns the mapping at the end of a line.
fn mapping(line: &[u8]) -> Option<&[u8]> {
    let starts = (0..line.len()).filter(|&at| {
        line[at].is_ascii_hexdigit() && (at == 0 || !line[at - 1].is_ascii_alphanumeric())
    });
    starts
        .map(|at| &line[at..])
        .find(|rest| maps::parse(rest).is_ok_and(|list| list.len() == 1))
}

fn value(line: &[u8]) -> Option<&[u8]> {
    let found = VALUES.iter().find_map(|name| {
        let at = line.windows(name.len()).position(|word| word == *name)?;
        (at == 0 || !line[at - 1].is_ascii_alphanumeric()).then_some(at)
    });
    found.map(|at| &line[at..])
}

/// True for a line that begins like a mapping.
fn is_begun(line: &[u8]) -> bool {
    let word = line.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
    let hex = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'-';
    word.len() >= 4 && word.iter().all(hex) || line.windows(4).any(|four| four == b" 000")
}

/// True for a value of `smaps` that the parser does not use, such as `Pss:  4 kB`.
fn is_other_value(line: &[u8]) -> bool {
    line.ends_with(b" kB") || line.windows(12).any(|word| word == b"THPeligible:")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "1000-2000 rw-p 00000000 00:00 0 \n2000-3000 r--p 00001000 08:01 7 /a b\n";

    fn list(text: &str) -> Vec<maps::MapsEntry> {
        maps::parse(&removed(text.as_bytes()).text).unwrap()
    }

    #[test]
    fn prefixes_quotes_and_line_endings_are_removed() {
        let plain = maps::parse(LIST.as_bytes()).unwrap();
        let around = |before: &str, after: &str| {
            let lines = LIST.lines().map(|line| format!("{before}{line}{after}"));
            lines.collect::<String>()
        };
        for text in [
            around("", "\r\n"),
            around("> ", "\n"),
            around("2026-11-23T10:00:00Z host app[12]: ", "\n"),
            around("\"", "\",\n"),
            format!("Hello,\n\n{}\nRegards\n", around("  | ", "\n")),
        ] {
            assert_eq!(list(&text), plain, "{text:?}");
        }
        let notes = removed(format!("Hello,\n{LIST}bye\n").as_bytes()).notes;
        assert_eq!(
            notes,
            ["left out 2 lines that are not part of a list of mappings"]
        );
    }

    #[test]
    fn a_list_that_is_cut_off_is_used_up_to_there() {
        let plain = maps::parse(LIST.as_bytes()).unwrap();
        for cut in ["3000-", "3000-4000", "3000-4000 rw-p 000"] {
            let text = format!("{LIST}{cut}");
            assert_eq!(list(&text), plain, "{cut}");
            let notes = removed(text.as_bytes()).notes;
            assert_eq!(notes.len(), 1, "{cut}");
            assert!(notes[0].contains("cut off"), "{notes:?}");
        }
    }

    #[test]
    fn a_list_that_is_cut_off_where_it_can_be_parsed_is_noticed() {
        let smaps: String = (1..30)
            .map(|n| {
                let name = if n == 29 { "[stack]" } else { "/lib/c.so" };
                format!(
                    "{n:x}000-{:x}000 rw-p 00000000 00:00 0 {name}\nSize: 4 kB\nRss: 8 kB\nVmFlags: rd wr\n",
                    n + 1
                )
            })
            .collect();
        let plain = |text: &str| {
            let lines = text.lines().filter(|line| line.contains("-p"));
            lines.map(|line| format!("{line}\n")).collect::<String>()
        };
        let notes = |text: &str| removed(text.as_bytes()).notes;
        assert_eq!(notes(&smaps), [""; 0]);
        assert_eq!(notes(&plain(&smaps)), [""; 0]);
        for length in 1..smaps.len() - 1 {
            let cut = &smaps[..smaps.len() - length];
            // A list that ends after a mapping may be whole, unless it is that of a process.
            let ends = cut.ends_with("wr\n") && cut.lines().count() < 4 * 20;
            if cut.contains("VmFlags: rd wr\n") && !ends {
                assert_eq!(notes(cut).len(), 1, "{cut}");
            }
        }
        let maps = plain(&smaps);
        for length in 1..300 {
            let cut = &maps[..maps.len() - length];
            assert_eq!(notes(cut).len(), 1, "{cut}");
        }
    }

    #[test]
    fn smaps_keeps_its_flags() {
        let text = "x: 1000-2000 rw-p 00000000 00:00 0 \nx: Rss:      8 kB\nx: Pss: 4 kB\nx: VmFlags: rd wr dc \n";
        let entries = maps::parse_smaps(&removed(text.as_bytes()).text).unwrap();
        assert!(entries[0].has(b"dc"));
        assert_eq!(entries[0].rss_kib, 8);
    }
}
