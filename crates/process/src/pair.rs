//! Two neighbouring mappings as input to the merge decision; unreadable attributes are marked
//! hidden.
//!
//! # Linux
//! Names and policies are compared by content (`anon_vma_name_eq`, `mpol_equal`), userfaultfd
//! contexts by identity. Only a part of each policy is read, so two policies that appear equal may
//! still differ.

use crate::mapping::Mapping;
use crate::maps::{self, MapName, MapsEntry};
use crate::unseen::Unseen;
use vmarea_merge::partial_view::Hidden;
use vmarea_merge::types::{AnonVmaId, FileId, FileKind, PageOffsets, Pgoff, VmFlags, VmaId};
use vmarea_merge::view::{MappedFile, VmaBody, VmaView};

/// Two neighbouring mappings as input to the merge decision.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// The two mappings, the lower one first.
    pub mappings: [&'a Mapping; 2],
    /// The lower mapping as input to the decision.
    pub a: VmaView,
    /// The upper mapping as input to the decision.
    pub b: VmaView,
    /// Attributes that could not be read for at least one mapping, and so cannot be compared.
    pub hidden: Hidden,
    /// True if a driver probably created at least one of the mappings, and not all flags are known.
    ///
    /// A mapping created by a driver probably has special flags, which keep it separate.
    pub by_driver: bool,
}

impl<'a> Pair<'a> {
    /// Builds the pair from all known attributes of the two mappings.
    pub fn of(a: &'a Mapping, b: &'a Mapping) -> Pair<'a> {
        let mappings = [a, b];
        let mut pair = Pair {
            mappings,
            a: view(a),
            b: view(b),
            hidden: Hidden::empty(),
            by_driver: false,
        };
        pair.set_names(&a.entry, &b.entry);
        pair.set_files();
        let own_policies = pair.set_policies();
        let both_seen = a.kernel.is_some() && b.kernel.is_some();
        let flags = a.flags.zip(b.flags);
        let private = mappings.iter().any(|m| !m.entry.perms.shared);
        let anonymous = mappings.iter().any(|m| !m.has_file());
        let unseen = a.unseen | b.unseen;
        // The flags show whether there is a userfaultfd context at all.
        let no_uffd = flags.is_some_and(|(a, b)| !(a | b).intersects(VmFlags::UFFD_ANY));
        let special = flags.is_none() && mappings.iter().any(|m| made_by_kernel(&m.entry));
        if special {
            // The name identifies a special mapping, which never merges with any neighbour.
            let mut known = VmFlags::DONTEXPAND;
            let huge = mappings.iter().any(|m| of_hugetlbfs(&m.entry));
            known.set(VmFlags::HUGETLB, huge);
            pair.a.body.flags |= known;
            pair.b.body.flags |= known;
        }
        pair.by_driver = flags.is_none() && mappings.iter().any(|m| of_driver(&m.entry));
        for (part, hidden) in [
            (Hidden::FLAGS, flags.is_none() && !special),
            (Hidden::POLICY, !both_seen || own_policies),
            (Hidden::USERFAULTFD, !both_seen && !no_uffd),
            (Hidden::ANON_VMA, !both_seen && private),
            (
                Hidden::PAGE_OFFSET,
                !both_seen && (anonymous || unseen.contains(Unseen::OFFSET)),
            ),
            (Hidden::NAME, unseen.contains(Unseen::NAME) && anonymous),
        ] {
            pair.hidden.set(part, hidden);
        }
        pair
    }

    /// Checks whether both mappings are private anonymous memory without flags that rule out a
    /// remedy.
    pub(crate) fn is_plain(&self) -> bool {
        is_plain(&self.a) && is_plain(&self.b)
    }

    /// True if the mappings are known to have different files, or only one of them has a file.
    pub(crate) fn has_different_files(&self) -> bool {
        let id = |view: &VmaView| view.body.file.map(|file| file.id);
        let unseen = self
            .mappings
            .iter()
            .any(|m| m.unseen.contains(Unseen::FILE));
        !unseen && !self.hidden.contains(Hidden::FILE) && id(&self.a) != id(&self.b)
    }

    fn set_names(&mut self, a: &MapsEntry, b: &MapsEntry) {
        let named = |entry: &MapsEntry| matches!(entry.name, MapName::Named(_));
        self.a.body.name = u32::from(named(a));
        self.b.body.name = match (named(b), a.name == b.name) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => 2,
        };
    }

    /// Sets both memory policies; returns true if they are distinct objects with equal known
    /// members.
    fn set_policies(&mut self) -> bool {
        let [a, b] = self.mappings.map(|mapping| mapping.kernel);
        let Some((a, b)) = a.zip(b) else {
            return false;
        };
        let [own_a, own_b] = [a.policy, b.policy].map(|policy| policy.unwrap_or(0));
        self.a.body.policy = u32::from(own_a != 0);
        self.b.body.policy = match (own_a, own_b) {
            (_, 0) => 0,
            (own_a, own_b) if own_a == own_b => 1,
            _ if a.policy_terms == b.policy_terms => 1,
            _ => 2,
        };
        own_a != own_b && self.a.body.policy == 1 && self.b.body.policy == 1
    }

    fn set_files(&mut self) {
        let [a, b] = self.mappings;
        let (Some(file_a), Some(file_b)) = (&mut self.a.body.file, &mut self.b.body.file) else {
            return;
        };
        match a.kernel.zip(b.kernel) {
            Some((vma_a, vma_b)) => {
                file_a.id = FileId(vma_a.file);
                file_b.id = FileId(vma_b.file);
            }
            None => {
                let (a, b) = (&a.entry, &b.entry);
                let same_inode = (a.dev, a.ino) == (b.dev, b.ino);
                // A different path to the same inode means a different open file.
                let maybe_same = same_inode && (a.name == b.name || self.a.body.name > 0);
                file_a.id = FileId(1);
                file_b.id = FileId(if maybe_same { 1 } else { 2 });
                self.hidden.set(Hidden::FILE, maybe_same);
            }
        }
    }
}

/// Returns the page offsets of a mapping: those that the kernel's view shows, or those that the
/// list shows.
fn offsets(mapping: &Mapping) -> PageOffsets {
    let entry = &mapping.entry;
    let (pgoff, anon_pgoff) = match mapping.kernel {
        Some(vma) => (Pgoff(vma.pgoff), vma.anon_pgoff.map(Pgoff)),
        None if mapping.has_file() => {
            (Pgoff(entry.offset >> vmarea_merge::types::PAGE_SHIFT), None)
        }
        None => (Pgoff::of_addr(entry.start), None),
    };
    let offsets = PageOffsets::starting_at(pgoff, entry.start);
    // Linux has an anonymous page offset for a shared mapping as well, but compares it with nothing.
    match anon_pgoff.filter(|_| !entry.perms.shared) {
        Some(anon) => offsets.with_anon(anon, entry.start),
        None => offsets,
    }
}

/// Converts one mapping, without names, memory policies and file identities, which depend on the
/// pair.
fn view(mapping: &Mapping) -> VmaView {
    let entry = &mapping.entry;
    let flags = mapping.flags();
    let kernel = mapping.kernel;
    let uffd = kernel.and_then(|vma| vma.uffd).unwrap_or(0);
    VmaView {
        // The id is never 0, and it differs for each mapping.
        id: VmaId::from_bits(entry.start | 1).expect("not 0"),
        range: mapping.range(),
        offsets: offsets(mapping),
        anon_vma: kernel.and_then(|vma| AnonVmaId::from_bits(vma.anon_vma)),
        chain_singular: kernel.is_none_or(|vma| vma.chain_singular),
        body: VmaBody {
            flags,
            file: mapping.has_file().then(|| MappedFile {
                id: FileId(1),
                inode: entry.ino,
                kind: kind(entry, flags),
            }),
            policy: 0,
            name: 0,
            uffd: (uffd ^ uffd >> 32) as u32,
        },
    }
}

/// Checks whether the mapping is private anonymous memory without flags that rule out a remedy.
pub(crate) fn is_plain(view: &VmaView) -> bool {
    const UNTOUCHABLE: VmFlags = VmFlags::SPECIAL
        .union(VmFlags::UFFD_ANY)
        .union(VmFlags::GROWSDOWN)
        .union(VmFlags::SHADOW_STACK)
        .union(VmFlags::LOCKED_MASK)
        .union(VmFlags::SEALED)
        .union(VmFlags::DROPPABLE)
        .union(VmFlags::MAYSHARE)
        .union(VmFlags::HUGETLB)
        .union(maps::UNKNOWN);
    let no_file = match view.body.file {
        None => true,
        Some(file) => file.kind == FileKind::DevZero,
    };
    no_file && view.body.uffd == 0 && !view.body.flags.intersects(UNTOUCHABLE)
}

/// Returns true for hugetlb, `[vdso]`, `[vvar]` and similar mappings, which never merge.
fn made_by_kernel(entry: &MapsEntry) -> bool {
    matches!(entry.name, MapName::Special(_)) || of_hugetlbfs(entry)
}

fn of_hugetlbfs(entry: &MapsEntry) -> bool {
    kind(entry, VmFlags::empty()) == FileKind::Hugetlb
}

/// Returns true if the mapped file is a device, or an internal file of a kernel subsystem.
fn of_driver(entry: &MapsEntry) -> bool {
    const MADE: [&str; 4] = ["anon_inode:", "socket:", "/proc/", "/sys/"];
    const MEMORY: [&str; 3] = ["/dev/zero", "/dev/shm/", "/dev/hugepages/"];
    let MapName::Path(path) = &entry.name else {
        return false;
    };
    let path = path.to_string_lossy();
    let is_of = |names: &[&str]| names.iter().any(|name| path.starts_with(name));
    is_of(&MADE) || (path.starts_with("/dev/") && !is_of(&MEMORY))
}

fn kind(entry: &MapsEntry, flags: VmFlags) -> FileKind {
    let name = entry.name.text();
    let huge = ["/anon_hugepage", "/dev/hugepages/"];
    if flags.contains(VmFlags::HUGETLB) || huge.iter().any(|path| name.starts_with(path)) {
        FileKind::Hugetlb
    } else if name.starts_with("/SYSV") {
        FileKind::SysvShm
    } else if name.starts_with("/dev/zero") {
        if entry.perms.shared {
            FileKind::SharedAnon
        } else {
            FileKind::DevZero
        }
    } else if name.starts_with("/memfd:") || name.starts_with("/dev/shm/") {
        FileKind::Shmem
    } else {
        FileKind::Regular
    }
}
