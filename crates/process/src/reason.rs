//! Reasons why two neighbouring mappings are separate, and the certainty of these reasons.

use vmarea_merge::Refusal;

/// Reason why two neighbouring mappings are separate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// Free space between the two mappings.
    Gap,
    /// The list was cut between the two mappings, or a line between them cannot be read.
    Cut,
    /// One of the two mappings is a guard: a small inaccessible mapping next to a larger mapping.
    Guard,
    /// A kernel rule keeps the two mappings apart.
    Rule(Refusal),
    /// Nothing keeps the mappings apart. The next call that touches the boundary merges them.
    Nothing,
}

impl Reason {
    /// Returns the short name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Gap => "gap",
            Reason::Cut => "cut",
            Reason::Guard => "guard",
            Reason::Rule(refusal) => refusal.name(),
            Reason::Nothing => "nothing",
        }
    }

    /// Returns a short description of the reason.
    pub fn words(self) -> &'static str {
        match self {
            Reason::Gap => "free space between",
            Reason::Cut => "unknown: the list was cut here",
            Reason::Guard => "a guard: no access",
            Reason::Nothing => "nothing: the next call there merges them",
            Reason::Rule(refusal) => match refusal {
                Refusal::Special => "of the kernel itself or of a driver",
                Refusal::Hugetlb => "hugetlbfs",
                Refusal::Policy => "different memory policies",
                Refusal::Protection => "different permissions",
                Refusal::Flags => "different flags",
                Refusal::Sealed => "sealed (mseal)",
                Refusal::File => "different files, or file and anonymous",
                Refusal::Userfaultfd => "watched by userfaultfd",
                Refusal::Name => "different names (PR_SET_VMA)",
                Refusal::AnonVma => "first written separately (anon_vma)",
                Refusal::PageOffset => "moved by mremap (page offset)",
                Refusal::Pinned => "pinned pages",
                Refusal::FileOffset => "same file, not contiguous in it",
                Refusal::CloseHook => "a System V segment",
                Refusal::Opaque => "unknown",
            },
        }
    }
}

/// Certainty of a reason.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// The reason was observed, and it is sufficient to keep the two mappings apart.
    Certain,
    /// The actual reason is hidden, and the reported one is the most frequent of all possible reasons;
    /// or the reason depends on a rule of this kernel that is neither verified nor probed.
    Likely,
}
