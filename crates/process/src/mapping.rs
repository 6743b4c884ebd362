//! A mapping of a process with everything that is known of it.
//!
//! The line of `/proc/PID/maps` is always there. Flags come from the kernel's own view or from
//! `smaps`; anon_vma, page offset, memory policy and userfaultfd only from the kernel's own view.
//! What was not read is `None`, never a guess.

use crate::maps::{self, MapName, MapsEntry, SmapsEntry};
use crate::view::ViewVma;
use vmarea::types::{VmFlags, VmRange};

/// What of a mapping is in memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resident {
    /// All of it.
    pub rss: u64,
    /// What belongs to the process alone, swap included.
    pub anonymous: u64,
}

/// A mapping and what is known of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The line of `/proc/PID/maps`.
    pub entry: MapsEntry,
    /// `vm_flags`, where they are known.
    pub flags: Option<VmFlags>,
    /// The VMA in the kernel's own view, where that was read. A replay has numbers of its own in
    /// place of the kernel's addresses.
    pub kernel: Option<ViewVma>,
    /// What of it is in memory, where that was read.
    pub resident: Option<Resident>,
}

impl Mapping {
    /// A mapping whose owner knows that `madvise` and its kin never gave it a flag.
    pub fn without_advice(entry: MapsEntry) -> Mapping {
        let mut mapping = Mapping::from(entry);
        // What nearly every private anonymous mapping has besides its permissions.
        mapping.flags = Some(mapping.flags() | VmFlags::MAYRWX | VmFlags::ACCOUNT);
        mapping
    }

    /// Its addresses.
    pub fn range(&self) -> VmRange {
        VmRange::new(self.entry.start, self.entry.end)
    }

    /// Its flags, or those that the permissions tell where the others are not known.
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

    /// True where a file is mapped, one that stands for shared memory included.
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

    /// True where other processes may share its pages since a fork.
    pub fn is_forked(&self) -> bool {
        self.kernel.is_some_and(|vma| vma.is_forked())
    }
}

impl From<MapsEntry> for Mapping {
    fn from(entry: MapsEntry) -> Mapping {
        Mapping {
            entry,
            flags: None,
            kernel: None,
            resident: None,
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
        }
    }
}
