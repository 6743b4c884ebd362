//! Ratios of paired times.
//!
//! The two measurements of a pair run one after the other, so a disturbance of the machine that
//! lasts longer than a round affects both. The median and an interval of order statistics require
//! no assumption about the distribution of the times.

use serde::Serialize;

/// Median of the ratios of paired times, with its confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ratio {
    /// Median of the ratios.
    pub median: f64,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
    /// Probability that the interval contains the true median of the ratios.
    ///
    /// The interval is the narrowest one for which this probability is at least 0.95. With fewer
    /// than six pairs, no such interval exists; the interval then extends from the lowest to the
    /// highest ratio.
    pub confidence: f64,
    /// Number of pairs.
    pub pairs: usize,
}

impl Ratio {
    /// Returns the median of the ratios `of[i] / to[i]`; `None` if there are no pairs.
    pub fn of_pairs(of: &[f64], to: &[f64]) -> Option<Ratio> {
        let mut ratios: Vec<f64> = of.iter().zip(to).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        let n = ratios.len();
        let (below, confidence) = tail(n)?;
        Some(Ratio {
            median: median(&ratios),
            low: ratios[below],
            high: ratios[n - 1 - below],
            confidence,
            pairs: n,
        })
    }
}

/// Returns the median of sorted numbers; at least one number is required.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0
}

/// Returns how many of `n` sorted values to omit at each end of the list, and the confidence.
///
/// If `k` values are omitted at each end, the probability that the true median is below the
/// interval equals the probability of at most `k` heads in `n` tosses of a coin. The probability
/// that it is above the interval is the same.
pub(crate) fn tail(n: usize) -> Option<(usize, f64)> {
    let all = n.checked_sub(1)?;
    let mut outside = 0.5f64.powi(all as i32);
    let (mut below, mut binomial) = (0, 1.0);
    let mut confidence = 1.0 - outside;
    while below < all / 2 {
        binomial *= (n - below) as f64 / (below + 1) as f64;
        outside += binomial * 0.5f64.powi(all as i32);
        if 1.0 - outside < 0.95 {
            break;
        }
        below += 1;
        confidence = 1.0 - outside;
    }
    Some((below, confidence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_sign_test() {
        assert_eq!(tail(0), None);
        assert_eq!(tail(1), Some((0, 0.0)));
        assert_eq!(tail(5).unwrap(), (0, 0.9375));
        // From tables of the sign test: 11 pairs, second lowest to second highest, 98.8 %.
        let (below, confidence) = tail(11).unwrap();
        assert_eq!(below, 1);
        assert!((confidence - 0.98828).abs() < 1e-5);
        assert_eq!(tail(20).unwrap().0, 5);
    }

    #[test]
    fn pairs_are_divided_one_by_one() {
        let ratio = Ratio::of_pairs(&[2.0, 20.0, 3.0], &[1.0, 10.0, 1.0]).unwrap();
        assert_eq!((ratio.median, ratio.low, ratio.high), (2.0, 2.0, 3.0));
        assert_eq!(Ratio::of_pairs(&[], &[]), None);
    }
}
