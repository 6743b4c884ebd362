//! Most frequent variant of a reason: which flags, permissions or files differ most often.

use super::made_by::most;
use super::text::count;
use std::collections::BTreeSet;
use vmarea::types::VmFlags;
use vmarea::vma::merge::Refusal;
use vmarea_process::maps::{MapName, MapsEntry, letters_of};
use vmarea_process::unseen::Unseen;
use vmarea_process::{Mapping, Reason};

/// Returns the most frequent variant of a reason among the boundaries `all`, with its count.
///
/// The count is that of boundaries, each of which costs one mapping; of guards, which have a boundary
/// on each side, it is that of the guards. Boundary `n` is between the mappings `n` and `n + 1`. The
/// result is empty if the reason has no variants.
pub fn of(reason: Reason, mappings: &[Mapping], all: &[usize]) -> String {
    let kind: fn(&Mapping, &Mapping) -> Option<String> = match reason {
        Reason::Rule(Refusal::Flags) => flags,
        Reason::Rule(Refusal::Protection) => protection,
        Reason::Rule(Refusal::File) => file,
        Reason::Rule(Refusal::FileOffset | Refusal::Special) => name,
        Reason::Guard => {
            let most = most(guards(mappings, all)).into_iter().next();
            return most.map_or_else(String::new, |(kib, n)| format!("{} of {kib} KiB", count(n)));
        }
        _ => return String::new(),
    };
    let kinds = all.iter().map(|&n| kind(&mappings[n], &mappings[n + 1]));
    let kinds: Vec<_> = kinds.flatten().collect();
    let most = most(kinds.iter()).into_iter().next();
    most.map_or_else(String::new, |(kind, n)| format!("{kind}: {}", count(n)))
}

/// Returns the size in KiB of each guard, once for both of its boundaries.
fn guards(mappings: &[Mapping], all: &[usize]) -> impl Iterator<Item = u64> {
    let guard = |&n: &usize| n + usize::from(mappings[n].is_accessible());
    let guards: BTreeSet<_> = all.iter().map(guard).collect();
    let kib = |n: usize| mappings[n].range().len_bytes() >> 10;
    guards.into_iter().map(kib)
}

fn flags(a: &Mapping, b: &Mapping) -> Option<String> {
    let differ = (a.flags? ^ b.flags?) - VmFlags::STICKY;
    Some(names(differ))
}

/// Flags with the names of the calls, advice or options that set them.
const NAMES: [(VmFlags, &str); 13] = [
    (VmFlags::DONTCOPY, "MADV_DONTFORK"),
    (VmFlags::DONTDUMP, "MADV_DONTDUMP"),
    (VmFlags::HUGEPAGE, "MADV_HUGEPAGE"),
    (VmFlags::NOHUGEPAGE, "MADV_NOHUGEPAGE"),
    (VmFlags::MERGEABLE, "MADV_MERGEABLE"),
    (VmFlags::WIPEONFORK, "MADV_WIPEONFORK"),
    (VmFlags::RAND_READ, "MADV_RANDOM"),
    (VmFlags::SEQ_READ, "MADV_SEQUENTIAL"),
    (VmFlags::NORESERVE, "MAP_NORESERVE"),
    (VmFlags::LOCKED, "mlock"),
    (VmFlags::SEALED, "mseal"),
    (VmFlags::DROPPABLE, "MAP_DROPPABLE"),
    (VmFlags::ACCOUNT, "commit charge"),
];

/// Returns the names of those flags that a program sets with `madvise`, `mlock` or `mmap`.
pub fn set_by_program(flags: VmFlags) -> impl Iterator<Item = &'static str> {
    let set = NAMES.iter().filter(|(flag, _)| *flag != VmFlags::ACCOUNT);
    let set = set.filter(move |(flag, _)| flags.contains(*flag));
    set.map(|(_, name)| *name)
}

/// Returns the names under which a user sets the flags; other flags as in `VmFlags:` of `smaps`.
pub fn names(mut flags: VmFlags) -> String {
    let mut names = Vec::new();
    for (flag, name) in NAMES {
        if flags.contains(flag) {
            names.push(name.to_owned());
            flags -= flag;
        }
    }
    if !flags.is_empty() {
        names.push(letters_of(flags));
    }
    names.join(" ")
}

/// Returns why mappings with these flags are not replaced by a new one, and what to do.
pub fn fresh_mapping_lacks(flags: VmFlags) -> String {
    let what = match flags.contains(VmFlags::MERGEABLE) {
        true => "the program can clear MADV_MERGEABLE with madvise(MADV_UNMERGEABLE)",
        false => "only the program can map this memory without them",
    };
    format!(
        "a new mapping cannot be given their flags ({}); {what}",
        names(flags)
    )
}

fn protection(a: &Mapping, b: &Mapping) -> Option<String> {
    let hidden = (a.unseen | b.unseen).contains(Unseen::PERMS);
    (!hidden).then(|| format!("{} {}", a.perms(), b.perms()))
}

fn file(a: &Mapping, b: &Mapping) -> Option<String> {
    let is_file = |m: &MapsEntry| matches!(m.name, MapName::Path(_)) || m.ino != 0;
    let no_inode = (a.unseen | b.unseen).contains(Unseen::INODE);
    let (a, b) = (&a.entry, &b.entry);
    Some(match (is_file(a), is_file(b)) {
        (true, true) if no_inode && a.name != b.name => "different files".to_owned(),
        (true, true) if (a.dev, a.ino) == (b.dev, b.ino) => "opened more than once".to_owned(),
        (true, true) => "different files".to_owned(),
        _ => "file and anonymous".to_owned(),
    })
}

fn name(_: &Mapping, b: &Mapping) -> Option<String> {
    Some(b.entry.name.text())
}

#[cfg(test)]
mod tests {
    use crate::{List, explain};
    use vmarea_process::Process;

    #[test]
    fn a_guard_with_two_boundaries_is_counted_once() {
        let line = |n: u64| {
            let (start, perms) = (0x7000_0000 + n * 0x1000, ["rw-p", "---p"][n as usize % 2]);
            format!("{start:x}-{:x} {perms} 00000000 00:00 0\n", start + 0x1000)
        };
        let text: String = (0..2_401).map(line).collect();
        let process = Process::from_text("text".to_owned(), text.as_bytes()).unwrap();
        let report = explain(&process, List::Summary);
        let reason = &report.reasons[0];
        assert_eq!((reason.reason, reason.mappings), ("guard", 2_400));
        assert_eq!(reason.detail, "1,200 of 4 KiB");
    }
}
