//! Durations on the command line: `500ms`, `30s`, `5m`, `2h`.

use anyhow::{anyhow, bail};
use std::time::Duration;

/// Longest accepted duration.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// Parses a number with a unit.
///
/// # Errors
/// Fails without a unit, for an unknown unit, and for a duration of zero or over seven days.
pub fn duration(text: &str) -> anyhow::Result<Duration> {
    let at = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(at.unwrap_or(text.len()));
    let number: f64 = number
        .parse()
        .map_err(|_| anyhow!("a duration like 500ms, 30s, 5m or 2h is needed"))?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        "" => bail!("the unit is missing: write {text}s for seconds, or use ms, m or h"),
        _ => bail!("`{unit}` is not a unit: use ms, s, m or h"),
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() && time <= LONGEST => Ok(time),
        _ => bail!("a duration above zero and up to 168h is needed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_needs_a_unit_and_a_reasonable_size() {
        let millis = |text| duration(text).map(|time| time.as_millis()).ok();
        assert_eq!(millis("500ms"), Some(500));
        assert_eq!(millis("30s"), Some(30_000));
        assert_eq!(millis("1.5m"), Some(90_000));
        assert_eq!(millis("2h"), Some(7_200_000));
        for wrong in ["", "s", "0s", "-1s", "30x", "1e3s", "169h", "..s"] {
            assert_eq!(millis(wrong), None, "{wrong}");
        }
        let missing = duration("30").unwrap_err().to_string();
        assert!(missing.contains("30s"), "{missing}");
    }
}
