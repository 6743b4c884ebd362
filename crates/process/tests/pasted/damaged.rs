//! Samples that are cut off, or with lines that cannot be read.

use super::{SAMPLES, read, refusal, sample, text};
use vmarea_process::{Process, Reason};

/// Replaces the part `from` of the only line that has `line`.
fn with(name: &str, line: &str, from: &str, to: &str) -> String {
    let text = text(name);
    assert_eq!(
        text.lines().filter(|one| one.contains(line)).count(),
        1,
        "{name}: {line}"
    );
    let lines = text.lines().map(|one| match one.contains(line) {
        true => one.replace(from, to) + "\n",
        false => one.to_owned() + "\n",
    });
    lines.collect()
}

#[test]
fn a_line_with_wrong_numbers_is_named() {
    for (name, line, from, to, said) in [
        (
            "pmap.txt",
            "484K",
            "484K r-x--",
            "484K",
            "line 3 is damaged (no permissions) and was left out",
        ),
        (
            "pmap-details.txt",
            " 7fe0802ef000",
            "---p 00000000",
            "---p",
            "line 26 is damaged (a column is missing) and was left out",
        ),
        (
            "gdb.txt",
            "0x3c5b4000",
            "0x22000",
            "0x22",
            "line 11 is damaged (its size is not that of its addresses) and was left out",
        ),
        (
            "tombstone.txt",
            "dalvik",
            "40000000",
            "4000000",
            "line 9 is damaged (its size is not that of its addresses) and was left out",
        ),
        (
            "asan.txt",
            "[heap]",
            "0x556b46505000",
            "0x556b36505000",
            "line 12 is damaged (it ends before it begins) and was left out",
        ),
        (
            "system_map.txt",
            "[heap]",
            "rw-p",
            "rw",
            "line 20 is damaged (no permissions) and was left out",
        ),
        (
            "lldb.txt",
            "[heap]",
            "rw-",
            "rq-",
            "line 10 is damaged (no permissions) and was left out",
        ),
        (
            "server.maps",
            "[heap]",
            " rw-p ",
            " rwqp ",
            "line 7 is damaged (no mapping can be read from it) and was left out",
        ),
    ] {
        let process = read(with(name, line, from, to).as_bytes());
        assert!(
            process.notes.iter().any(|note| note == said),
            "{name}: {:?}",
            process.notes
        );
        assert!(process.incomplete, "{name}");
    }
}

#[test]
fn a_line_of_a_log_within_a_list_is_left_out() {
    for name in [
        "server.maps",
        "pmap.txt",
        "gdb.txt",
        "gef.txt",
        "system_map.txt",
    ] {
        let text = text(name);
        let lines: Vec<_> = text.lines().collect();
        let (below, above) = lines.split_at(lines.len() / 2);
        let noise = "Nov 28 10:00:00 host kernel: eth0: link is up";
        let mixed = format!("{}\n{noise}\n{}\n", below.join("\n"), above.join("\n"));
        let process = read(mixed.as_bytes());
        assert_eq!(process.total, read(text.as_bytes()).total, "{name}");
        let said = "left out 1 line that is not part of a list of mappings";
        assert_eq!(process.notes, [said], "{name}");
        assert!(!process.incomplete, "{name}");
    }
}

#[test]
fn what_surrounds_the_lines_of_a_list_is_removed() {
    let around = |name: &str, before: &str, after: &str| {
        let text = text(name);
        let lines = text.lines().map(|line| format!("{before}{line}{after}"));
        read(lines.collect::<String>().as_bytes())
    };
    for (name, ..) in SAMPLES.iter().filter(|(name, ..)| *name != "core.bin") {
        let plain = read(text(name).as_bytes());
        for (before, after) in [
            ("> ", "\n"),
            ("", "\r\n"),
            ("Nov 28 10:00:00 host app[12]: ", "\n"),
            ("\u{1b}[32m", "\u{1b}[0m\n"),
        ] {
            let process = around(name, before, after);
            assert_eq!(process.mappings, plain.mappings, "{name} after {before:?}");
            assert_eq!(
                process.incomplete, plain.incomplete,
                "{name} after {before:?}"
            );
        }
    }
}

#[test]
fn a_list_whose_lines_are_missing_is_noticed_by_its_sum() {
    let without = |name: &str, line: &str| {
        let text = text(name);
        let lines = text.lines().filter(|one| !one.contains(line));
        read(
            lines
                .map(|one| one.to_owned() + "\n")
                .collect::<String>()
                .as_bytes(),
        )
    };
    for name in ["pmap.txt", "pmap-extended.txt", "pmap-device.txt"] {
        let process = without(name, "00000000004a9000");
        let tool = if name == "pmap-device.txt" {
            "pmap -d"
        } else {
            "pmap"
        };
        let said =
            format!("the sizes add up to 2020 KiB, but {tool} counted 2040 KiB: lines are missing");
        assert_eq!(process.notes, [said], "{name}");
        assert!(process.incomplete);
    }
    let process = without("system_map.txt", "[heap]");
    let said = "there are 23 mappings, but jcmd System.map counted 24: lines are missing";
    assert_eq!(process.notes, [said]);
}

#[test]
fn a_list_that_ends_too_early_is_noticed() {
    for (name, mappings) in [
        ("pmap.txt", 24),
        ("gdb.txt", 24),
        ("pwndbg.txt", 24),
        ("gef.txt", 24),
    ] {
        let text = text(name);
        let heading = text
            .lines()
            .position(|line| line.contains("server"))
            .unwrap();
        let heading = if name == "pmap.txt" { 1 } else { heading };
        let lines = text.lines().take(heading + mappings);
        let cut: String = lines.map(|line| line.to_owned() + "\n").collect();
        let process = read(cut.as_bytes());
        assert_eq!(process.total as usize, mappings, "{name}");
        assert_eq!(
            process.notes,
            ["the list has no [stack]: its end may be missing"],
            "{name}"
        );
        assert!(process.incomplete, "{name}");
    }
    let cut = text("asan.txt");
    let cut = &cut[..cut.find("libm.so.6").unwrap()];
    let notes = read(cut.as_bytes()).notes;
    assert_eq!(
        notes[0],
        "the last line has no line end: the list may be cut off there"
    );
}

#[test]
fn a_core_is_used_up_to_where_it_is_cut_off() {
    let core = sample("core.bin");
    assert_eq!(
        refusal(&core[..7]),
        "the ELF file is damaged or cut off in its header"
    );
    assert_eq!(
        refusal(&core[..1000]),
        "the core is cut off or damaged in its program headers, which are the list of mappings"
    );
    let process = read(&core[..0x6d0]);
    assert_eq!(process.total, 28);
    let said = "the core's notes are cut off or damaged: names of files are missing";
    assert_eq!(process.notes, [said]);
    // Without the names, each mapping may be that of a file.
    assert!(process.boundaries().iter().all(|b| b.remedy.is_none()));
    // The size of a mapping that ends above the last address.
    let mut damaged = core.clone();
    damaged[64 + 2 * 56 + 40..][..8].fill(0xff);
    let process = read(&damaged);
    assert!(process.incomplete);
    assert_eq!(
        process.notes[1],
        "1 program headers of the core are damaged and were left out"
    );
}

/// Random numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

#[test]
fn samples_that_are_cut_off_or_changed_anywhere_never_panic() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for (name, ..) in SAMPLES {
        let whole = sample(name);
        for _ in 0..300 {
            let mut file = whole[..1 + random.below(whole.len())].to_vec();
            for _ in 0..random.below(8) {
                let at = random.below(file.len());
                file[at] = match random.below(3) {
                    0 => random.below(256) as u8,
                    1 => b"0123456789abcdef-x \n\t[]"[random.below(23)],
                    _ => file[random.below(file.len())],
                };
            }
            if let Ok(process) = Process::from_text(name.to_owned(), &file) {
                let boundaries = process.boundaries();
                assert_eq!(boundaries.len() + 1, process.mappings.len(), "{name}");
                let cut = boundaries.iter().any(|b| b.reason == Reason::Cut);
                assert!(
                    !cut || process.incomplete,
                    "{name}: a cut list is not whole"
                );
            }
        }
    }
}
