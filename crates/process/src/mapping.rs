//! A mapping of a process, with all known attributes of the mapping.
//!
//! The mapping's line in `/proc/PID/maps` is always known. Flags come from the kernel view or from
//! `smaps`; the anon_vma, page offset, memory policy and userfaultfd come only from the kernel
//! view. An attribute that has not been read is `None`, never a guess.

use crate::maps::{self, MapName, MapsEntry, SmapsEntry};
use crate::unseen::Unseen;
use crate::view::ViewVma;
use vmarea_merge::types::{Pgoff, VmFlags, VmRange};

/// Resident memory of a mapping, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resident {
    /// Resident set size (`Rss`).
    pub rss: u64,
    /// Memory that is private to the process (`Anonymous`), plus swap.
    pub anonymous: u64,
}

/// A mapping and its known attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The mapping's line in `/proc/PID/maps`.
    pub entry: MapsEntry,
    /// `vm_flags`, if known.
    pub flags: Option<VmFlags>,
    /// The VMA in the kernel view, if the view has been read.
    ///
    /// In a replay, numbers assigned by the replay take the place of kernel addresses.
    pub kernel: Option<ViewVma>,
    /// Resident memory of the mapping, if it has been read.
    pub resident: Option<Resident>,
    /// What the list does not show about the mapping.
    pub unseen: Unseen,
}

impl Mapping {
    /// Creates a mapping with default flags, which `madvise` or a similar call must not have
    /// changed.
    pub fn without_advice(entry: MapsEntry) -> Mapping {
        let mut mapping = Mapping::from(entry);
        // Flags of nearly every private anonymous mapping, in addition to its permissions.
        mapping.flags = Some(mapping.flags() | VmFlags::MAYRWX | VmFlags::ACCOUNT);
        mapping
    }

    /// Returns the address range of the mapping.
    pub fn range(&self) -> VmRange {
        VmRange::new(self.entry.start, self.entry.end)
    }

    /// Returns the flags of the mapping; if they are unknown, only those implied by the
    /// permissions.
    pub fn flags(&self) -> VmFlags {
        self.flags.unwrap_or_else(|| {
            let perms = self.entry.perms;
            let mut flags = VmFlags::empty();
            flags.set(VmFlags::READ, perms.read);
            flags.set(VmFlags::WRITE, perms.write);
            flags.set(VmFlags::EXEC, perms.exec);
            flags.set(VmFlags::MAYSHARE | VmFlags::SHARED, perms.shared);
            flags
        })
    }

    /// Returns the permissions as in `/proc/PID/maps`, with `?` for those that the list does not show.
    ///
    /// Memory without a file is private: the kernel gives shared memory a file with a name.
    pub fn perms(&self) -> String {
        if self.unseen.contains(Unseen::PERMS) {
            return "????".to_owned();
        }
        let perms = self.entry.perms.to_string();
        let may_be_shared = self.has_file() || self.unseen.contains(Unseen::FILE);
        match self.unseen.contains(Unseen::SHARING) && may_be_shared {
            true => format!("{}?", &perms[..3]),
            false => perms,
        }
    }

    /// Returns true if the program may read, write or execute the mapping.
    pub fn is_accessible(&self) -> bool {
        let perms = self.entry.perms;
        perms.read || perms.write || perms.exec
    }

    /// Checks whether the mapping has a file, including the internal file of shared memory.
    pub fn has_file(&self) -> bool {
        match self.kernel {
            Some(vma) => vma.file != 0,
            None => {
                let entry = &self.entry;
                let anon_shmem =
                    matches!(&entry.name, MapName::Named(n) if n.starts_with("[anon_shmem:"));
                entry.ino != 0 || anon_shmem || matches!(entry.name, MapName::Path(_))
            }
        }
    }

    /// Returns true if other processes may share pages of the mapping because of a fork.
    pub fn is_forked(&self) -> bool {
        self.kernel.is_some_and(|vma| vma.is_forked())
    }

    /// Returns true if the mapping's page offset already follows from its address, and it has an
    /// anon_vma that others can use. The next mapping can then join it without moving its pages.
    pub fn is_anchor(&self) -> bool {
        let has_anon_vma = |vma: ViewVma| vma.anon_vma != 0 && vma.chain_singular;
        self.kernel.is_some_and(has_anon_vma) && self.offset_follows()
    }

    /// Returns true if the mapping's page offset is known to follow from its address.
    pub fn offset_follows(&self) -> bool {
        let follows = |vma: ViewVma| Pgoff(vma.pgoff) == Pgoff::of_addr(vma.start);
        self.kernel.is_some_and(follows)
    }
}

impl From<MapsEntry> for Mapping {
    fn from(entry: MapsEntry) -> Mapping {
        Mapping {
            entry,
            flags: None,
            kernel: None,
            resident: None,
            unseen: Unseen::empty(),
        }
    }
}

impl From<SmapsEntry> for Mapping {
    fn from(smaps: SmapsEntry) -> Mapping {
        let anonymous = smaps.anonymous_kib.saturating_add(smaps.swap_kib);
        let flags = maps::flags_of(&smaps.flags) | VmFlags::from_pkey(smaps.protection_key);
        Mapping {
            flags: (!smaps.flags.is_empty()).then_some(flags),
            kernel: None,
            resident: Some(Resident {
                rss: smaps.rss_kib.saturating_mul(1024),
                anonymous: anonymous.saturating_mul(1024),
            }),
            entry: smaps.mapping,
            unseen: Unseen::empty(),
        }
    }
}
