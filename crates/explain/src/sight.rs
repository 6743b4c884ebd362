//! Two neighbours as the merge decision sees them, with what cannot be compared marked as hidden.
//!
//! # Linux
//! Names, policies and userfaultfd contexts are equal by content (`anon_vma_name_eq`, `mpol_equal`,
//! identity of the context); of a policy not everything is read, so that two of which the same was
//! read may still differ.

use super::subject::{Inside, Seen};
use vmarea::types::{AnonVmaId, FileId, FileKind, Pgoff, VmFlags, VmRange, VmaId};
use vmarea::vma::explain::Hidden;
use vmarea::vma::{MappedFile, VmaBody, VmaView};
use vmarea_process::maps::{MapName, Mapping};

/// Two neighbours for the decision.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The lower one.
    pub a: VmaView,
    /// The upper one.
    pub b: VmaView,
    /// What of them cannot be compared.
    pub hidden: Hidden,
    /// One of them is mapped by a driver, which mostly makes it special; its flags are hidden.
    pub by_driver: bool,
}

impl Pair {
    /// The pair as it can be seen.
    pub fn of(a: &Seen, b: &Seen) -> Pair {
        let mut pair = Pair {
            a: view(a),
            b: view(b),
            hidden: Hidden::empty(),
            by_driver: false,
        };
        pair.set_names(&a.mapping, &b.mapping);
        pair.set_files(a, b);
        let own_policies = pair.set_policies(a, b);
        let both = a.inside.zip(b.inside);
        let flags = a.flags.zip(b.flags);
        let private = !a.mapping.perms.shared || !b.mapping.perms.shared;
        let anonymous = !has_file(a) || !has_file(b);
        // Flags tell whether there is a context at all.
        let no_uffd = flags.is_some_and(|(a, b)| !(a | b).intersects(VmFlags::UFFD_ANY));
        let special = flags.is_none() && [a, b].iter().any(|seen| made_by_kernel(&seen.mapping));
        if special {
            // Known by name, and whatever the other one is does not matter.
            let mut known = VmFlags::DONTEXPAND;
            let huge = [a, b].iter().any(|seen| of_hugetlbfs(&seen.mapping));
            known.set(VmFlags::HUGETLB, huge);
            pair.a.body.flags |= known;
            pair.b.body.flags |= known;
        }
        pair.by_driver = flags.is_none() && [a, b].iter().any(|seen| of_driver(&seen.mapping));
        for (part, hidden) in [
            (Hidden::FLAGS, flags.is_none() && !special),
            (Hidden::POLICY, both.is_none() || own_policies),
            (Hidden::USERFAULTFD, both.is_none() && !no_uffd),
            (Hidden::ANON_VMA, both.is_none() && private),
            (Hidden::PAGE_OFFSET, both.is_none() && anonymous),
        ] {
            pair.hidden.set(part, hidden);
        }
        pair
    }

    fn set_names(&mut self, a: &Mapping, b: &Mapping) {
        let named = |mapping: &Mapping| matches!(mapping.name, MapName::Named(_));
        self.a.body.name = u32::from(named(a));
        self.b.body.name = match (named(b), a.name == b.name) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => 2,
        };
    }

    /// True where both have a policy of their own and what was read of them is the same.
    fn set_policies(&mut self, a: &Seen, b: &Seen) -> bool {
        let Some((a, b)) = a.inside.zip(b.inside) else {
            return false;
        };
        self.a.body.policy = u32::from(a.policy != 0);
        self.b.body.policy = match (a.policy, b.policy) {
            (_, 0) => 0,
            (a_policy, b_policy) if a_policy == b_policy => 1,
            _ if a.policy_terms == b.policy_terms => 1,
            _ => 2,
        };
        a.policy != b.policy && self.a.body.policy == 1 && self.b.body.policy == 1
    }

    fn set_files(&mut self, a: &Seen, b: &Seen) {
        let (Some(file_a), Some(file_b)) = (&mut self.a.body.file, &mut self.b.body.file) else {
            return;
        };
        match a.inside.zip(b.inside) {
            Some((inside_a, inside_b)) => {
                file_a.id = FileId(inside_a.file);
                file_b.id = FileId(inside_b.file);
            }
            None => {
                let (a, b) = (&a.mapping, &b.mapping);
                let same_inode = (a.dev, a.ino) == (b.dev, b.ino);
                // Another path to the same inode is another open file.
                let maybe_same = same_inode && (a.name == b.name || self.a.body.name > 0);
                file_a.id = FileId(1);
                file_b.id = FileId(if maybe_same { 1 } else { 2 });
                self.hidden.set(Hidden::FILE, maybe_same);
            }
        }
    }
}

/// The mapping alone; names, policies and the identity of files are set by pairs.
fn view(seen: &Seen) -> VmaView {
    let mapping = &seen.mapping;
    let flags = seen.flags.unwrap_or_else(|| visible_flags(mapping));
    let inside = seen.inside.unwrap_or(Inside {
        pgoff: if has_file(seen) {
            mapping.offset >> vmarea::types::PAGE_SHIFT
        } else {
            Pgoff::of_addr(mapping.start).0
        },
        chain_singular: true,
        ..Inside::default()
    });
    VmaView {
        // Never 0, and another for each mapping.
        id: VmaId::from_bits(mapping.start | 1).expect("not 0"),
        range: VmRange::new(mapping.start, mapping.end),
        pgoff: Pgoff(inside.pgoff),
        anon_vma: AnonVmaId::from_bits(inside.anon_vma),
        chain_singular: inside.chain_singular,
        body: VmaBody {
            flags,
            file: has_file(seen).then(|| MappedFile {
                id: FileId(1),
                inode: mapping.ino,
                kind: kind(mapping, flags),
            }),
            policy: 0,
            name: 0,
            uffd: (inside.uffd ^ inside.uffd >> 32) as u32,
        },
    }
}

/// `[vdso]`, `[vvar]` and their kin, and huge pages of hugetlbfs: they merge with nothing.
fn made_by_kernel(mapping: &Mapping) -> bool {
    matches!(mapping.name, MapName::Special(_)) || of_hugetlbfs(mapping)
}

fn of_hugetlbfs(mapping: &Mapping) -> bool {
    kind(mapping, VmFlags::empty()) == FileKind::Hugetlb
}

/// A device, or a file that some part of the kernel made for itself.
fn of_driver(mapping: &Mapping) -> bool {
    const MADE: [&str; 4] = ["anon_inode:", "socket:", "/proc/", "/sys/"];
    const MEMORY: [&str; 3] = ["/dev/zero", "/dev/shm/", "/dev/hugepages/"];
    let MapName::Path(path) = &mapping.name else {
        return false;
    };
    let path = path.to_string_lossy();
    let is_of = |names: &[&str]| names.iter().any(|name| path.starts_with(name));
    is_of(&MADE) || (path.starts_with("/dev/") && !is_of(&MEMORY))
}

fn has_file(seen: &Seen) -> bool {
    match seen.inside {
        Some(inside) => inside.file != 0,
        None => {
            let anon_shmem =
                matches!(&seen.mapping.name, MapName::Named(n) if n.starts_with("[anon_shmem:"));
            seen.mapping.ino != 0 || anon_shmem || matches!(seen.mapping.name, MapName::Path(_))
        }
    }
}

/// What the four letters and the name tell of the flags.
fn visible_flags(mapping: &Mapping) -> VmFlags {
    let perms = mapping.perms;
    let mut flags = VmFlags::empty();
    flags.set(VmFlags::READ, perms.read);
    flags.set(VmFlags::WRITE, perms.write);
    flags.set(VmFlags::EXEC, perms.exec);
    flags.set(VmFlags::MAYSHARE, perms.shared);
    flags.set(VmFlags::SHARED, perms.shared);
    flags
}

fn kind(mapping: &Mapping, flags: VmFlags) -> FileKind {
    let name = mapping.name.text();
    let huge = ["/anon_hugepage", "/dev/hugepages/"];
    if flags.contains(VmFlags::HUGETLB) || huge.iter().any(|path| name.starts_with(path)) {
        FileKind::Hugetlb
    } else if name.starts_with("/SYSV") {
        FileKind::SysvShm
    } else if name.starts_with("/dev/zero") {
        if mapping.perms.shared {
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
