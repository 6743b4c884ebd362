//! Columns that several formats have in common.

use crate::maps::{MapName, MapsEntry, SmapsEntry};
use vmarea_trace::event::Perms;

/// The words of a line, with the rest of the line behind each.
pub(super) struct Words<'a>(pub &'a str);

impl<'a> Words<'a> {
    /// Returns the next word.
    pub(super) fn next(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start();
        let len = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(len);
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }

    /// Returns the next word without taking it.
    pub(super) fn peek(&self) -> Option<&'a str> {
        Words(self.0).next()
    }

    /// Returns what follows, without spaces around it.
    pub(super) fn rest(&self) -> &'a str {
        self.0.trim()
    }
}

/// Parses a hexadecimal number with or without `0x`, and with or without the `'` of Android.
pub(super) fn hex(word: &str) -> Option<u64> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    let is_plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    match digits.split_once('\'') {
        Some((high, low)) if low.len() == 8 => {
            let high = hex(high).filter(|high| *high <= u64::from(u32::MAX))?;
            Some(high << 32 | hex(low)?)
        }
        _ => is_plain.then(|| u64::from_str_radix(digits, 16).ok())?,
    }
}

/// Parses a hexadecimal number that must have `0x`.
pub(super) fn hex_0x(word: &str) -> Option<u64> {
    hex(word.starts_with("0x").then_some(word)?)
}

/// Parses `r-x`, `r-xp`, or the five letters of pmap (`r-xs-`); sharing is `false` if it is absent.
pub(super) fn perms(word: &str) -> Option<Perms> {
    let letters = word.as_bytes();
    let &[r, w, x, ref more @ ..] = letters else {
        return None;
    };
    let flag = |byte: u8, set: u8| match byte {
        _ if byte == set => Some(true),
        b'-' => Some(false),
        _ => None,
    };
    let shared = match more {
        [] | [b'p' | b'-'] | [b'-', b'-' | b'R' | b'p'] => false,
        [b's'] | [b's', b'-' | b'R'] => true,
        _ => return None,
    };
    Some(Perms {
        read: flag(r, b'r')?,
        write: flag(w, b'w')?,
        exec: flag(x, b'x')?,
        shared,
    })
}

/// What an entry has if its permissions are not shown.
pub(super) const UNKNOWN_PERMS: Perms = Perms {
    read: true,
    write: true,
    exec: false,
    shared: false,
};

/// Makes an entry without file.
///
/// # Errors
/// Fails with a description if there is no such range.
pub(super) fn entry(
    start: u64,
    end: Option<u64>,
    perms: Perms,
) -> Result<SmapsEntry, &'static str> {
    let end = end.ok_or("it ends above the last address")?;
    if start >= end {
        return Err("it ends before it begins");
    }
    if (start | end) & 0xfff != 0 {
        return Err("its addresses are not those of pages");
    }
    Ok(SmapsEntry {
        mapping: MapsEntry {
            start,
            end,
            perms,
            offset: 0,
            dev: 0,
            ino: 0,
            name: MapName::None,
        },
        flags: Vec::new(),
        protection_key: 0,
        rss_kib: 0,
        anonymous_kib: 0,
        swap_kib: 0,
    })
}

/// Makes a name of the text of a last column.
pub(super) fn name(text: &str) -> MapName {
    MapName::parse(text.trim().as_bytes(), None)
}

/// Makes a name of a last column without folders; internal files of the kernel get theirs back.
pub(super) fn base_name(text: &str) -> MapName {
    let text = text.trim();
    let internal = ["memfd:", "SYSV", "anon_hugepage", "[aio]"];
    match internal.iter().any(|start| text.starts_with(start)) {
        true => name(&format!("/{text}")),
        false => name(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_permissions() {
        assert_eq!(hex("0x1f"), Some(31));
        assert_eq!(hex("0000007f'12c00000"), Some(0x7f_12c0_0000));
        for wrong in [
            "",
            "0x",
            "g",
            "12345678901234567",
            "1'2",
            "-1",
            "1fffffffff'00000000",
        ] {
            assert_eq!(hex(wrong), None, "{wrong}");
        }
        assert!(perms("r-xs-").unwrap().shared);
        assert!(!perms("r-x").unwrap().shared);
        for wrong in ["", "rw", "rwz", "rw-q", "rw-p-", "rw-ssp", "x-r"] {
            assert_eq!(perms(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_range_must_be_one_of_pages() {
        let what = |start, end| entry(start, end, UNKNOWN_PERMS).unwrap_err();
        assert_eq!(what(0x2000, Some(0x1000)), "it ends before it begins");
        assert_eq!(
            what(0x1000, Some(0x1800)),
            "its addresses are not those of pages"
        );
        assert_eq!(what(0x1000, None), "it ends above the last address");
    }
}
