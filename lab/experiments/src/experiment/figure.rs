//! Figures in a result table: those of the paper, and ours with their confidence intervals.

use crate::ratio::{median, tail};
use serde::Serialize;
use std::fmt;

/// Unit of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A count, printed in full.
    Count,
    /// A large count, printed with the suffix k, M or G.
    Large,
    /// Seconds.
    Seconds,
    /// Nanoseconds.
    Nanoseconds,
    /// Per cent.
    Percent,
    /// A quotient of two figures with the same unit.
    Ratio,
}

impl Unit {
    /// Formats a value with the unit.
    pub fn format(self, value: f64) -> String {
        match self {
            Unit::Count if value.fract() == 0.0 => grouped(value),
            Unit::Count => format!("{value:.1}"),
            Unit::Large => scaled(value),
            Unit::Seconds if value < 0.1 => format!("{:.2} ms", value * 1e3),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Nanoseconds => format!("{value:.1} ns"),
            // Two decimals would not show on which side of 100 % the value is.
            Unit::Percent if value != 100.0 && (value - 100.0).abs() < 0.005 => {
                format!("{value:.4} %")
            }
            Unit::Percent => format!("{value:.2} %"),
            Unit::Ratio => format!("{value:.3}"),
        }
    }

    fn range(self, low: f64, high: f64) -> String {
        let (low, high) = (self.format(low), self.format(high));
        if low == high {
            return low;
        }
        // If both ends have the same unit, the unit is printed once.
        match (low.split_once(' '), high.split_once(' ')) {
            (Some((number, unit)), Some((_, other))) if unit == other => {
                format!("{number} to {high}")
            }
            _ => format!("{low} to {high}"),
        }
    }
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 {
        format!("-{text}")
    } else {
        text
    }
}

fn scaled(value: f64) -> String {
    let scales = [(1e9, " G"), (1e6, " M"), (1e3, " k")];
    match scales.iter().find(|(by, _)| value.abs() >= *by) {
        Some((by, suffix)) => format!("{:.2}{suffix}", value / by),
        None => format!("{value:.1}"),
    }
}

/// A figure that a paper states: the individual runs if the paper lists them, and the interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Published {
    /// The runs that the paper lists; empty if it lists none.
    pub runs: &'static [f64],
    /// Lower bound of the stated interval, or the stated figure.
    pub low: f64,
    /// Upper bound of the stated interval, or the stated figure.
    pub high: f64,
    /// Unit.
    pub unit: Unit,
}

impl Published {
    /// Creates a figure that the paper states without an interval.
    pub const fn exact(value: f64, unit: Unit) -> Self {
        Published::between(&[], value, value, unit)
    }

    /// Creates a figure with the paper's confidence interval.
    pub const fn between(runs: &'static [f64], low: f64, high: f64, unit: Unit) -> Self {
        Published {
            runs,
            low,
            high,
            unit,
        }
    }
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.unit.range(self.low, self.high))
    }
}

/// Lower and upper bound of an interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A figure that this program measured, counted or simulated.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Figure {
    /// Median of the runs.
    pub median: f64,
    /// Interval of order statistics around the median; `None` for a counted or simulated figure,
    /// which is exact.
    pub interval: Option<Interval>,
    /// Probability that the interval contains the true median.
    pub confidence: f64,
    /// Mean of the runs.
    pub mean: f64,
    /// Interval around the mean as the thesis computes it; see [`thesis_interval`].
    pub of_mean: Option<Interval>,
    /// The runs.
    pub runs: Vec<f64>,
    /// Unit.
    pub unit: Unit,
}

impl Figure {
    /// Creates a figure that is the same in every run.
    pub fn exact(value: f64, unit: Unit) -> Figure {
        Figure {
            median: value,
            interval: None,
            confidence: 1.0,
            mean: value,
            of_mean: None,
            runs: vec![value],
            unit,
        }
    }

    /// Creates a figure from the runs of a measurement; `None` if there are no runs.
    pub fn of_runs(runs: &[f64], unit: Unit) -> Option<Figure> {
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (below, confidence) = tail(sorted.len())?;
        Some(Figure {
            median: median(&sorted),
            interval: Some(Interval {
                low: sorted[below],
                high: sorted[sorted.len() - 1 - below],
            }),
            confidence,
            mean: runs.iter().sum::<f64>() / runs.len() as f64,
            of_mean: Some(thesis_interval(runs)),
            runs: runs.to_vec(),
            unit,
        })
    }

    /// Creates a figure from the ratios of paired runs; `None` if there are no pairs.
    pub fn of_pairs(of: &[f64], to: &[f64]) -> Option<Figure> {
        let ratios: Vec<f64> = of.iter().zip(to).map(|(of, to)| of / to).collect();
        Figure::of_runs(&ratios, Unit::Ratio)
    }

    /// Returns the interval; for an exact figure, both bounds equal the figure.
    pub fn ends(&self) -> Interval {
        self.interval.unwrap_or(Interval {
            low: self.median,
            high: self.median,
        })
    }

    /// Returns the interval as text; `None` for an exact figure.
    pub fn interval_text(&self) -> Option<String> {
        let Interval { low, high } = self.interval?;
        Some(self.unit.range(low, high))
    }

    /// Returns the interval of the mean as text; `None` for an exact figure.
    pub fn mean_text(&self) -> Option<String> {
        let Interval { low, high } = self.of_mean?;
        Some(self.unit.range(low, high))
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.unit.format(self.median))?;
        match self.interval_text() {
            Some(interval) if self.runs.len() > 1 => write!(f, " ({interval})"),
            _ => Ok(()),
        }
    }
}

/// Returns the 95 % confidence interval of the mean, computed as in the thesis.
///
/// The computation presumes a normal distribution: the half-width is 1.96 times the population
/// standard deviation, divided by the square root of the number of runs. With three runs, this
/// interval is narrower than a 95 % interval should be; claims are therefore decided with the
/// interval of the median.
pub fn thesis_interval(runs: &[f64]) -> Interval {
    let n = runs.len().max(1) as f64;
    let mean = runs.iter().sum::<f64>() / n;
    let variance = runs.iter().map(|run| (run - mean).powi(2)).sum::<f64>() / n;
    let half = 1.96 * (variance / n).sqrt();
    Interval {
        low: mean - half,
        high: mean + half,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 4.2 of the thesis states both the runs and the intervals.
    #[test]
    fn the_interval_of_the_mean_is_that_of_the_thesis() {
        for (runs, low, high) in [
            ([5.51, 5.38, 5.50], "5.40", "5.53"),
            ([3.44, 3.41, 3.49], "3.41", "3.48"),
            ([1.0, 0.0, 0.0], "-0.20", "0.87"),
        ] {
            let interval = thesis_interval(&runs);
            assert_eq!(format!("{:.2}", interval.low), low);
            assert_eq!(format!("{:.2}", interval.high), high);
        }
    }

    #[test]
    fn figures_are_printed_with_their_unit() {
        for (unit, value, text) in [
            (Unit::Count, 40018.0, "40,018"),
            (Unit::Count, 0.5, "0.5"),
            (Unit::Large, 19.9e9, "19.90 G"),
            (Unit::Large, 7.0, "7.0"),
            (Unit::Seconds, 0.0045, "4.50 ms"),
            (Unit::Percent, 73.45, "73.45 %"),
            (Unit::Percent, 100.0, "100.00 %"),
            (Unit::Percent, 100.0032, "100.0032 %"),
        ] {
            assert_eq!(unit.format(value), text);
        }
        assert_eq!(Unit::Seconds.range(5.4, 5.53), "5.40 to 5.53 s");
        assert_eq!(Unit::Seconds.range(0.05, 5.53), "50.00 ms to 5.53 s");
        assert_eq!(Figure::of_runs(&[], Unit::Count), None);
        let figure = Figure::of_runs(&[3.0, 1.0, 2.0], Unit::Count).unwrap();
        assert_eq!(figure.to_string(), "2 (1 to 3)");
        assert_eq!(Figure::exact(2.0, Unit::Count).to_string(), "2");
    }
}
