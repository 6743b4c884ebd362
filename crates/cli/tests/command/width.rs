//! Tests that the text of every command fits 80 columns.

use crate::support::{VMAREA, leash, text};
use std::path::Path;
use std::process::{Child, Command};

/// Width of the text in columns.
const WIDTH: usize = 80;

/// A process that runs a program with a long path, and is killed at the end.
struct Sleeper(Child);

impl Sleeper {
    fn start(program: &Path) -> Sleeper {
        std::fs::create_dir_all(program.parent().expect("a folder")).expect("a folder");
        // A copy that this process writes could be open in a child that another test starts at the same time.
        let copied = Command::new("cp").arg("/bin/sleep").arg(program).status();
        assert!(copied.expect("cp").success());
        Sleeper(Command::new(program).arg("60").spawn().expect("started"))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_text_of_every_command_fits_80_columns() {
    let room = tempfile::tempdir().expect("a folder");
    let folder = room.path().join("a-folder-with-a-long-name/".repeat(4));
    let program = folder.join("a-program-with-a-long-name");
    let sleeper = Sleeper::start(&program);
    let trace = folder.join("a-trace.vmtrace").display().to_string();
    let pid = sleeper.0.id().to_string();
    let program = program.display().to_string();
    let commands: &[&[&str]] = &[
        &["record", "-o", &trace, "--", &program, "0"],
        &["run", "--", &program, "0"],
        &["replay", &trace],
        &["explain", "-p", &pid],
        &["explain", "--all", "-p", &pid],
        &["explain", "--", &program, "0"],
        &["explain", "--stacks", "--", &program, "0"],
        &["merge", "-p", &pid],
        &["top", "--once"],
        &["show", "maps", "-p", &pid],
        &["show", "maps", "--trace", &trace],
        &["show", "anatomy", "-p", &pid],
        &["show", "anatomy", "--all", "-p", &pid],
        &["show", "graph", "--trace", &trace],
        &["trace", "info", &trace],
        &["trace", "dump", &trace],
    ];
    for command in commands {
        let mut vmarea = Command::new(VMAREA);
        let done = leash::output(vmarea.env("COLUMNS", "80").args(*command));
        let done = done.expect("vmarea runs");
        // A command that is not permitted here, or that has nothing to do, prints no text.
        assert!(
            matches!(done.status.code(), Some(0 | 3 | 4 | 5)),
            "{command:?}: {}",
            text(&done.stderr)
        );
        // Messages keep words that a user would copy, such as the path of a file.
        let messages = text(&done.stderr);
        let messages = messages.lines().filter(|line| line.contains(' '));
        let is_copied = |line: &&str| line.split(' ').any(|word| word.len() > 60);
        let messages = messages.filter(|line| !is_copied(line));
        let said = text(&done.stdout);
        for line in said.lines().chain(messages) {
            // These commands print no letters that take two columns.
            let width = line.chars().count();
            assert!(width <= WIDTH, "{command:?}: {width} columns: {line}");
        }
    }
}

#[test]
fn text_for_another_program_is_complete() {
    let pid = std::process::id().to_string();
    let mut vmarea = Command::new(VMAREA);
    vmarea
        .env_remove("COLUMNS")
        .args(["show", "maps", "-p", &pid]);
    let done = leash::output(&mut vmarea).expect("vmarea runs");
    let own = std::env::current_exe().expect("a path");
    assert!(
        text(&done.stdout).contains(&own.display().to_string()),
        "{}",
        text(&done.stderr)
    );
}
