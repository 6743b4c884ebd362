//! Why two neighbours are two mappings, and how sure that is.

use vmarea::vma::merge::Refusal;

/// Why two neighbours are two mappings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// Free space lies between them.
    Gap,
    /// One of them is a guard: a small range without access beside a larger one.
    Guard,
    /// A rule of the kernel.
    Rule(Refusal),
    /// Nothing does: the next call that touches the border joins them.
    Nothing,
}

impl Reason {
    /// Short name, as in reports.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Gap => "gap",
            Reason::Guard => "guard",
            Reason::Rule(refusal) => refusal.name(),
            Reason::Nothing => "nothing",
        }
    }

    /// What it means, in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Reason::Gap => "free space between",
            Reason::Guard => "a guard: no access",
            Reason::Nothing => "nothing: join at the next call there",
            Reason::Rule(refusal) => match refusal {
                Refusal::Special => "the kernel's own or a driver's",
                Refusal::Hugetlb => "hugetlbfs",
                Refusal::Policy => "other memory policy",
                Refusal::Protection => "other permission",
                Refusal::Flags => "other flags",
                Refusal::Sealed => "sealed (mseal)",
                Refusal::File => "another file, or file and anonymous",
                Refusal::Userfaultfd => "watched by userfaultfd",
                Refusal::Name => "other name (PR_SET_VMA)",
                Refusal::AnonVma => "first touched apart (anon_vma)",
                Refusal::PageOffset => "moved by mremap (page offset)",
                Refusal::Pinned => "pinned pages",
                Refusal::FileOffset => "same file, other place in it",
                Refusal::CloseHook => "a System V segment",
                Refusal::Opaque => "not known",
            },
        }
    }
}

/// How sure a reason is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// It was seen, and is enough to keep the two apart.
    Certain,
    /// Something that was not seen; this is the most frequent among what it can be.
    Likely,
}
