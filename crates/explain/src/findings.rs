//! What a list of mappings looks like, described plainly where no cause is known.
//!
//! A cause explains a list ([`causes`](crate::causes)); a finding only says what is there, so that a
//! person can look for the code that makes it.

use super::causes::Cause;
use super::rows::MappingRow;
use super::text::count;
use serde::Serialize;
use std::collections::HashMap;

/// Minimum number of mappings in a conspicuous pattern.
const MANY: u64 = 1_000;

/// Kind of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Most mappings are alike, and no cause is known.
    Alike,
    /// Most mappings have free space before them.
    Gaps,
}

/// A conspicuous pattern in a list of mappings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Kind of the finding.
    pub kind: Kind,
    /// Number of mappings that belong to the pattern.
    pub mappings: u64,
    /// Finding as a sentence.
    pub text: String,
}

/// Returns all findings, largest first; none if a cause explains most of the mappings.
pub fn findings(rows: &[MappingRow], causes: &[Cause]) -> Vec<Finding> {
    let all = rows.len() as u64;
    let explained: u64 = causes.iter().map(|cause| cause.mappings).sum();
    if explained * 2 > all || all < MANY {
        return Vec::new();
    }
    alike(rows).into_iter().chain(gaps(rows)).collect()
}

/// What mappings have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Likeness<'a> {
    perm: &'a str,
    what: &'static str,
    reason: &'static str,
}

fn alike(rows: &[MappingRow]) -> Option<Finding> {
    let mut groups: HashMap<Likeness<'_>, Vec<u64>> = HashMap::new();
    for row in rows {
        let likeness = Likeness {
            perm: &row.perm,
            what: what(row),
            reason: row.reason.unwrap_or("gap"),
        };
        groups.entry(likeness).or_default().push(row.size);
    }
    let (likeness, mut sizes) = groups
        .into_iter()
        .max_by(|a, b| (a.1.len(), &a.0).cmp(&(b.1.len(), &b.0)))?;
    let mappings = sizes.len() as u64;
    if mappings * 3 < rows.len() as u64 {
        return None;
    }
    sizes.sort_unstable();
    let kib = |at: usize| count(sizes[at] >> 10);
    let Likeness { perm, what, reason } = likeness;
    Some(Finding {
        kind: Kind::Alike,
        mappings,
        text: format!(
            "no cause known: {} mappings are {perm}, {what}, apart because of {reason}, and between \
             {} and {} KiB large (median {} KiB)",
            count(mappings),
            kib(0),
            kib(sizes.len() - 1),
            kib(sizes.len() / 2),
        ),
    })
}

fn what(row: &MappingRow) -> &'static str {
    match row.mapping.as_str() {
        name if name.starts_with("/dev/") && !name.starts_with("/dev/shm/") => "of a device",
        name if name.starts_with('/') => "of files",
        _ if row.inode != 0 => "of files",
        _ => "anonymous",
    }
}

fn gaps(rows: &[MappingRow]) -> Option<Finding> {
    let gaps = rows.iter().filter(|row| row.reason == Some("gap")).count() as u64;
    (gaps >= MANY && gaps * 2 > rows.len() as u64).then(|| Finding {
        kind: Kind::Gaps,
        mappings: gaps,
        text: format!(
            "{} mappings have free space before them and so cannot be merged; only the program can \
             place them next to each other, or unmap them",
            count(gaps)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::rows;
    use vmarea_process::Process;

    fn found(lines: impl Iterator<Item = String>, explained: u64) -> Vec<Finding> {
        let text: String = lines.collect();
        let process = Process::from_text("text".to_owned(), text.as_bytes()).unwrap();
        let cause = Cause {
            name: String::new(),
            mappings: explained,
            count: 0,
            text: String::new(),
            evidence: String::new(),
            advice: String::new(),
            measured: String::new(),
            references: Vec::new(),
            versions: String::new(),
        };
        findings(&rows(&process, &process.boundaries()), &[cause])
    }

    fn alone(n: u64) -> String {
        let start = 0x1000_0000 + n * 0x3000;
        format!("{start:x}-{:x} rw-p 00000000 00:00 0\n", start + 0x2000)
    }

    #[test]
    fn what_no_cause_explains_is_described() {
        let found = found((0..1_500).map(alone), 700);
        assert_eq!(found[0].kind, Kind::Alike);
        let text = "no cause known: 1,500 mappings are rw-p, anonymous, apart because of gap, and \
                    between 8 and 8 KiB large (median 8 KiB)";
        assert_eq!(found[0].text, text);
        assert_eq!(found[1].kind, Kind::Gaps);
        assert_eq!(found[1].mappings, 1_499);
    }

    #[test]
    fn what_a_cause_explains_is_not_described_again() {
        assert!(found((0..1_500).map(alone), 800).is_empty());
        assert!(found((0..900).map(alone), 0).is_empty());
    }
}
