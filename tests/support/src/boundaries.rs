//! C program that creates boundaries between VMAs, compiled once per test and started once per
//! case.

use crate::leash::{self, Leashed};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names and contents of the program's source files.
const SOURCES: [(&str, &str); 3] = [
    ("main.c", include_str!("boundaries/main.c")),
    ("range.h", include_str!("boundaries/range.h")),
    ("attributes.h", include_str!("boundaries/attributes.h")),
];

/// The compiled program, in a folder that is removed when the value is dropped.
pub struct Program {
    folder: tempfile::TempDir,
    binary: PathBuf,
}

/// A running case, which ends when the value is dropped.
pub struct Case {
    /// Id of the process that contains the boundaries.
    pub pid: i32,
    /// Start and end of the address range that contains the boundaries.
    pub range: (u64, u64),
    /// Number of boundaries.
    pub boundaries: u64,
    _child: Leashed,
    _files: tempfile::TempDir,
}

impl Program {
    /// Compiles the program with the C compiler of this machine.
    pub fn compile() -> Program {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("boundaries");
        // The files are in a temporary folder, because other users may not be able to read the
        // checkout.
        for (name, text) in SOURCES {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let mut compiler = Command::new("cc");
        compiler
            .args(["-O1", "-Wall", "-o"])
            .arg(&binary)
            .arg(folder.path().join("main.c"));
        let compiled = leash::output(&mut compiler).expect("a C compiler");
        let said = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{said}");
        Program { folder, binary }
    }

    /// Returns the path of the compiled program.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Starts a case; returns `None` if this machine does not support it.
    pub fn start(&self, name: &str, n: u64) -> Option<Case> {
        let files = tempfile::tempdir_in(self.folder.path().parent().unwrap()).unwrap();
        let mut command = Command::new(&self.binary);
        command
            .arg(name)
            .arg(n.to_string())
            .arg(files.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = Leashed::start(&mut command).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let mut words = line.split_whitespace();
        let Some(pid) = words.next() else {
            let status = child.wait().unwrap();
            assert_eq!(status.code(), Some(77), "{name} failed");
            return None;
        };
        let mut address = || u64::from_str_radix(words.next().unwrap(), 16).unwrap();
        let range = (address(), address());
        Some(Case {
            pid: pid.parse().unwrap(),
            range,
            boundaries: words.next().unwrap().parse().unwrap(),
            _child: child,
            _files: files,
        })
    }
}
