//! Weighs the causes against one another: the one that explains the most mappings comes first.

use super::Cause;
use super::entry::{Entry, Explained};
use super::subject::Subject;
use super::table::table;

/// A further cause explains at least this part of the mappings, or it is not worth a word.
const LEAST_SHARE: u64 = 20;

/// A cause with evidence outweighs a generic one that explains up to four times as many mappings.
const GENERIC: u64 = 4;

/// Returns the causes of a process, most mappings first. A mapping has at most one cause.
///
/// What the mappings look like is described only of those that have no other cause.
pub fn causes(subject: &Subject<'_>) -> Vec<Cause> {
    let mut claimed = vec![false; subject.mappings.len()];
    let mut told = Vec::new();
    // A description of less would not say why the list is long.
    let half = subject.mappings.len() as u64 / 2;
    for generic in [false, true] {
        let entries = table().iter().filter(|entry| entry.generic == generic);
        let (weight, least) = if generic { (1, half) } else { (GENERIC, 0) };
        let causes = weighed(subject, entries, &mut claimed).into_iter();
        let causes = causes.filter(|cause| cause.mappings >= least);
        told.extend(causes.map(|cause| (cause.mappings * weight, cause)));
    }
    told.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    let least = subject.mappings.len() as u64 / LEAST_SHARE;
    let causes = told.into_iter().map(|(_, cause)| cause).enumerate();
    let told = causes.filter(|(n, cause)| *n == 0 || cause.mappings >= least);
    told.map(|(_, cause)| cause).collect()
}

/// Claims mappings for the entry that explains the most of them, and weighs the others again.
fn weighed(
    subject: &Subject<'_>,
    entries: impl Iterator<Item = &'static Entry>,
    claimed: &mut [bool],
) -> Vec<Cause> {
    let find = |entry: &'static Entry, claimed: &[bool]| {
        let explained = entry.explain(subject, claimed)?;
        Some((entry, explained))
    };
    let mut open: Vec<_> = entries.filter_map(|entry| find(entry, claimed)).collect();
    let mut told = Vec::new();
    loop {
        // Of several that explain the same mappings, the first of the table is the most specific.
        open.sort_by_key(|(_, explained): &(_, Explained)| std::cmp::Reverse(explained.mappings()));
        if open.is_empty() {
            return told;
        }
        let (entry, explained) = open.remove(0);
        told.push(entry.cause(&explained, |names| subject.named(names).is_some()));
        explained.claim(claimed);
        open = open
            .into_iter()
            .filter_map(|(entry, before)| match before.is_free(claimed) {
                true => Some((entry, before)),
                false => find(entry, claimed),
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::super::subject::Subject;
    use super::causes;
    use vmarea_process::Process;
    use vmarea_process::evidence::Evidence;

    /// The names of the causes that are told of a list.
    fn names(text: &str, threads: Option<u64>, evidence: &Evidence) -> Vec<String> {
        let mut process = Process::from_text("x".to_owned(), text.as_bytes()).unwrap();
        process.threads = threads;
        let boundaries = process.boundaries();
        let told = causes(&Subject::new(&process, &boundaries, evidence));
        told.into_iter().map(|cause| cause.name).collect()
    }

    /// Stacks with their guards, and the names of the causes that are told of them.
    fn told(stacks: u64, threads: Option<u64>, library: &str, evidence: &Evidence) -> Vec<String> {
        let mut text = String::new();
        for n in 0..stacks {
            let at = stack(n);
            text += &format!("{:x}-{at:x} ---p 00000000 00:00 0\n", at - 0x1000);
            text += &format!("{at:x}-{:x} rw-p 00000000 00:00 0\n", at + SIZE);
        }
        text += &format!("7ff000000000-7ff000001000 r-xp 00000000 08:01 7 {library}\n");
        names(&text, threads, evidence)
    }

    /// Mappings of one page, apart by free space, of as many files; the first `deleted` of these have
    /// been deleted.
    fn told_of_files(mappings: u64, files: u64, deleted: u64) -> Vec<String> {
        let line = |n: u64| {
            let (at, file) = (0x7000_0000_0000 + n * 0x2000, n % files);
            let mark = if file < deleted { " (deleted)" } else { "" };
            format!(
                "{at:x}-{:x} r--s 00000000 08:01 {} /data/{file}{mark}\n",
                at + 0x1000,
                file + 9
            )
        };
        let text: String = (0..mappings).map(line).collect();
        names(&text, None, &Evidence::default())
    }

    #[test]
    fn advice_about_a_library_is_told_only_if_it_is_loaded() {
        let advice = |library: &str| {
            let line = |n: u64| {
                let at = 0x7000_0000_0000 + n * 0x2000;
                format!(
                    "{at:x}-{:x} rw-s 00000000 00:05 {n} /SYSV{n:08x}\n",
                    at + 0x1000
                )
            };
            let loaded = format!("7ff000000000-7ff000001000 r-xp 00000000 08:01 7 {library}\n");
            let text = (1..=500).map(line).collect::<String>() + &loaded;
            let process = Process::from_text("x".to_owned(), text.as_bytes()).unwrap();
            let boundaries = process.boundaries();
            let evidence = Evidence::default();
            causes(&Subject::new(&process, &boundaries, &evidence))
                .remove(0)
                .advice
        };
        let without = advice("/usr/bin/Xvfb");
        assert!(
            without.starts_with("For the author: keep fewer, larger objects"),
            "{without}"
        );
        assert!(!without.contains("PyTorch"), "{without}");
        assert!(advice("/opt/torch/lib/libtorch_cpu.so").contains("PyTorch"));
    }

    #[test]
    fn files_are_in_pieces_only_if_there_are_more_mappings_than_files() {
        assert_eq!(told_of_files(1_000, 50, 0), ["data-files-in-pieces"]);
        assert_eq!(told_of_files(1_000, 1_000, 0), ["many-data-files"]);
        assert_eq!(told_of_files(1_000, 1_000, 3), ["many-data-files"]);
    }

    const SIZE: u64 = 0xf_f000;

    fn stack(n: u64) -> u64 {
        0x7000_0000_0000 + n * 0x20_0000
    }

    #[test]
    fn the_stack_pointers_tell_whose_the_stacks_are() {
        let on_stacks = (0..1_000).map(|n| stack(n) + SIZE - 100).collect();
        let threads = Evidence::with_stack_pointers(on_stacks);
        assert_eq!(told(1_000, Some(1_001), "", &threads), ["thread-stacks"]);
        // The same list, but the only thread is elsewhere, and the pages are not known.
        let alone = Evidence::with_stack_pointers(vec![1]);
        assert!(told(1_000, Some(1), "", &alone).is_empty());
        // As many threads, which run elsewhere.
        let elsewhere = Evidence::with_stack_pointers(vec![1; 1_000]);
        assert!(told(1_000, Some(1_001), "", &elsewhere).is_empty());
    }

    /// Pairs of an accessible and an inaccessible mapping, which are `kib` and 64 MiB together.
    fn told_of_reservations(kib: u64, library: &str) -> Vec<String> {
        let mut text = String::new();
        for n in 0..500 {
            let start = 0x7000_0000_0000 + (n << 27);
            let middle = start + (kib << 10);
            text += &format!("{start:x}-{middle:x} rw-p 00000000 00:00 0\n");
            text += &format!(
                "{middle:x}-{:x} ---p 00000000 00:00 0\n",
                start + (64 << 20)
            );
        }
        text += &format!("7ff000000000-7ff000001000 r-xp 00000000 08:01 7 {library}\n");
        names(&text, None, &Evidence::default())
    }

    #[test]
    fn an_arena_begins_with_more_than_its_header_can_take() {
        assert_eq!(
            told_of_reservations(132, "/lib/libc.so.6"),
            ["glibc-arenas"]
        );
        // Memories of WebAssembly may have the size of an arena as well.
        for library in ["/lib/libc.so.6", "/usr/bin/deno"] {
            assert_eq!(told_of_reservations(128, library), ["wasm-reservations"]);
        }
    }

    #[test]
    fn stacks_are_not_what_an_allocator_guards() {
        let evidence = Evidence::default();
        let scudo = "/usr/lib/libclang_rt.scudo_standalone-x86_64.so";
        assert!(told(1_000, None, scudo, &evidence).is_empty());
    }

    #[test]
    fn a_list_tells_a_cause_only_by_what_is_loaded() {
        let none = Evidence::default();
        assert!(told(1_000, None, "/usr/lib/libc.so.6", &none).is_empty());
        assert_eq!(
            told(1_000, None, "/opt/lib/libjvm.so", &none),
            ["thread-stacks"]
        );
        assert!(told(100, None, "/opt/lib/libjvm.so", &none).is_empty());
    }

    #[test]
    fn a_recording_with_few_threads_has_no_stacks_of_threads() {
        let none = Evidence::default();
        let recorded = |threads, library| told(1_000, Some(threads), library, &none);
        assert_eq!(recorded(900, "/opt/lib/libgomp.so.1"), ["thread-stacks"]);
        assert!(recorded(4, "/opt/lib/libgomp.so.1").is_empty());
        assert_eq!(recorded(4, "/opt/lib/libruby.so"), ["coroutine-stacks"]);
        assert!(recorded(900, "/opt/lib/libruby.so").is_empty());
    }
}
