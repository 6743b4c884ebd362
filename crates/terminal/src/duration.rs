//! Lengths of time on the command line, which all options take in one form: `500us`, `5ms`, `30s`,
//! `5m`, `2h`.

use anyhow::{anyhow, bail};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The units, from the largest one, in microseconds.
const UNITS: [(&str, u64); 5] = [
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// How long a step of a merge may stop a process.
pub const OF_PAUSES: RangeInclusive<Duration> =
    Duration::from_micros(1)..=Duration::from_secs(3600);

/// How long a running process is recorded.
pub const OF_RECORDINGS: RangeInclusive<Duration> =
    Duration::from_micros(1)..=Duration::from_secs(7 * 24 * 3600);

/// How long a comparison with the kernel goes on.
pub const OF_RUNS: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 3600);

/// Time between two samples of `top`.
pub const OF_INTERVALS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(24 * 3600);

/// Returns the parser of an option whose length of time is in this range.
pub fn length(
    range: RangeInclusive<Duration>,
) -> impl Fn(&str) -> anyhow::Result<Duration> + Clone + Send + Sync + 'static {
    move |argument| match duration(argument)? {
        Some(time) if range.contains(&time) => Ok(time),
        _ => bail!(
            "a length of time from {} to {} is needed",
            text(*range.start()),
            text(*range.end())
        ),
    }
}

/// Parses a number with a unit; `None` if the time is too long for a `Duration`.
fn duration(text: &str) -> anyhow::Result<Option<Duration>> {
    let at = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(at.unwrap_or(text.len()));
    let number: f64 = number
        .parse()
        .map_err(|_| anyhow!("a length of time like 500us, 5ms, 30s, 5m or 2h is needed"))?;
    let known = UNITS.iter().find(|(name, _)| *name == unit);
    let Some((_, micros)) = known else {
        match unit {
            "" => bail!("the unit is missing: write {text}s for seconds, or use us, ms, m or h"),
            _ => bail!("`{unit}` is not a unit: use us, ms, s, m or h"),
        }
    };
    Ok(Duration::try_from_secs_f64(number * *micros as f64 / 1e6).ok())
}

/// Returns a whole number of microseconds in the form in which an option takes it.
fn text(time: Duration) -> String {
    let micros = time.as_micros() as u64;
    let whole = UNITS.iter().find(|(_, unit)| micros.is_multiple_of(*unit));
    whole.map_or_else(String::new, |(name, unit)| {
        format!("{}{name}", micros / unit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_a_number_with_a_unit() {
        let micros = |text| {
            length(OF_RECORDINGS)(text)
                .map(|time| time.as_micros())
                .ok()
        };
        assert_eq!(micros("500us"), Some(500));
        assert_eq!(micros("500ms"), Some(500_000));
        assert_eq!(micros("30s"), Some(30_000_000));
        assert_eq!(micros("1.5m"), Some(90_000_000));
        assert_eq!(micros("2h"), Some(7_200_000_000));
        for wrong in [
            "",
            "s",
            "0s",
            "-1s",
            "30x",
            "1e3s",
            "169h",
            "..s",
            "5 ms",
            "NaNs",
            "1..5s",
            "9e99h",
            "99999999999999999999h",
        ] {
            assert_eq!(micros(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_message_says_what_is_needed() {
        let said = |range, text| length(range)(text).unwrap_err().to_string();
        assert_eq!(
            said(OF_RECORDINGS, "30"),
            "the unit is missing: write 30s for seconds, or use us, ms, m or h"
        );
        for (range, from, to) in [
            (OF_PAUSES, "1us", "1h"),
            (OF_RECORDINGS, "1us", "168h"),
            (OF_INTERVALS, "100ms", "24h"),
        ] {
            let needed = format!("a length of time from {from} to {to} is needed");
            assert_eq!(said(range.clone(), "0s"), needed);
            assert_eq!(said(range, "169h"), needed);
        }
    }
}
