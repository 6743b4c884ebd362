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
        return Pasted {
            text: plain,
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
    let lines: Vec<_> = file.trim_ascii().split(|&byte| byte == b'\n').collect();
    for (n, line) in lines.iter().enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // The space after an empty name belongs to the line; quotes and spaces around it do not.
        let end = line.iter().rposition(|byte| !b"\"'`, ".contains(byte));
        let line = &line[..end.map_or(0, |end| end + 1)];
        if let Some(mapping) = mapping(line) {
            text.extend_from_slice(mapping);
            text.push(b'\n');
        } else if let Some(value) = value(line).filter(|_| !text.is_empty()) {
            text.extend_from_slice(value);
            text.push(b'\n');
        } else if n + 1 == lines.len() && !text.is_empty() && is_begun(line) {
            cut = true;
        } else if !is_other_value(line) {
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
    fn smaps_keeps_its_flags() {
        let text = "x: 1000-2000 rw-p 00000000 00:00 0 \nx: Rss:      8 kB\nx: Pss: 4 kB\nx: VmFlags: rd wr dc \n";
        let entries = maps::parse_smaps(&removed(text.as_bytes()).text).unwrap();
        assert!(entries[0].has(b"dc"));
        assert_eq!(entries[0].rss_kib, 8);
    }
}
