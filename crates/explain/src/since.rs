//! Two moments of a process compared: what grew, how fast, and when the limit is met.
//!
//! Counts are compared by cause, by reason and by function. Rates need the times of both moments;
//! if the clock went backwards in between, there are none.

use crate::Report;
use crate::causes::Cause;
use crate::text::count;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Counts of a process at one moment, from a report or from the JSON of an earlier one.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Moment {
    /// Time of the moment, in milliseconds since 1970, if known.
    #[serde(default)]
    pub taken_unix_ms: Option<u64>,
    /// Process ID, if there is one.
    #[serde(default)]
    pub pid: Option<i32>,
    /// Number of mappings.
    pub mappings: u64,
    /// Maximum number of mappings, if known.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Mappings by reason.
    pub reasons: Vec<ReasonAt>,
    /// Known causes.
    #[serde(default)]
    pub causes: Vec<Cause>,
    /// Functions that made the mappings.
    #[serde(default)]
    pub made_from: Vec<SiteAt>,
}

/// Number of mappings with one reason.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct ReasonAt {
    /// Short name of the reason.
    pub reason: String,
    /// Number of mappings.
    pub mappings: u64,
}

/// Number of mappings that one function of the program made.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct SiteAt {
    /// The function.
    pub code: CodeAt,
    /// Number of mappings.
    pub mappings: u64,
}

/// A function of the program, without the line, which differs between calls.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct CodeAt {
    /// Name of the function.
    pub function: String,
    /// Source file, if known.
    #[serde(default)]
    pub file: Option<String>,
}

impl From<&Report> for Moment {
    fn from(report: &Report) -> Moment {
        let reasons = report.reasons.iter().map(|count| ReasonAt {
            reason: count.reason.to_owned(),
            mappings: count.mappings,
        });
        let made_from = report.made_from.iter().map(|made| SiteAt {
            code: CodeAt {
                function: made.code.function.clone(),
                file: made.code.file.clone(),
            },
            mappings: made.mappings,
        });
        Moment {
            taken_unix_ms: report.taken_unix_ms,
            pid: report.pid,
            mappings: report.mappings,
            limit: report.limit,
            reasons: reasons.collect(),
            causes: report.causes.clone(),
            made_from: made_from.collect(),
        }
    }
}

/// A count at two moments.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// What was counted.
    pub what: String,
    /// Count at the earlier moment.
    pub before: u64,
    /// Count at the later moment.
    pub now: u64,
    /// Growth per minute, if the count grew and both times are known.
    pub per_minute: Option<f64>,
}

/// Difference between two moments.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Growth {
    /// Time between the moments, if known.
    pub seconds: Option<f64>,
    /// All mappings.
    pub mappings: Change,
    /// Known causes whose counts changed, largest growth first.
    pub causes: Vec<Change>,
    /// Reasons whose counts changed, largest growth first.
    pub reasons: Vec<Change>,
    /// Functions whose counts of mappings changed, if both moments have call stacks.
    pub call_sites: Vec<Change>,
    /// Maximum number of mappings at the later moment, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Time until the limit is met at this rate, if the process grows.
    pub limit_met_in_minutes: Option<f64>,
    /// Reservations, as sentences without a full stop.
    pub notes: Vec<String>,
}

/// Compares two moments.
pub fn growth(before: &Moment, now: &Moment) -> Growth {
    let mut notes = Vec::new();
    let seconds = match (before.taken_unix_ms, now.taken_unix_ms) {
        (Some(then), Some(now)) if now > then => Some((now - then) as f64 * 1e-3),
        (Some(then), Some(now)) if now < then => {
            notes.push("time went backwards between the moments: no rates".to_owned());
            None
        }
        (Some(_), Some(_)) => {
            notes.push("both moments have the same time: no rates".to_owned());
            None
        }
        _ => {
            notes.push("the time of a moment is unknown: no rates".to_owned());
            None
        }
    };
    if let (Some(then), Some(now)) = (before.pid, now.pid)
        && then != now
    {
        notes.push(format!("two processes are compared: {then} and {now}"));
    }
    let change = |what: &str, before: u64, now: u64| Change {
        what: what.to_owned(),
        before,
        now,
        per_minute: seconds
            .filter(|_| now > before)
            .map(|seconds| (now - before) as f64 * 60.0 / seconds),
    };
    let reasons = |m: &Moment| counts(m.reasons.iter().map(|r| (r.reason.clone(), r.mappings)));
    let causes = |m: &Moment| counts(m.causes.iter().map(|c| (c.name.clone(), c.mappings)));
    let sites = |m: &Moment| {
        let key = |site: &SiteAt| match &site.code.file {
            Some(file) => format!("{} ({file})", site.code.function),
            None => site.code.function.clone(),
        };
        counts(m.made_from.iter().map(|site| (key(site), site.mappings)))
    };
    let both_have_stacks = !before.made_from.is_empty() && !now.made_from.is_empty();
    let mappings = change("mappings", before.mappings, now.mappings);
    let room = now
        .limit
        .map(|limit| limit.saturating_sub(now.mappings) as f64);
    Growth {
        seconds,
        limit_met_in_minutes: room
            .zip(mappings.per_minute)
            .map(|(room, rate)| room / rate),
        mappings,
        causes: changes(&causes(before), &causes(now), change),
        reasons: changes(&reasons(before), &reasons(now), change),
        call_sites: if both_have_stacks {
            changes(&sites(before), &sites(now), change)
        } else {
            Vec::new()
        },
        limit: now.limit,
        notes,
    }
}

fn counts(all: impl Iterator<Item = (String, u64)>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (what, n) in all {
        *counts.entry(what).or_default() += n;
    }
    counts
}

fn changes(
    before: &BTreeMap<String, u64>,
    now: &BTreeMap<String, u64>,
    change: impl Fn(&str, u64, u64) -> Change,
) -> Vec<Change> {
    let mut names: Vec<_> = before.keys().chain(now.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let count = |counts: &BTreeMap<String, u64>, name| counts.get(name).copied().unwrap_or(0);
    let all = names
        .into_iter()
        .map(|name| change(name, count(before, name), count(now, name)));
    let mut changed: Vec<_> = all.filter(|change| change.before != change.now).collect();
    changed.sort_by_key(|change| change.before as i128 - change.now as i128);
    changed
}

impl Growth {
    /// Writes the difference as text.
    ///
    /// # Errors
    /// Any error from writing to `out`.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let when = match self.seconds {
            Some(seconds) => format!(" in {}", duration(seconds / 60.0)),
            None => String::new(),
        };
        let of = &self.mappings;
        writeln!(
            out,
            "{} mappings before, {} now{when}",
            count(of.before),
            count(of.now)
        )?;
        for note in &self.notes {
            writeln!(out, "({note})")?;
        }
        let groups = [
            ("CAUSE", &self.causes),
            ("REASON", &self.reasons),
            ("CALL SITE", &self.call_sites),
        ];
        for (heading, changes) in groups.iter().filter(|(_, changes)| !changes.is_empty()) {
            writeln!(
                out,
                "\n{heading:<32} {:>10} {:>10} {:>10} {:>12}",
                "BEFORE", "NOW", "CHANGE", "PER MINUTE"
            )?;
            for change in *changes {
                write_change(out, change)?;
            }
        }
        match self.limit.zip(self.limit_met_in_minutes) {
            Some((limit, minutes)) => writeln!(
                out,
                "\nAt this rate the limit of {} is met in {}.",
                count(limit),
                duration(minutes)
            ),
            None => Ok(()),
        }
    }
}

fn write_change(out: &mut dyn Write, change: &Change) -> io::Result<()> {
    let by = change.now.abs_diff(change.before);
    let sign = if change.now > change.before { '+' } else { '-' };
    let rate = change
        .per_minute
        .map_or("-".to_owned(), |rate| format!("{rate:.1}"));
    let what: String = crate::rows::printable(&change.what)
        .chars()
        .take(32)
        .collect();
    writeln!(
        out,
        "{what:<32} {:>10} {:>10} {:>10} {rate:>12}",
        count(change.before),
        count(change.now),
        format!("{sign}{}", count(by)),
    )
}

/// Formats a number of minutes in readable units.
fn duration(minutes: f64) -> String {
    match minutes {
        m if m < 2.0 => format!("{:.0} s", m * 60.0),
        m if m < 120.0 => format!("{m:.0} min"),
        m if m < 48.0 * 60.0 => format!("{:.0} h", m / 60.0),
        m => format!("{:.0} days", m / 60.0 / 24.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(ms: Option<u64>, anon_vma: u64, gap: u64) -> Moment {
        let reason = |reason: &str, mappings| ReasonAt {
            reason: reason.to_owned(),
            mappings,
        };
        Moment {
            taken_unix_ms: ms,
            pid: Some(7),
            mappings: anon_vma + gap + 1,
            limit: Some(65_530),
            reasons: vec![reason("anon_vma", anon_vma), reason("gap", gap)],
            causes: Vec::new(),
            made_from: Vec::new(),
        }
    }

    #[test]
    fn growth_has_a_rate_and_meets_the_limit() {
        let growth = growth(&moment(Some(0), 100, 50), &moment(Some(120_000), 5_300, 20));
        let changed: Vec<_> = growth
            .reasons
            .iter()
            .map(|c| (c.what.as_str(), c.per_minute))
            .collect();
        assert_eq!(changed, [("anon_vma", Some(2_600.0)), ("gap", None)]);
        let minutes = growth.limit_met_in_minutes.unwrap();
        assert!((minutes - 60_209.0 / 2_585.0).abs() < 1e-9, "{minutes}");
        let mut text = Vec::new();
        growth.write_text(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains("the limit of 65,530 is met in 23 min"),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn a_clock_that_jumps_gives_no_rate() {
        let growth = growth(&moment(Some(9_000), 1, 1), &moment(Some(8_000), 900, 1));
        assert_eq!(growth.seconds, None);
        assert_eq!(growth.limit_met_in_minutes, None);
        assert!(
            growth
                .reasons
                .iter()
                .all(|change| change.per_minute.is_none())
        );
        assert!(growth.notes[0].contains("backwards"), "{:?}", growth.notes);
    }
}
