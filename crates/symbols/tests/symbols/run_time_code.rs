//! Tests of names for code made at run time, in programs that only claim to have such code.

use crate::program::{Running, tool};
use std::io::Write;
use std::os::unix::fs::{chown, symlink};
use std::path::PathBuf;
use std::process::Command;
use vmarea_symbols::{Symbols, Table};

/// A program with an executable anonymous mapping, whose address it writes.
struct Jitting {
    running: Running,
    code: u64,
    _folder: tempfile::TempDir,
}

const SOURCE: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
int main(void) {
    void *code = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("ready\n%lx\n", (unsigned long)code);
    fflush(stdout);
    return getchar();
}
"#;

/// The perf map of a process, removed at the end of the test.
struct Map(PathBuf);

impl Drop for Map {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Jitting {
    fn start() -> Jitting {
        let folder = tempfile::tempdir().unwrap();
        let (source, binary) = (folder.path().join("a.c"), folder.path().join("a"));
        std::fs::write(&source, SOURCE).unwrap();
        tool(
            "cc",
            &["-o", binary.to_str().unwrap(), source.to_str().unwrap()],
        );
        let mut running = Running::start(&mut Command::new(binary));
        let code = u64::from_str_radix(&running.line(), 16).unwrap();
        Jitting {
            running,
            code,
            _folder: folder,
        }
    }

    fn map(&self) -> Map {
        Map(format!("/tmp/perf-{}.map", self.running.pid()).into())
    }

    /// Returns the function at an offset in the code, and the notes.
    fn function(&self, offset: u64) -> (String, Vec<String>) {
        let mut symbols = Symbols::default();
        let located = symbols.locate(self.running.target(), &[self.code + offset]);
        let table = symbols.into_table();
        (name(&table, &located), table.notes)
    }
}

fn name(table: &Table, located: &[u32]) -> String {
    let frame = table.frames(located).next();
    frame.expect("a location has a frame").function.clone()
}

#[test]
fn a_perf_map_names_code_and_nothing_else() {
    let jitting = Jitting::start();
    let map = jitting.map();
    assert_eq!(jitting.function(0).0, "[run-time code]");
    let code = jitting.code;
    let libc = vmarea_process::maps::read(jitting.running.pid()).unwrap();
    let libc = libc
        .iter()
        .find(|m| m.perms.exec && m.name.text().contains("libc.so"))
        .unwrap();
    let lies = format!(
        "{code:x} 100 good\n{:x} 1000 lie\n0 7fffffffffff lie\n",
        libc.start
    );
    std::fs::write(&map.0, lies).unwrap();
    let (function, notes) = jitting.function(8);
    assert_eq!(function, "good");
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("2 outside of run-time code"), "{notes:?}");

    let mut symbols = Symbols::default();
    let target = jitting.running.target();
    let first = symbols.locate(target, &[libc.start + 0x100, code]);
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(&map.0)
        .unwrap();
    writeln!(file, "{code:x} 100 newer").unwrap();
    let second = symbols.locate(target, &[code]);
    let table = symbols.into_table();
    assert_ne!(name(&table, &first[..1]), "lie");
    // Both meanings of the address are kept.
    assert_eq!(name(&table, &first[1..]), "good");
    assert_eq!(name(&table, &second), "newer");
}

#[test]
fn a_perf_map_of_another_user_or_behind_a_link_is_refused() {
    let jitting = Jitting::start();
    let map = jitting.map();
    let text = format!("{:x} 100 false\n", jitting.code);
    let target = jitting._folder.path().join("target");
    std::fs::write(&target, &text).unwrap();
    symlink(&target, &map.0).unwrap();
    let (function, notes) = jitting.function(0);
    assert_eq!(function, "[run-time code]");
    assert!(
        notes[0].contains("is not used: not a regular file"),
        "{notes:?}"
    );
    std::fs::remove_file(&map.0).unwrap();

    std::fs::write(&map.0, &text).unwrap();
    if chown(&map.0, Some(12_345), None).is_err() {
        println!("skipped: only root can give a file to another user");
        return;
    }
    let (function, notes) = jitting.function(0);
    assert_eq!(function, "[run-time code]");
    assert!(notes[0].contains("it belongs to user 12345"), "{notes:?}");
}

#[test]
fn a_pipe_in_place_of_a_perf_map_does_not_block() {
    let jitting = Jitting::start();
    let map = jitting.map();
    tool("mkfifo", &[map.0.to_str().unwrap()]);
    assert_eq!(jitting.function(0).0, "[run-time code]");
}
