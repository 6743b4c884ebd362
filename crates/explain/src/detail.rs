//! Most frequent variant of a reason: which flags, permissions or files differ most often.

use std::collections::HashMap;
use vmarea::types::VmFlags;
use vmarea::vma::merge::Refusal;
use vmarea_process::maps::{MapName, MapsEntry, letters_of};
use vmarea_process::unseen::Unseen;
use vmarea_process::{Mapping, Reason};

/// Returns the most frequent variant of a reason among the boundaries `all`, with its count.
///
/// Boundary `n` is between the mappings `n` and `n + 1`. The result is empty if the reason has no
/// variants.
pub fn of(reason: Reason, mappings: &[Mapping], all: &[usize]) -> String {
    let kind: fn(&Mapping, &Mapping) -> Option<String> = match reason {
        Reason::Rule(Refusal::Flags) => flags,
        Reason::Rule(Refusal::Protection) => protection,
        Reason::Rule(Refusal::File) => file,
        Reason::Rule(Refusal::FileOffset | Refusal::Special) => name,
        Reason::Guard => guard,
        _ => return String::new(),
    };
    let mut counts: HashMap<String, u64> = HashMap::new();
    for &n in all {
        if let Some(kind) = kind(&mappings[n], &mappings[n + 1]) {
            *counts.entry(kind).or_default() += 1;
        }
    }
    let most = counts
        .into_iter()
        .max_by(|a, b| (a.1, &b.0).cmp(&(b.1, &a.0)));
    most.map_or_else(String::new, |(kind, n)| format!("{kind}: {n}"))
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

fn guard(a: &Mapping, b: &Mapping) -> Option<String> {
    let accessible = |m: &MapsEntry| m.perms.read || m.perms.write || m.perms.exec;
    let guard = if accessible(&a.entry) { b } else { a };
    let kib = guard.range().len_bytes() >> 10;
    Some(format!("{kib} KiB"))
}
