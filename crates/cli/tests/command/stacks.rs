//! `explain --stacks`, `--folded` and `--pprof` on real programs.

use crate::support::programs::program;
use crate::support::{leash, text, vmarea};
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::Command;

fn explained(options: &[&str], command: &[&str]) -> String {
    let output = vmarea(&[&["explain", "--stacks"], options, &["--"], command].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn the_function_that_makes_the_mappings_is_named_with_its_savings() {
    let said = explained(&[], &[&program("arena.cc")]);
    let (_, said) = said
        .split_once("\nThis function made ")
        .expect("a function");
    let (mappings, rest) = said.split_once(" mappings; ").unwrap();
    let (removable, rest) = rest.split_once(" can be removed\n").unwrap();
    let [mappings, removable]: [u64; 2] = [mappings, removable].map(|n| n.parse().unwrap());
    // The first chunk may merge with memory of the loader, whose mapping it does not make.
    assert!((596..=600).contains(&mappings), "{mappings}");
    assert!((590..=mappings).contains(&removable), "{removable}");
    let lines: Vec<_> = rest.lines().collect();
    assert_eq!(lines[0], "  Arena::add(unsigned long)");
    // Both calls make as many mappings.
    let is_call = |line: &str| lines[1].ends_with(&format!("arena.cc:{line} in arena"));
    assert!(is_call("7") || is_call("8"), "{}", lines[1]);
    assert!(
        lines[2].contains("by mprotect(PROT_NONE) in line 8 (guard)"),
        "{}",
        lines[2]
    );
    assert!(
        rest.contains(
            "  from Arena::grow(unsigned long) (arena.cc:12)\n  from main (arena.cc:15)\n"
        )
    );
    assert!(
        rest.lines().all(|line| line.chars().count() <= 80),
        "{rest}"
    );

    let report: Value =
        serde_json::from_str(&explained(&["--json"], &[&program("arena.cc")])).unwrap();
    let made = &report["made_from"][0];
    assert_eq!(made["code"]["function"], "Arena::add(unsigned long)");
    assert!(
        made["code"]["line"] == 7 || made["code"]["line"] == 8,
        "{made}"
    );
    assert_eq!(made["code"]["inlined"], true);
    assert_eq!(made["mappings"], mappings);
    assert_eq!(made["removable"], removable);
}

#[test]
fn the_profiles_count_every_mapping() {
    let folder = tempfile::tempdir().unwrap();
    let pprof = folder.path().join("profile.pb.gz");
    let json = folder.path().join("report.json");
    let options = ["--folded", "-", "--pprof", pprof.to_str().unwrap()];
    let json_option = format!("--json={}", json.display());
    let options = [&options[..], &[&json_option]].concat();
    let folded = explained(&options, &[&program("arena.cc")]);
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let mappings = report["mappings"].as_u64().unwrap();
    let counts = folded.lines().map(|line| line.rsplit_once(' ').unwrap());
    assert_eq!(
        counts
            .clone()
            .map(|(_, n)| n.parse::<u64>().unwrap())
            .sum::<u64>(),
        mappings
    );
    let arena = ";main;Arena::grow(unsigned long);Arena::add(unsigned long);";
    let arenas = counts.filter(|(stack, _)| stack.contains(arena));
    let arenas: u64 = arenas.map(|(_, n)| n.parse::<u64>().unwrap()).sum();
    assert_eq!(arenas, report["made_from"][0]["mappings"], "{folded}");

    let profile = Profile::read(&pprof);
    assert_eq!(profile.values, mappings);
    for name in [
        "",
        "mappings",
        "count",
        "Arena::add(unsigned long)",
        "mprotect(PROT_NONE)",
    ] {
        assert!(
            profile.strings.iter().any(|string| string == name),
            "{name:?}"
        );
    }
    assert!(
        profile
            .strings
            .iter()
            .any(|string| string.ends_with("arena.cc"))
    );
    let mut go = Command::new("go");
    match leash::output(go.args(["tool", "pprof", "-top"]).arg(&pprof)) {
        Ok(output) if output.status.success() => {
            let said = text(&output.stdout);
            assert!(said.contains(&format!("of {mappings} total")), "{said}");
            assert!(said.contains("Arena::add (inline)"), "{said}");
        }
        _ => println!("skipped: Go is not installed"),
    }
}

/// Parts of a decoded profile.
#[derive(Default)]
struct Profile {
    values: u64,
    strings: Vec<String>,
}

impl Profile {
    fn read(path: &Path) -> Profile {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).unwrap();
        flate2::read::GzDecoder::new(file)
            .read_to_end(&mut bytes)
            .unwrap();
        let mut profile = Profile::default();
        for (field, content) in fields(&bytes) {
            match field {
                // A sample; its values are its second field, packed.
                2 => {
                    let values = fields(content).into_iter().filter(|(field, _)| *field == 2);
                    profile.values += values
                        .map(|(_, packed)| varint(&mut &packed[..]))
                        .sum::<u64>();
                }
                6 => profile.strings.push(text(content)),
                _ => {}
            }
        }
        profile
    }
}

/// Returns the number and content of the fields of a message that have a length.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        match key & 7 {
            0 => drop(varint(&mut bytes)),
            2 => {
                let len = varint(&mut bytes) as usize;
                let (content, rest) = bytes.split_at(len);
                fields.push((key >> 3, content));
                bytes = rest;
            }
            kind => panic!("no field of a profile has the kind {kind}"),
        }
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a complete number");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

#[test]
fn functions_of_javascript_are_named_by_the_perf_map() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("keep.js");
    let source = "const kept = [];\n\
                  function allocate(n) { for (let i = 0; i < n; i++) kept.push(new ArrayBuffer(8 << 20)); }\n\
                  for (let i = 0; i < 60; i++) allocate(2);\n\
                  require('fs').unlinkSync(`/tmp/perf-${process.pid}.map`);\n";
    std::fs::write(&script, source).unwrap();
    let log = format!("--logfile={}", folder.path().join("v8.log").display());
    let options = [
        "--perf-basic-prof",
        "--interpreted-frames-native-stack",
        &log,
    ];
    let command = [&["node"], &options[..], &[script.to_str().unwrap()]].concat();
    let report: Value = serde_json::from_str(&explained(&["--json"], &command)).unwrap();
    let made = report["made_from"].as_array().unwrap();
    let allocate = made
        .iter()
        .find(|made| made["code"]["function"] == "allocate");
    let code = &allocate.unwrap_or_else(|| panic!("{made:?}"))["code"];
    assert_eq!(code["file"], script.to_str().unwrap());
    assert_eq!(code["line"], 2);
    assert_eq!(code["module"], "[run-time code]");
}
