//! Parses the common parts of `perf script` lines: the head, perf's own records, numbers.

use crate::event::{Nanos, Tid};
use crate::import::state::FileKey;
use crate::import::text::{hex, id, number, seconds};
use winnow::ascii::{digit1, space0, space1};
use winnow::combinator::{delimited, opt, preceded, terminated};
use winnow::prelude::*;

/// A file mapping in one of perf's own records.
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) key: FileKey,
    pub(super) path: String,
}

/// Task and time at the start of a line.
pub(super) struct Head {
    pub(super) pid: Option<Tid>,
    pub(super) tid: Tid,
    pub(super) time: Nanos,
}

/// Splits `COMM PID/TID [CPU] TIME: REST`.
///
/// A command name may contain spaces, and all parts except `TID` and `TIME` may be absent.
pub(super) fn split(text: &str) -> Option<(Head, &str)> {
    let text = text.trim_start();
    let starts = (text.match_indices(' ')).map(|(at, _)| &text[at..]);
    for start in [text].into_iter().chain(starts) {
        let rest = &mut start.trim_start();
        if let Ok(head) = head(rest) {
            return Some((head, rest.trim_start()));
        }
    }
    None
}

fn head(input: &mut &str) -> ModalResult<Head> {
    let first = id(input)?;
    let second = opt(preceded("/", id)).parse_next(input)?;
    let cpu = delimited("[", digit1, "]");
    let (_, _, time) = (
        space1,
        opt(terminated(cpu, space1)),
        terminated(seconds, ":"),
    )
        .parse_next(input)?;
    Ok(Head {
        pid: second.is_some().then_some(Tid(first)),
        tid: Tid(second.unwrap_or(first)),
        time,
    })
}

/// Reads `PID:TID):(PID:TID)`.
pub(super) fn pairs(text: &str) -> Option<((Tid, Tid), (Tid, Tid))> {
    let ids: Option<Vec<Tid>> = (text.split([':', '(', ')']))
        .filter(|part| !part.is_empty())
        .map(|part| part.trim().parse().ok().map(Tid))
        .collect();
    match ids?[..] {
        [pid, tid, parent_pid, parent] => Some(((pid, tid), (parent_pid, parent))),
        _ => None,
    }
}

/// Reads `PID/TID: [START(LEN) @ OFFSET MAJOR:MINOR INODE GENERATION]: PERMS PATH`.
///
/// The inner option is `None` if the mapping has no file.
pub(super) fn parse_mapping(text: &str) -> Option<Option<Mapping>> {
    let (_, rest) = text.split_once('[')?;
    let (range, rest) = rest.split_once(" @ ")?;
    let (start, _) = range.split_once('(')?;
    let (place, rest) = rest.split_once("]: ")?;
    let path = rest.split_once(' ')?.1.trim();
    let mut words = place.split(' ').skip(1);
    let (major, minor) = words.next()?.split_once(':')?;
    let ino: u64 = words.next()?.parse().ok()?;
    let device = hex.parse(major).ok()? << 20 | hex.parse(minor).ok()?;
    Some((ino != 0).then_some(Mapping {
        start: number.parse(start).ok()?,
        key: FileKey::Number(device, ino),
        path: path.to_owned(),
    }))
}

pub(super) fn hex_field(text: &str, name: &str) -> Option<u64> {
    let rest = text.split_once(name)?.1;
    let input = &mut rest.strip_prefix("0x")?;
    hex.parse_next(input).ok()
}

pub(super) fn is_software_fault(event: &str) -> bool {
    let (name, mode) = event.split_once(':').unwrap_or((event, ""));
    let mode = mode.bytes().all(|b| b"ukhpP".contains(&b));
    mode && matches!(
        name,
        "page-faults" | "faults" | "minor-faults" | "major-faults"
    )
}

/// Finds the address of an instruction; the instruction's symbol and file may precede the address.
pub(super) fn instruction(text: &str) -> Option<u64> {
    let address = |text: &str| {
        let input = &mut &*text;
        let value = (space0, hex).parse_next(input).ok()?.1;
        input
            .starts_with([' ', '\t'])
            .then_some(value)
            .or(input.is_empty().then_some(value))
    };
    address(text).or_else(|| {
        text.match_indices(") ")
            .find_map(|(at, _)| address(&text[at + 2..]))
    })
}
