//! `vmarea explain --fail-above`: the number of mappings above which the command fails.

use anyhow::{anyhow, bail};
use std::str::FromStr;
use vmarea_explain::Report;

/// Number of mappings above which the command fails.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Threshold {
    Percent(f64),
    Mappings(u64),
}

impl FromStr for Threshold {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let wrong =
            || anyhow!("a percentage of the limit like 70%, or a number of mappings, is needed");
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
                if !(0.0..=100.0).contains(&percent) {
                    bail!("a percentage between 0% and 100% is needed");
                }
                Ok(Self::Percent(percent))
            }
            None => text.parse().map(Self::Mappings).map_err(|_| wrong()),
        }
    }
}

impl Threshold {
    /// Returns whether a report has more mappings; `None` if its list does not say.
    pub(super) fn is_exceeded(self, report: &Report) -> Option<bool> {
        match self {
            Self::Percent(percent) => Some(report.percent_of_limit()? > percent),
            // What is missing from a list would only add to it.
            Self::Mappings(mappings) if report.mappings > mappings => Some(true),
            Self::Mappings(_) => (!report.incomplete).then_some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_read_as_people_write_them() {
        assert_eq!(
            "70%".parse::<Threshold>().unwrap(),
            Threshold::Percent(70.0)
        );
        assert_eq!(
            "45000".parse::<Threshold>().unwrap(),
            Threshold::Mappings(45_000)
        );
        for wrong in ["", "x%", "-3%", "NaN%", "70 percent"] {
            assert!(wrong.parse::<Threshold>().is_err(), "{wrong}");
        }
    }
}
