//! Parser of perf maps: lines of a start address, a length and a name.
//!
//! # Linux
//! `tools/perf/Documentation/jit-interface.txt`. Both numbers are hexadecimal; the name extends to
//! the end of the line.

use super::code::{Code, Parsed};
use crate::demangle::bounded;

/// Parses the complete lines of a perf map; the last line may still be incomplete.
pub fn parse(text: &[u8]) -> Parsed {
    let used = text
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |at| at + 1);
    let mut parsed = Parsed {
        used,
        ..Parsed::default()
    };
    let lines = text[..used].split(|&byte| byte == b'\n');
    for line in lines.filter(|line| !line.is_empty()) {
        match code(line) {
            Some(code) => parsed.codes.push(code),
            None => parsed.malformed += 1,
        }
    }
    parsed
}

fn code(line: &[u8]) -> Option<Code> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.trim_end().splitn(3, ' ');
    let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
    let (start, len) = (number()?, number()?);
    let name = words.next()?;
    start.checked_add(len)?;
    let plausible = len != 0 && !name.is_empty();
    plausible.then(|| Code {
        start,
        len,
        name: bounded(name),
        lines: Vec::new(),
    })
}
