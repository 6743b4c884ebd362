//! Options of `prctl` that affect an address space.

/// An option of `prctl`, identified by Linux's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrctlOption(pub u64);

impl PrctlOption {
    /// `PR_SET_MM`: sets the start or end address of a segment.
    pub const SET_MM: PrctlOption = PrctlOption(35);
    /// `PR_SET_THP_DISABLE`: disables transparent huge pages.
    pub const SET_THP_DISABLE: PrctlOption = PrctlOption(41);
    /// `PR_SET_MDWE`: refuses mappings that are writable and executable or become executable later.
    pub const SET_MDWE: PrctlOption = PrctlOption(65);
    /// `PR_GET_MDWE`: returns the value set by `PR_SET_MDWE`.
    pub const GET_MDWE: PrctlOption = PrctlOption(66);
    /// `PR_SET_MEMORY_MERGE`: allows KSM to merge the pages of all mappings.
    pub const SET_MEMORY_MERGE: PrctlOption = PrctlOption(67);
}
