//! Reasons why neighbours are apart: their counts, and a colour for each.
//!
//! The crate `process` finds the reason of each boundary; this module counts them for a range of
//! boundaries. A reason has the same colour in every drawing.

use serde::Serialize;
use std::collections::BTreeMap;
use vmarea::vma::merge::Refusal;
use vmarea_process::{Boundary, Certainty, Reason};

/// A reason, with the number of boundaries that have it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Apart {
    /// Short name of the reason, as in `explain`.
    pub reason: &'static str,
    /// Meaning of the reason in a few words.
    pub words: &'static str,
    /// Number of boundaries that have this reason.
    pub boundaries: u64,
    /// Number of these boundaries for which the reason is certain.
    pub certain: u64,
    /// Number of these boundaries that a repair can remove.
    pub removable: u64,
    #[serde(skip)]
    pub(crate) color: &'static str,
}

/// Counts the reasons of `boundaries`, most frequent first.
pub fn counts(boundaries: &[Boundary]) -> Vec<Apart> {
    let mut counts: BTreeMap<Reason, Apart> = BTreeMap::new();
    for boundary in boundaries {
        let reason = boundary.reason;
        let count = counts.entry(reason).or_insert_with(|| Apart {
            reason: reason.name(),
            words: reason.words(),
            boundaries: 0,
            certain: 0,
            removable: 0,
            color: color(reason),
        });
        count.boundaries += 1;
        count.certain += u64::from(boundary.certainty == Certainty::Certain);
        count.removable += u64::from(boundary.remedy.is_some());
    }
    let mut counts: Vec<_> = counts.into_values().collect();
    // Stable: reasons that are equally frequent keep their order.
    counts.sort_by_key(|count| std::cmp::Reverse(count.boundaries));
    counts
}

/// Colour of the places that a repair can merge.
pub(crate) const REMOVABLE: &str = "#27ae60";

/// Returns the colour of a reason.
pub(crate) fn color(reason: Reason) -> &'static str {
    let refusal = match reason {
        Reason::Gap => return "#c9ced6",
        Reason::Cut => return "#f5f5f5",
        Reason::Guard => return "#34495e",
        Reason::Nothing => return "#2ecc71",
        Reason::Rule(refusal) => refusal,
    };
    match refusal {
        Refusal::Protection => "#2471a3",
        Refusal::Flags => "#76448a",
        Refusal::AnonVma => "#d35400",
        Refusal::PageOffset => "#f1c40f",
        Refusal::File => "#85c1e9",
        Refusal::FileOffset => "#148f77",
        Refusal::Name => "#e59bb6",
        Refusal::Special => "#909497",
        Refusal::Policy => "#8d6e4a",
        Refusal::Sealed => "#641e16",
        Refusal::Userfaultfd => "#c0392b",
        Refusal::Hugetlb => "#1b4f72",
        Refusal::Pinned => "#4a235a",
        Refusal::CloseHook => "#7e5109",
        Refusal::Opaque => "#17202a",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boundary(reason: Reason, certainty: Certainty) -> Boundary {
        Boundary {
            reason,
            certainty,
            candidates: Vec::new(),
            remedy: None,
        }
    }

    #[test]
    fn the_most_frequent_reason_comes_first() {
        let likely = boundary(Reason::Rule(Refusal::AnonVma), Certainty::Likely);
        let gap = boundary(Reason::Gap, Certainty::Certain);
        let guard = boundary(Reason::Guard, Certainty::Certain);
        let counts = counts(&[guard, likely.clone(), gap, likely]);
        let said: Vec<_> = counts
            .iter()
            .map(|c| (c.reason, c.boundaries, c.certain))
            .collect();
        assert_eq!(said, [("anon_vma", 2, 0), ("gap", 1, 1), ("guard", 1, 1)]);
    }

    #[test]
    fn frequent_reasons_differ_in_colour() {
        let frequent = [
            Reason::Gap,
            Reason::Guard,
            Reason::Nothing,
            Reason::Rule(Refusal::Protection),
            Reason::Rule(Refusal::Flags),
            Reason::Rule(Refusal::AnonVma),
            Reason::Rule(Refusal::PageOffset),
            Reason::Rule(Refusal::File),
            Reason::Rule(Refusal::FileOffset),
            Reason::Rule(Refusal::Name),
            Reason::Rule(Refusal::Special),
            Reason::Rule(Refusal::Policy),
        ];
        let colors: std::collections::BTreeSet<_> = frequent.map(color).into();
        assert_eq!(colors.len(), frequent.len(), "{colors:?}");
    }
}
