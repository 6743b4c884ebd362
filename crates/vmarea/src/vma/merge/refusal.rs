//! Why two neighbours stay apart.

/// Why two neighbours stay apart: the first of Linux's checks that fails.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Refusal {
    /// One of them is special (driver, DONTEXPAND) and merges with nothing.
    Special,
    /// One of them has pages of hugetlbfs, and merges with nothing.
    Hugetlb,
    /// Different memory policies.
    Policy,
    /// They differ in read, write or execute permission.
    Protection,
    /// They differ in other flags.
    Flags,
    /// One of them is sealed (`mseal`), and nothing else in their flags differs.
    Sealed,
    /// Different open files, or file and anonymous.
    File,
    /// One is registered with userfaultfd and the other not, or not for the same; different contexts.
    Userfaultfd,
    /// Different names.
    Name,
    /// Different anon_vmas, or one that came from a parent.
    AnonVma,
    /// Anonymous, but the page offsets do not run on.
    PageOffset,
    /// Pages would have to take another anon_vma or page offset, and some are pinned.
    Pinned,
    /// A file, but the offsets do not run on.
    FileOffset,
    /// A `close` hook keeps a VMA from being taken away.
    CloseHook,
    /// Something that the model does not know is there.
    Opaque,
}

impl Refusal {
    /// All of them.
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

    /// Short name, as in reports.
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
