//! Text around the lines of a pasted list: prefixes of a log, quotes, other line endings.
//!
//! If every line is one of a list, the text is used as it is, so that an error names its line.
//! Otherwise each line is searched for a mapping, or for a value that follows one in `smaps`.

use super::cuts::{Cuts, WHOLE, is_mark, left_out};
use super::{Listed, Pasted};
use crate::maps::{self, MapName};
use std::borrow::Cow;

/// Values of `smaps` that the parser uses.
const VALUES: [&[u8]; 5] = [
    b"Rss:",
    b"Anonymous:",
    b"Swap:",
    b"ProtectionKey:",
    b"VmFlags:",
];

/// Returns the list if every line of the text is one of a list; `None` otherwise.
///
/// # Errors
/// Fails with a sentence for `smaps_rollup`, whose one line is the sum of all mappings.
pub fn plain(file: &[u8]) -> Result<Option<Pasted<'_>>, String> {
    let plain = trimmed(file);
    let Ok(entries) = maps::parse_smaps(&plain) else {
        return Ok(None);
    };
    if let [only] = &entries[..]
        && only.mapping.name == MapName::Special("[rollup]".to_owned())
    {
        return Err("it is a copy of smaps_rollup, which has only sums: send smaps".to_owned());
    }
    if entries.is_empty() {
        return Ok(None);
    }
    let missing = missing_end(&plain, !file.ends_with(b"\n"));
    Ok(Some(Pasted {
        list: Listed::Text(plain),
        incomplete: missing.as_ref().is_some_and(|missing| missing.counts),
        notes: missing
            .map(|missing| missing.note.to_owned())
            .into_iter()
            .collect(),
        ..Pasted::default()
    }))
}

/// Returns the text as it is, so that an error names its line.
pub fn as_it_is(file: &[u8]) -> Pasted<'_> {
    Pasted {
        list: Listed::Text(trimmed(file)),
        ..Pasted::default()
    }
}

/// Returns the list without what surrounds it; `None` if there is none.
pub fn removed(file: &[u8]) -> Option<Pasted<'static>> {
    let Extracted {
        text,
        other,
        torn,
        cuts,
    } = extracted(&without_colours(file));
    if text.is_empty() {
        return None;
    }
    let mut incomplete = cuts.any() || torn;
    let (marks, mut notes) = cuts.into_parts();
    if torn {
        notes.push("the list is cut off: its last line is incomplete and was left out".to_owned());
    } else if let Some(missing) = missing_end(&text, false).filter(|_| !incomplete) {
        incomplete = missing.counts;
        notes.push(missing.note.to_owned());
    }
    notes.extend(left_out(other));
    Some(Pasted {
        list: Listed::Text(Cow::Owned(text)),
        marks,
        incomplete,
        notes,
        ..Pasted::default()
    })
}

/// What is missing at the end of a list.
struct Missing {
    note: &'static str,
    /// True unless the list has what the end of a process's list has.
    counts: bool,
}

/// Returns a note if the end of a list is missing, although every line of it can be parsed.
///
/// `is_torn` says that the last line has no line end, so that its name may be incomplete.
fn missing_end(list: &[u8], is_torn: bool) -> Option<Missing> {
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
        return Some(Missing {
            note: "the list is cut off: its last mapping has no flags",
            counts: true,
        });
    }
    if is_torn {
        return Some(Missing {
            note: "the last line has no line end: the list may be cut off there",
            counts: !stack,
        });
    }
    // The stack is near the end of every process's list.
    let is_short = mappings >= WHOLE && files && !stack;
    is_short.then_some(Missing {
        note: "the list has no [stack]: its end may be missing",
        counts: true,
    })
}

/// Removes the sequences with which a terminal is told to change its colours, and the marks that
/// tell readline their length.
pub(super) fn without_colours(file: &[u8]) -> Cow<'_, [u8]> {
    if !file.contains(&0x1b) {
        return Cow::Borrowed(file);
    }
    let mut plain = Vec::with_capacity(file.len());
    let mut rest = file;
    while let Some((&byte, after)) = rest.split_first() {
        let end = after.iter().position(|byte| byte.is_ascii_alphabetic());
        rest = match (byte, after.first(), end) {
            (0x1b, Some(b'['), Some(end)) => &after[end + 1..],
            (1 | 2, ..) => after,
            _ => {
                plain.push(byte);
                after
            }
        };
    }
    Cow::Owned(plain)
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

/// A list that was found in other text.
pub(super) struct Extracted {
    /// The lines of the list.
    pub text: Vec<u8>,
    /// Number of other lines.
    pub other: usize,
    /// True if the last line is incomplete.
    pub torn: bool,
    /// Places at which lines were cut out.
    pub cuts: Cuts,
}

/// Searches text for the lines of a list.
pub(super) fn extracted(file: &[u8]) -> Extracted {
    let mut found = Extracted {
        text: Vec::new(),
        other: 0,
        torn: false,
        cuts: Cuts::default(),
    };
    let is_torn = !file.ends_with(b"\n");
    let mut in_list = false;
    let lines: Vec<_> = file.trim_ascii().split(|&byte| byte == b'\n').collect();
    for (n, line) in lines.iter().enumerate() {
        let whole = line.strip_suffix(b"\r").unwrap_or(line);
        // The space after an empty name belongs to the line; quotes and spaces around it do not.
        let end = whole.iter().rposition(|byte| !b"\"'`, ".contains(byte));
        let line = &whole[..end.map_or(0, |end| end + 1)];
        let is_last = n + 1 == lines.len() && !found.text.is_empty();
        let mapping = mapping(line);
        if let Some((_, entry)) = &mapping {
            found.cuts.mapping(entry.start, entry.end);
        }
        let part = mapping.map(|(part, _)| part);
        if let Some(part) = part.or_else(|| value(line).filter(|_| !found.text.is_empty())) {
            found.text.extend_from_slice(part);
            found.text.push(b'\n');
            in_list = true;
        } else if is_last && (is_begun(line) || (is_torn && in_list)) && !is_cut(line) {
            found.torn = true;
        } else if is_other_value(line) {
            in_list = true;
        } else {
            in_list = false;
            found.other_line(n + 1, whole);
        }
    }
    found
}

impl Extracted {
    /// Takes notice of line `number`, which is not one of the list.
    fn other_line(&mut self, number: usize, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let is_range = |word: &str| {
            let hex = |text: &str| text.len() >= 4 && text.bytes().all(|b| b.is_ascii_hexdigit());
            let range = word.split_once('-');
            range.is_some_and(|(start, end)| hex(start) && hex(end) && start.len() >= 8)
        };
        if line.split_whitespace().any(is_range) {
            self.cuts.damaged(number, "no mapping can be read from it");
        } else if line.trim().is_empty() {
        } else if !self.cuts.other(&line) {
            self.other += 1;
        }
    }
}

fn is_cut(line: &[u8]) -> bool {
    is_mark(&String::from_utf8_lossy(line))
}

/// Returns the mapping at the end of a line.
fn mapping(line: &[u8]) -> Option<(&[u8], maps::MapsEntry)> {
    let starts = (0..line.len()).filter(|&at| {
        line[at].is_ascii_hexdigit() && (at == 0 || !line[at - 1].is_ascii_alphanumeric())
    });
    starts.map(|at| &line[at..]).find_map(|rest| {
        let mut list = maps::parse(rest).ok()?;
        Some((rest, list.pop().filter(|_| list.is_empty())?))
    })
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

    fn found(text: &str) -> Pasted<'_> {
        let plain = plain(text.as_bytes()).unwrap();
        plain
            .or_else(|| removed(text.as_bytes()))
            .unwrap_or_default()
    }

    fn text_of<'a>(pasted: &'a Pasted<'_>) -> &'a [u8] {
        match &pasted.list {
            Listed::Text(text) => text,
            Listed::Entries(_) => panic!("not text"),
        }
    }

    fn list(text: &str) -> Vec<maps::MapsEntry> {
        maps::parse(text_of(&found(text))).unwrap()
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
        let notes = found(&format!("Hello,\n{LIST}bye\n")).notes;
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
            let notes = found(&text).notes;
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
        let notes = |text: &str| found(text).notes;
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
        let entries = maps::parse_smaps(text_of(&found(text))).unwrap();
        assert!(entries[0].has(b"dc"));
        assert_eq!(entries[0].rss_kib, 8);
    }
}
