//! Parser of jitdump files: functions made at run time, with their lines.
//!
//! # Linux
//! `tools/perf/Documentation/jitdump-specification.txt`, version 1. The program maps one page of the
//! file executable, which shows where it is. The copies of the code and its unwind tables are
//! skipped. Files of a machine with another byte order are not understood.

use super::code::{Code, CodeLine, Parsed};
use crate::demangle::bounded;
use std::collections::HashMap;

/// Length of the fields of the file header in bytes; the header itself may be longer.
pub const HEADER_BYTES: usize = 40;
const MAGIC: u32 = 0x4a69_5444;
const LOAD: u32 = 0;
const MOVE: u32 = 1;
const DEBUG_INFO: u32 = 2;
const UNWINDING_INFO: u32 = 4;
/// Name of a line's file that means "as in the line before".
const SAME_FILE: &[u8] = b"\xff";

/// Returns the length of the header at the start of a file; `None` if it is no jitdump file.
pub fn header_len(bytes: &[u8; HEADER_BYTES]) -> Option<u64> {
    let mut fields = Fields(bytes);
    let (magic, version) = (fields.u32()?, fields.u32()?);
    let len = fields.u32()?;
    let known = magic == MAGIC && version == 1 && len as usize >= HEADER_BYTES;
    known.then_some(len.into())
}

/// Parses the complete records after the header; the last record may still be incomplete.
///
/// The lines of a function precede it. If they end the list, they are left for the next call.
/// A record whose length is impossible ends the list.
pub fn parse(bytes: &[u8]) -> Parsed {
    let mut parsed = Parsed::default();
    let mut lines: HashMap<u64, Vec<CodeLine>> = HashMap::new();
    // Length of the last record if it describes the lines of code that is not listed yet.
    let mut lines_alone = None;
    while let Some(rest) = bytes.get(parsed.used..) {
        let mut fields = Fields(rest);
        let (Some(kind), Some(len), Some(_time)) = (fields.u32(), fields.u32(), fields.u64())
        else {
            break;
        };
        let len = len as usize;
        if len < RECORD_BYTES || kind > UNWINDING_INFO {
            // The next record cannot be found.
            parsed.malformed += 1;
            parsed.used = bytes.len();
            return parsed;
        }
        let Some(body) = rest.get(RECORD_BYTES..len) else {
            break;
        };
        parsed.used += len;
        let mut body = Fields(body);
        let understood = match kind {
            LOAD => body.load().map(|mut code| {
                code.lines = lines.remove(&code.start).unwrap_or_default();
                parsed.codes.push(code);
            }),
            MOVE => body
                .moved(&parsed.codes)
                .map(|code| parsed.codes.push(code)),
            DEBUG_INFO => body.lines().map(|(start, its)| {
                lines.insert(start, its);
            }),
            _ => Some(()),
        };
        parsed.malformed += u64::from(understood.is_none());
        lines_alone = understood.filter(|()| kind == DEBUG_INFO).map(|()| len);
    }
    parsed.used -= lines_alone.unwrap_or(0);
    parsed
}

/// Length of the fields at the start of each record: kind, length, time.
const RECORD_BYTES: usize = 16;

/// The fields that are still to be read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first))
    }

    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Some(name)
    }

    fn load(&mut self) -> Option<Code> {
        let _process_and_thread = self.u64()?;
        let _linked = self.u64()?;
        let (start, len) = (self.u64()?, self.u64()?);
        let _index = self.u64()?;
        let name = String::from_utf8_lossy(self.name()?);
        code(start, len, &name, Vec::new())
    }

    fn moved(&mut self, codes: &[Code]) -> Option<Code> {
        let _process_and_thread = self.u64()?;
        let _linked = self.u64()?;
        let (from, to, len) = (self.u64()?, self.u64()?, self.u64()?);
        let old = codes.iter().rev().find(|code| code.start == from)?;
        let line = |old: &CodeLine| CodeLine {
            start: old.start.wrapping_sub(from).wrapping_add(to),
            ..old.clone()
        };
        let lines = old.lines.iter().map(line).collect();
        code(to, len, &old.name, lines)
    }

    fn lines(&mut self) -> Option<(u64, Vec<CodeLine>)> {
        let (start, count) = (self.u64()?, self.u64()?);
        let mut lines: Vec<CodeLine> = Vec::new();
        for _ in 0..count {
            let (start, line) = (self.u64()?, self.u32()?);
            let _discriminator = self.u32()?;
            let file = match self.name()? {
                SAME_FILE => lines.last()?.file.clone(),
                file => bounded(&String::from_utf8_lossy(file)),
            };
            lines.push(CodeLine { start, file, line });
        }
        lines.sort_by_key(|line| line.start);
        Some((start, lines))
    }
}

fn code(start: u64, len: u64, name: &str, lines: Vec<CodeLine>) -> Option<Code> {
    start.checked_add(len)?;
    let plausible = len != 0 && !name.is_empty();
    plausible.then(|| Code {
        start,
        len,
        name: bounded(name),
        lines,
    })
}
