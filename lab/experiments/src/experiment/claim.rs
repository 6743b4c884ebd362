//! The papers' claims, each tested against the confidence intervals of our measurements.

use super::figure::{Figure, Interval, Unit};
use super::idle::Idle;
use serde::Serialize;

/// Result of comparing a claim with our figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The whole interval satisfies the claim.
    Holds,
    /// The whole interval contradicts the claim.
    DoesNotHold,
    /// The claim's bound lies within the interval, the number of cases or runs is too small, or
    /// other programs disturbed the measurement.
    Undecided,
    /// No figure of the experiment could contradict the claim, so none decides it.
    Withdrawn,
}

impl Decision {
    /// Returns the decision in words.
    pub fn text(self) -> &'static str {
        match self {
            Decision::Holds => "holds",
            Decision::DoesNotHold => "does not hold",
            Decision::Undecided => "undecided",
            Decision::Withdrawn => "withdrawn",
        }
    }
}

/// The bound that a claim sets for a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bound {
    /// The figure is at least this value.
    AtLeast(f64),
    /// The figure is at most this value.
    AtMost(f64),
    /// The figure is more than this value.
    MoreThan(f64),
    /// The figure is less than this value.
    LessThan(f64),
    /// The figure is this value.
    Exactly(f64),
}

impl Bound {
    /// Decides whether a figure with this interval satisfies the bound.
    pub fn decide(self, Interval { low, high }: Interval) -> Decision {
        let (certain, excluded) = match self {
            Bound::AtLeast(bound) => (low >= bound, high < bound),
            Bound::AtMost(bound) => (high <= bound, low > bound),
            Bound::MoreThan(bound) => (low > bound, high <= bound),
            Bound::LessThan(bound) => (high < bound, low >= bound),
            Bound::Exactly(bound) => (low == bound && high == bound, high < bound || low > bound),
        };
        match (certain, excluded) {
            (true, _) => Decision::Holds,
            (_, true) => Decision::DoesNotHold,
            _ => Decision::Undecided,
        }
    }

    /// Returns what satisfies the bound and what contradicts it as texts, with a unit.
    fn texts(self, unit: Unit) -> [String; 2] {
        let (satisfies, contradicts, bound) = match self {
            Bound::AtLeast(bound) => ("at least", "less than", bound),
            Bound::AtMost(bound) => ("at most", "more than", bound),
            Bound::MoreThan(bound) => ("more than", "at most", bound),
            Bound::LessThan(bound) => ("less than", "at least", bound),
            Bound::Exactly(bound) => ("exactly", "anything but", bound),
        };
        [satisfies, contradicts].map(|text| format!("{text} {}", unit.format(bound)))
    }
}

/// One claim of a paper.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Claim {
    /// The claim in our words.
    pub text: String,
    /// The paper's figure.
    pub paper: String,
    /// Our figure, what it measures, and the bound that it must satisfy; or why the claim is
    /// undecided or withdrawn.
    pub ours: String,
    /// The result that would contradict the claim; `None` if the claim is withdrawn.
    pub refuted_by: Option<String>,
    /// Whether the claim holds for our figure.
    pub decision: Decision,
}

impl Claim {
    /// Decides a claim with a bound on a counted figure, or on a measured one that does not depend
    /// on the load of the machine; `what` names the quantity.
    ///
    /// If the measurement has only a single run, the claim is undecided.
    pub fn by(
        text: impl Into<String>,
        paper: impl Into<String>,
        (what, ours): (&str, &Figure),
        bound: Bound,
    ) -> Claim {
        let single = ours.interval.is_some() && ours.runs.len() < 2;
        let [satisfies, contradicts] = bound.texts(ours.unit);
        let whole = ours.interval.map_or("", |_| ", with the whole interval");
        Claim {
            text: text.into(),
            paper: paper.into(),
            ours: format!("{what}: {ours}; the claim needs {satisfies}"),
            refuted_by: Some(format!("{what}: {contradicts}{whole}")),
            decision: if single {
                Decision::Undecided
            } else {
                bound.decide(ours.ends())
            },
        }
    }

    /// Decides a claim with a bound on a figure of wall-clock time.
    ///
    /// If the machine was not idle during the measurement, the claim is undecided.
    pub(super) fn by_clock(
        text: impl Into<String>,
        paper: impl Into<String>,
        figure: (&str, &Figure),
        bound: Bound,
        idle: Idle,
    ) -> Claim {
        let mut claim = Claim::by(text, paper, figure, bound);
        if let Some(objection) = idle.objection() {
            claim.ours = format!("{}; {objection}", claim.ours);
            claim.decision = Decision::Undecided;
        }
        claim
    }

    /// Creates a claim that our figures cannot decide, for the reason `why`.
    pub fn undecided(
        text: impl Into<String>,
        paper: impl Into<String>,
        refuted_by: impl Into<String>,
        why: impl Into<String>,
    ) -> Claim {
        Claim {
            text: text.into(),
            paper: paper.into(),
            ours: why.into(),
            refuted_by: Some(refuted_by.into()),
            decision: Decision::Undecided,
        }
    }

    /// Creates a claim that an experiment used to decide although no result could contradict it,
    /// for the reason `why`.
    pub fn withdrawn(
        text: impl Into<String>,
        paper: impl Into<String>,
        why: impl Into<String>,
    ) -> Claim {
        Claim {
            text: text.into(),
            paper: paper.into(),
            ours: why.into(),
            refuted_by: None,
            decision: Decision::Withdrawn,
        }
    }

    /// Decides the claim that a share of at least `bound` of all cases are of the kind `what`.
    ///
    /// With fewer than [`FEWEST`] cases, the claim is undecided.
    pub fn share(
        text: impl Into<String>,
        paper: impl Into<String>,
        (part, whole, what): (u64, u64, &str),
        bound: f64,
    ) -> Claim {
        let ends = wilson(part, whole);
        let percent = 100.0 * part as f64 / whole.max(1) as f64;
        Claim {
            text: text.into(),
            paper: paper.into(),
            ours: if whole < FEWEST {
                format!("{part} of {whole} {what}; the claim needs {FEWEST} or more of them")
            } else {
                format!(
                    "{part} of {whole} {what}, {percent:.1} % ({:.1} to {:.1} %); the claim needs \
                     at least {:.0} %",
                    100.0 * ends.low,
                    100.0 * ends.high,
                    100.0 * bound
                )
            },
            refuted_by: Some(format!(
                "less than {:.0} % of {FEWEST} or more {what}, with the whole interval",
                100.0 * bound
            )),
            decision: if whole < FEWEST {
                Decision::Undecided
            } else {
                Bound::AtLeast(bound).decide(ends)
            },
        }
    }
}

/// Minimum number of cases needed to decide a claim about a share.
pub const FEWEST: u64 = 30;

/// Returns the 95 % confidence interval of a share (Wilson's score interval).
fn wilson(part: u64, whole: u64) -> Interval {
    const Z: f64 = 1.96;
    let n = whole.max(1) as f64;
    let p = part as f64 / n;
    let scale = 1.0 / (1.0 + Z * Z / n);
    let centre = scale * (p + Z * Z / (2.0 * n));
    let half = scale * Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    Interval {
        low: (centre - half).max(0.0),
        high: (centre + half).min(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figure::Unit;
    use super::*;

    #[test]
    fn the_interval_decides() {
        let figure = Figure::of_runs(&[0.8, 0.9, 1.1], Unit::Ratio).unwrap();
        for (bound, decision) in [
            (Bound::AtLeast(0.8), Decision::Holds),
            (Bound::AtLeast(1.0), Decision::Undecided),
            (Bound::AtLeast(1.2), Decision::DoesNotHold),
            (Bound::AtMost(1.1), Decision::Holds),
            (Bound::AtMost(1.0), Decision::Undecided),
            (Bound::AtMost(0.7), Decision::DoesNotHold),
            (Bound::MoreThan(0.8), Decision::Undecided),
            (Bound::MoreThan(1.1), Decision::DoesNotHold),
            (Bound::LessThan(0.8), Decision::DoesNotHold),
            (Bound::LessThan(1.2), Decision::Holds),
            (Bound::Exactly(0.9), Decision::Undecided),
            (Bound::Exactly(1.2), Decision::DoesNotHold),
        ] {
            assert_eq!(bound.decide(figure.ends()), decision, "{bound:?}");
        }
        let once = Figure::of_runs(&[0.5], Unit::Ratio).unwrap();
        let claim = Claim::by("", "", ("time", &once), Bound::AtMost(1.0));
        assert_eq!(claim.decision, Decision::Undecided);
        let exact = Figure::exact(0.5, Unit::Ratio);
        let claim = Claim::by("", "", ("time", &exact), Bound::AtMost(1.0));
        assert_eq!(claim.decision, Decision::Holds);
        assert_eq!(claim.ours, "time: 0.500; the claim needs at most 1.000");
        assert_eq!(claim.refuted_by.unwrap(), "time: more than 1.000");
    }

    #[test]
    fn a_busy_machine_decides_nothing_by_the_clock() {
        let figure = Figure::of_runs(&[0.2, 0.3], Unit::Ratio).unwrap();
        let claim = |used| {
            let idle = Idle(Some(used));
            Claim::by_clock("", "", ("speed", &figure), Bound::AtLeast(1.7), idle)
        };
        assert_eq!(claim(0.0).decision, Decision::DoesNotHold);
        assert_eq!(claim(12.0).decision, Decision::Undecided);
        assert!(
            claim(12.0)
                .ours
                .ends_with("other programs used 12.00 processors")
        );
    }

    #[test]
    fn a_share_needs_enough_cases() {
        let claim = |part, whole| Claim::share("", "", (part, whole, "cases"), 0.9);
        let decision = |part, whole| claim(part, whole).decision;
        assert_eq!(decision(0, 0), Decision::Undecided);
        assert_eq!(decision(29, 29), Decision::Undecided);
        assert_eq!(decision(127, 127), Decision::Holds);
        assert_eq!(decision(60, 127), Decision::DoesNotHold);
        assert_eq!(decision(115, 127), Decision::Undecided);
        assert_eq!(
            claim(127, 127).ours,
            "127 of 127 cases, 100.0 % (97.1 to 100.0 %); the claim needs at least 90 %"
        );
        assert_eq!(
            claim(3, 3).ours,
            "3 of 3 cases; the claim needs 30 or more of them"
        );
        // Wilson's interval for 81 of 263, a published example.
        let ends = wilson(81, 263);
        assert!((ends.low - 0.2553).abs() < 1e-3 && (ends.high - 0.3662).abs() < 1e-3);
    }
}
