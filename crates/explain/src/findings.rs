//! What a list of mappings looks like, described plainly where no cause is known.
//!
//! A cause explains a list ([`causes`](crate::causes)); a finding only says what is there, so that a
//! person can look for the code that makes it.

use super::causes::{Cause, Subject};
use super::text::count;
use serde::Serialize;
use std::collections::HashMap;
use vmarea_process::Reason;
use vmarea_process::maps::{MapName, MapsEntry};
use vmarea_trace::event::Perms;

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

/// Returns all findings, largest first; none if causes and repairs, which save `saved` mappings,
/// account for most of them.
pub fn findings(subject: &Subject<'_>, causes: &[Cause], saved: u64) -> Vec<Finding> {
    let all = subject.mappings.len() as u64;
    let explained: u64 = causes.iter().map(|cause| cause.mappings).sum();
    if (explained + saved) * 2 > all || all < MANY {
        return Vec::new();
    }
    alike(subject).into_iter().chain(gaps(subject)).collect()
}

/// What mappings have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Likeness {
    perms: Perms,
    what: &'static str,
    reason: &'static str,
}

fn alike(subject: &Subject<'_>) -> Option<Finding> {
    let mut groups: HashMap<Likeness, Vec<u64>> = HashMap::new();
    for (n, mapping) in subject.mappings.iter().enumerate() {
        let likeness = Likeness {
            perms: mapping.entry.perms,
            what: what(&mapping.entry),
            reason: subject.reason(n).unwrap_or(Reason::Gap).name(),
        };
        groups.entry(likeness).or_default().push(subject.size(n));
    }
    let (likeness, mut sizes) = groups
        .into_iter()
        .max_by(|a, b| (a.1.len(), &a.0).cmp(&(b.1.len(), &b.0)))?;
    let mappings = sizes.len() as u64;
    if mappings * 3 < subject.mappings.len() as u64 {
        return None;
    }
    sizes.sort_unstable();
    let kib = |at: usize| count(sizes[at] >> 10);
    let Likeness {
        perms,
        what,
        reason,
    } = likeness;
    Some(Finding {
        kind: Kind::Alike,
        mappings,
        text: format!(
            "no cause known: {} mappings are {perms}, {what}, apart because of {reason}, and between \
             {} and {} KiB large (median {} KiB)",
            count(mappings),
            kib(0),
            kib(sizes.len() - 1),
            kib(sizes.len() / 2),
        ),
    })
}

fn what(entry: &MapsEntry) -> &'static str {
    match &entry.name {
        MapName::Path(path) => match path.as_encoded_bytes() {
            path if path.starts_with(b"/dev/") && !path.starts_with(b"/dev/shm/") => "of a device",
            _ => "of files",
        },
        _ if entry.ino != 0 => "of files",
        _ => "anonymous",
    }
}

fn gaps(subject: &Subject<'_>) -> Option<Finding> {
    let all = subject.mappings.len();
    let gaps = (1..all).filter(|n| subject.reason(*n) == Some(Reason::Gap));
    let gaps = gaps.count() as u64;
    (gaps >= MANY && gaps * 2 > all as u64).then(|| Finding {
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
    use vmarea_process::Process;
    use vmarea_process::evidence::Evidence;

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
        let boundaries = process.boundaries();
        let evidence = Evidence::default();
        findings(&Subject::new(&process, &boundaries, &evidence), &[cause], 0)
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
