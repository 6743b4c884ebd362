//! A C program that knows which value every byte of its memory must have.

use super::leash::Leashed;
use super::programs::program;
use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdout, Command, Stdio};

/// The program in one of its scenarios.
pub struct Target {
    pub child: Leashed,
    out: BufReader<ChildStdout>,
    /// Address of the program's memory, as printed by the program; empty before.
    pub place: String,
}

impl Target {
    pub fn start(arguments: &[&str]) -> Target {
        let mut command = Command::new(program("target.c"));
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = Leashed::start(&mut command).expect("it was built");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        Target {
            child,
            out,
            place: String::new(),
        }
    }

    /// Waits until the program prints `ready`.
    pub fn ready(mut self) -> Target {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        let place = line.strip_prefix("ready 0x");
        let place = place.and_then(|rest| rest.split(' ').next());
        assert!(line.starts_with("ready"), "{line}");
        self.place = place.unwrap_or_default().to_owned();
        self
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Returns the number of mappings that merges have left in the program; 0 if it has ended.
    pub fn left_by_merges(&self) -> usize {
        left_by_merges(&self.pid())
    }

    /// Returns the arguments of a command that merges the program's mappings.
    pub fn merge(&self, more: &[&str]) -> Vec<String> {
        let pid = self.pid();
        let fixed = ["merge", "-p", &pid];
        let all = fixed.iter().chain(more);
        all.map(|&argument| argument.to_owned()).collect()
    }

    /// Ends the program, which checks its memory, and returns its output. It must exit
    /// successfully.
    pub fn finish(mut self) -> String {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.out.read_to_string(&mut text).expect("text");
        let status = self.child.wait().expect("a child");
        assert!(status.success(), "{status:?}: {text}");
        text
    }
}

/// Returns the number of mappings that merges have left in a process: the agent's code is the only
/// executable memory of these programs that is no file.
pub fn left_by_merges(pid: &str) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let is_code = |line: &&str| line.contains(" r-xp ") && line.trim_end().ends_with(" 0");
    maps.lines().filter(is_code).count()
}
