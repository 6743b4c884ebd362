//! Reasons why two neighbours do not merge.

/// Reason why two neighbours do not merge, named after the first check that failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Refusal {
    /// One of the VMAs is special (driver mapping, DONTEXPAND) and never merges.
    Special,
    /// One of the VMAs maps hugetlb pages and never merges.
    Hugetlb,
    /// Different memory policies.
    Policy,
    /// Different read, write or execute permissions.
    Protection,
    /// Different flags, apart from the permissions.
    Flags,
    /// Only one of the VMAs is sealed (`mseal`), and no other flag differs.
    Sealed,
    /// Different open files, or one file and one anonymous mapping.
    File,
    /// Different userfaultfd registrations or contexts.
    Userfaultfd,
    /// Different names.
    Name,
    /// Different anon_vmas, or an anon_vma inherited from a parent.
    AnonVma,
    /// Both VMAs are anonymous, but their page offsets are not contiguous.
    PageOffset,
    /// Pages would need another anon_vma or page offset, and some of them are pinned.
    Pinned,
    /// Both VMAs map the same file, but their file offsets are not contiguous.
    FileOffset,
    /// A VMA has a `close` hook that prevents the merge.
    CloseHook,
    /// The model does not cover the cause.
    Opaque,
}

impl Refusal {
    /// All refusals.
    pub const ALL: [Refusal; 15] = [
        Refusal::Special,
        Refusal::Hugetlb,
        Refusal::Policy,
        Refusal::Protection,
        Refusal::Flags,
        Refusal::Sealed,
        Refusal::File,
        Refusal::Userfaultfd,
        Refusal::Name,
        Refusal::AnonVma,
        Refusal::PageOffset,
        Refusal::Pinned,
        Refusal::FileOffset,
        Refusal::CloseHook,
        Refusal::Opaque,
    ];

    /// Returns the short name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Special => "special",
            Refusal::Hugetlb => "hugetlb",
            Refusal::Policy => "policy",
            Refusal::Protection => "protection",
            Refusal::Flags => "flags",
            Refusal::Sealed => "sealed",
            Refusal::File => "file",
            Refusal::Userfaultfd => "userfaultfd",
            Refusal::Name => "name",
            Refusal::AnonVma => "anon_vma",
            Refusal::PageOffset => "page_offset",
            Refusal::Pinned => "pinned",
            Refusal::FileOffset => "file_offset",
            Refusal::CloseHook => "close_hook",
            Refusal::Opaque => "opaque",
        }
    }
}
