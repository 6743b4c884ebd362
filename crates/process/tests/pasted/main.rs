//! Lists of mappings in the formats of other tools: each sample is read as its tool meant it, and a
//! damaged one is used as far as it can be. `samples/README.md` says where each sample is from.
#![forbid(unsafe_code)]

mod cores;
mod damaged;

use std::path::Path;
use vmarea_merge::Refusal;
use vmarea_process::unseen::Unseen;
use vmarea_process::{Certainty, Process, Reason, Source};

/// Returns a sample.
fn sample(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pasted/samples");
    std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn text(name: &str) -> String {
    String::from_utf8(sample(name)).unwrap()
}

fn read(file: &[u8]) -> Process {
    Process::from_text("sample".to_owned(), file).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(file: &[u8]) -> String {
    let read = Process::from_text("sample".to_owned(), file);
    read.expect_err("a refusal").to_string()
}

/// Samples with the number of mappings, the format's name, and the notes.
const SAMPLES: [(&str, usize, Option<&str>, &[&str]); 16] = [
    ("server.maps", 28, None, &[]),
    ("pmap.txt", 28, Some("pmap"), &[]),
    ("pmap-extended.txt", 28, Some("pmap"), &[]),
    ("pmap-device.txt", 28, Some("pmap -d"), &[]),
    ("pmap-details.txt", 28, Some("pmap -X"), &[]),
    ("pmap-all.txt", 28, Some("pmap -X"), &[]),
    ("gdb.txt", 28, Some("gdb"), &[]),
    ("gdb-11.txt", 28, Some("gdb"), &[]),
    (
        "gdb-core.txt",
        8,
        Some("gdb"),
        &["the list has no anonymous memory, as that of a core: give the core itself to --from"],
    ),
    ("gef.txt", 28, Some("GEF"), &[]),
    ("pwndbg.txt", 28, Some("pwndbg"), &[]),
    (
        "lldb.txt",
        23,
        Some("lldb"),
        &["lldb writes free space and memory without access alike: such mappings are not counted"],
    ),
    (
        "tombstone.txt",
        14,
        Some("a tombstone"),
        &["left out 8 lines that are not part of a list of mappings"],
    ),
    (
        "asan.txt",
        43,
        Some("a sanitizer's map"),
        &["left out 4 lines that are not part of a list of mappings"],
    ),
    ("system_map.txt", 24, Some("jcmd System.map"), &[]),
    (
        "core.bin",
        28,
        Some("an ELF core"),
        &["the core is that of `/srv/app/server crash`, written on signal 6 (SIGABRT)"],
    ),
];

#[test]
fn each_sample_is_read() {
    for (name, mappings, format, notes) in SAMPLES {
        let process = read(&sample(name));
        assert_eq!(process.total as usize, mappings, "{name}");
        assert_eq!(process.format.map(|format| format.name), format, "{name}");
        assert_eq!(process.notes, notes, "{name}");
        let incomplete = ["gdb-core.txt", "lldb.txt"].contains(&name);
        assert_eq!(process.incomplete, incomplete, "{name}");
        assert_eq!(process.limit, None, "{name}: no list states the limit");
    }
}

/// Samples of the process of which `server.maps` is a copy.
const SAME: [&str; 8] = [
    "pmap.txt",
    "pmap-extended.txt",
    "pmap-device.txt",
    "pmap-details.txt",
    "pmap-all.txt",
    "gdb.txt",
    "gdb-11.txt",
    "pwndbg.txt",
];

#[test]
fn what_a_format_shows_is_what_maps_shows() {
    let maps = read(&sample("server.maps"));
    for name in SAME {
        let process = read(&sample(name));
        for (theirs, ours) in process.mappings.iter().zip(&maps.mappings) {
            let (entry, unseen) = (&theirs.entry, theirs.unseen);
            let expected = &ours.entry;
            let here = format!("{name}: {:x}", expected.start);
            assert_eq!(
                (entry.start, entry.end),
                (expected.start, expected.end),
                "{here}"
            );
            if !unseen.contains(Unseen::PERMS) {
                assert_eq!(entry.perms, expected.perms, "{here}");
            }
            if !unseen.contains(Unseen::OFFSET) {
                assert_eq!(entry.offset, expected.offset, "{here}");
            }
            if !unseen.contains(Unseen::INODE) {
                assert_eq!(
                    (entry.dev, entry.ino),
                    (expected.dev, expected.ino),
                    "{here}"
                );
            }
            // pmap prints no folders.
            let last = |name: String| name.rsplit('/').next().unwrap_or_default().to_owned();
            if !unseen.contains(Unseen::NAME) || ours.has_file() {
                assert_eq!(
                    last(entry.name.text()),
                    last(expected.name.text()),
                    "{here}"
                );
            }
        }
        let ours = maps.boundaries();
        // The flags that -XX shows are a better reason than what maps lets one guess.
        if process.source == Source::Smaps {
            continue;
        }
        for (n, boundary) in process.boundaries().iter().enumerate() {
            if boundary.certainty == Certainty::Certain {
                let (below, above) = (&maps.mappings[n], &maps.mappings[n + 1]);
                // Two reasons can hold at once, of which a list without columns shows the other.
                let holds = match boundary.reason {
                    Reason::Rule(Refusal::Protection) => below.perms()[..3] != above.perms()[..3],
                    Reason::Rule(Refusal::File) => below.entry.name != above.entry.name,
                    reason => reason == ours[n].reason,
                };
                assert!(holds, "{name} is certain of what maps denies: {boundary:?}");
            }
        }
    }
}

/// Returns the reason below the mapping that begins at an address, such as `flags?`.
fn reason_at(process: &Process, start: u64) -> String {
    let at = process.mappings.iter().position(|m| m.entry.start == start);
    process.boundaries()[at.expect("no such mapping") - 1].label()
}

#[test]
fn a_reason_that_depends_on_a_hidden_column_is_only_likely() {
    // Two parts of a file that are not contiguous in it.
    let parts = 0x7fe0_802d_2000;
    assert_eq!(
        reason_at(&read(&sample("server.maps")), parts),
        "file_offset"
    );
    assert_eq!(
        reason_at(&read(&sample("pmap-device.txt")), parts),
        "file_offset"
    );
    for name in ["pmap.txt", "pmap-extended.txt"] {
        let label = reason_at(&read(&sample(name)), parts);
        assert!(label.ends_with('?'), "{name}: {label}");
    }
    // A mapping that is not writable below one that is.
    let opened = 0x7fe0_802e_1000;
    assert_eq!(reason_at(&read(&sample("gdb.txt")), opened), "protection");
    assert_eq!(
        reason_at(&read(&sample("gdb-11.txt")), opened),
        "protection?"
    );
    // lldb prints the reservation below as it prints free space.
    assert_eq!(
        reason_at(&read(&sample("lldb.txt")), 0x7f01_7756_2000),
        "gap?"
    );
    assert_eq!(
        reason_at(&read(&sample("lldb.txt")), 0x47_a000),
        "protection"
    );
}

#[test]
fn what_is_not_shown_is_printed_as_unknown() {
    let perms = |name: &str| read(&sample(name)).mappings[1].perms();
    assert_eq!(perms("pmap.txt"), "r-xp");
    assert_eq!(perms("gef.txt"), "r-x?");
    let anonymous = read(&sample("gef.txt")).mappings[5].perms();
    assert_eq!(anonymous, "rw-p", "shared memory has a name");
    assert_eq!(perms("gdb-11.txt"), "????");
    let format = read(&sample("pmap.txt")).format.unwrap().to_string();
    assert_eq!(
        format,
        "pmap does not show offsets, inodes, folders or names of anonymous memory: \
         neighbours of one file may be contiguous in it"
    );
}

#[test]
fn resident_memory_and_flags_are_read_where_they_are() {
    let resident = |name: &str| {
        read(&sample(name)).mappings[1]
            .resident
            .map(|r| r.rss >> 10)
    };
    assert_eq!(resident("pmap.txt"), None);
    for name in ["pmap-extended.txt", "pmap-details.txt", "pmap-all.txt"] {
        assert_eq!(resident(name), Some(484), "{name}");
    }
    let all = read(&sample("pmap-all.txt"));
    assert_eq!(all.source, Source::Smaps);
    assert!(all.mappings.iter().all(|mapping| mapping.flags.is_some()));
}

#[test]
fn names_of_a_core_come_from_its_notes() {
    let core = read(&sample("core.bin"));
    let names: Vec<_> = core.mappings.iter().map(|m| m.entry.name.text()).collect();
    assert_eq!(names[1], "/srv/app/server");
    assert_eq!(core.mappings[1].entry.offset, 0x1000);
    let named = |name: &str| names.iter().filter(|found| *found == name).count();
    assert_eq!(named("/memfd:ring (deleted)"), 1);
    assert_eq!(
        (named("[stack]"), named("[vdso]"), named("[vvar]")),
        (1, 1, 2)
    );
}

#[test]
fn a_cut_list_gives_no_reason_where_it_was_cut() {
    let lines: Vec<_> = text("server.maps").lines().map(str::to_owned).collect();
    for mark in [
        "...",
        "<snip, 65,000 more lines like these>",
        "[truncated]",
        "  … 12 lines omitted …",
    ] {
        for (name, keep) in [("server.maps", 8), ("pmap.txt", 9), ("gdb.txt", 11)] {
            let lines: Vec<_> = text(name).lines().map(str::to_owned).collect();
            let mut cut = lines[..keep].to_vec();
            cut.push(mark.to_owned());
            cut.extend_from_slice(&lines[keep + 4..]);
            let process = read((cut.join("\n") + "\n").as_bytes());
            assert!(process.incomplete, "{name}, {mark}");
            let said =
                "lines were cut out of the list in 1 place: the number of mappings is unknown";
            assert_eq!(process.notes, [said], "{name}, {mark}");
            let boundaries = process.boundaries();
            let cuts = boundaries
                .iter()
                .filter(|b| b.reason == Reason::Cut)
                .count();
            assert_eq!(cuts, 1, "{name}, {mark}");
            assert!(
                boundaries
                    .iter()
                    .all(|b| b.reason != Reason::Cut || b.remedy.is_none())
            );
        }
    }
    // A mark at the end says that the rest is missing.
    let process = read(format!("{}\n...\n", lines[..8].join("\n")).as_bytes());
    assert!(process.incomplete);
    assert!(process.boundaries().iter().all(|b| b.reason != Reason::Cut));
}

#[test]
fn the_lists_of_two_processes_are_refused_by_name() {
    let other = |name: &str| text(name).replace("31299", "31300");
    let both = |name: &str| refusal((text(name) + &other(name)).as_bytes());
    assert_eq!(
        both("pmap.txt"),
        "it has the lists of 2 processes (31299 ./server, 31300 ./server): keep one of them"
    );
    assert_eq!(
        both("gdb.txt"),
        "it has the lists of 2 processes (31299, 31300): keep one of them"
    );
    let maps = text("server.maps");
    let said = refusal(format!("{maps}{maps}").as_bytes());
    let expected = "mapping 30 (400000) is not above the one before it: does the text contain two lists? \
                    Keep one of them";
    assert_eq!(said, expected);
}

#[test]
fn a_binary_file_is_not_searched_for_a_list() {
    let mut file = vec![0u8; 4096];
    file.extend_from_slice(&sample("server.maps"));
    assert_eq!(
        refusal(&file),
        "it is not text: send a copy of /proc/PID/maps"
    );
    let mut core = sample("core.bin");
    core.extend_from_slice(text("server.maps").lines().next().unwrap().as_bytes());
    assert_eq!(read(&core).total, 28);
    // A program: the type is not that of a core.
    core[16] = 2;
    assert_eq!(
        refusal(&core),
        "it is an ELF program, not a core: send a copy of /proc/PID/maps of its process"
    );
}
