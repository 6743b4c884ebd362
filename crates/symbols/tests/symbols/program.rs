//! Programs that stop at a known place, so that their stack can be read.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vmarea_process::maps::{self, MapName};
use vmarea_symbols::{LocationId, StackCopy, Symbols, Table, Target};
use vmarea_test_support::leash::{self, Leashed};

const CPP: &str = include_str!("program.cc");
const RUST: &str = include_str!("program.rs.txt");

/// A compiled program in a folder of its own.
pub struct Program {
    folder: tempfile::TempDir,
}

/// A program that waits in a system call.
pub struct Running {
    pub child: Leashed,
}

/// A debug file of the system, removed at the end of the test.
pub struct Installed(PathBuf);

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        // This fails if the folder has other files.
        let _ = std::fs::remove_dir(self.0.parent().unwrap());
    }
}

/// Runs a tool, which must succeed.
pub fn tool(name: &str, arguments: &[&str]) {
    let output = leash::output(Command::new(name).args(arguments)).expect(name);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}: {said}");
}

impl Program {
    pub fn cpp() -> Program {
        let program = Program::with("program.cc", CPP);
        let (source, binary) = (program.text("program.cc"), program.text("program"));
        tool(
            "g++",
            &["-O2", "-g", "-fomit-frame-pointer", "-o", &binary, &source],
        );
        program
    }

    pub fn rust() -> Program {
        let program = Program::with("program.rs", RUST);
        let (source, binary) = (program.text("program.rs"), program.text("program"));
        tool("rustc", &["-O", "-g", "-o", &binary, &source]);
        program
    }

    fn with(name: &str, source: &str) -> Program {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), source).unwrap();
        Program { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Moves the debug information to another file, after a link with this option.
    pub fn split(&self, debug: &str, link_option: &str) {
        let (binary, debug) = (self.text("program"), self.text(debug));
        std::fs::create_dir_all(Path::new(&debug).parent().unwrap()).unwrap();
        if link_option == "--build-id=none" {
            tool("objcopy", &["--remove-section=.note.gnu.build-id", &binary]);
        }
        tool("objcopy", &["--only-keep-debug", &binary, &debug]);
        tool("strip", &[&binary]);
        let link = format!("--add-gnu-debuglink={debug}");
        tool("objcopy", &[&link, &binary]);
    }

    /// Copies a debug file to the system's debug files; returns `None` if that is not permitted.
    pub fn install_by_build_id(&self, debug: &str) -> Option<Installed> {
        let notes = leash::output(Command::new("readelf").args(["-n", &self.text("program")]));
        let notes = String::from_utf8(notes.unwrap().stdout).unwrap();
        let (_, id) = notes.split_once("Build ID: ").expect("a build ID");
        let (first, rest) = id.lines().next().unwrap().trim().split_at(2);
        let folder = Path::new("/usr/lib/debug/.build-id").join(first);
        std::fs::create_dir_all(&folder).ok()?;
        let path = folder.join(format!("{rest}.debug"));
        std::fs::copy(self.path(debug), &path).ok()?;
        Some(Installed(path))
    }

    /// Replaces a file of the folder by an executable one with this content.
    pub fn replace(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        let _ = std::fs::remove_file(&path);
        std::fs::copy(self.path("program"), &path).unwrap();
        std::fs::write(&path, content).unwrap();
    }

    /// Returns the range of the debug sections in the program's file.
    pub fn debug_range(&self) -> (usize, usize) {
        let output = leash::output(Command::new("readelf").args(["-SW", &self.text("program")]));
        let listed = String::from_utf8(output.unwrap().stdout).unwrap();
        let ranges = listed.lines().filter_map(|line| {
            let (_, rest) = line.split_once(".debug_")?;
            let words: Vec<_> = rest.split_ascii_whitespace().collect();
            let number = |n: usize| usize::from_str_radix(words[n], 16).unwrap();
            Some((number(3), number(3) + number(4)))
        });
        ranges.fold((usize::MAX, 0), |(low, high), (start, end)| {
            (low.min(start), high.max(end))
        })
    }

    pub fn start(&self) -> Running {
        self.start_as("program")
    }

    pub fn start_as(&self, name: &str) -> Running {
        Running::start(&mut Command::new(self.path(name)))
    }
}

impl Running {
    /// Starts a program that writes a line and then waits for input.
    pub fn start(command: &mut Command) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = Leashed::start(command).unwrap();
        let mut running = Running { child };
        running.line();
        // The line precedes the call by a moment.
        while running.registers().is_none() {
            std::thread::yield_now();
        }
        running
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Returns stack pointer and instruction pointer while the program waits in `read`.
    fn registers(&self) -> Option<(u64, u64)> {
        let text = std::fs::read_to_string(format!("/proc/{}/syscall", self.pid())).unwrap();
        let words: Vec<_> = text.split_ascii_whitespace().collect();
        let number =
            |n: usize| u64::from_str_radix(words.get(n)?.trim_start_matches("0x"), 16).ok();
        let reads_input = words.first() == Some(&"0") && words.get(1) == Some(&"0x0");
        reads_input
            .then(|| Some((number(7)?, number(8)?)))
            .flatten()
    }

    /// Unwinds and names the stack; frame pointers are not needed.
    pub fn stack(&self) -> (Table, Vec<LocationId>) {
        let mut symbols = Symbols::default();
        let stack = self.unwind(&mut symbols);
        (symbols.into_table(), stack)
    }

    pub fn unwind(&self, symbols: &mut Symbols) -> Vec<LocationId> {
        let (sp, ip) = self.registers().expect("the program waits for input");
        let list = maps::read(self.pid()).unwrap();
        let stack = list
            .iter()
            .find(|mapping| mapping.name == MapName::Stack)
            .unwrap();
        let mut bytes = vec![0; (stack.end - sp).min(64 << 10) as usize];
        let memory = std::fs::File::open(format!("/proc/{}/mem", self.pid())).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, sp).unwrap();
        let copy = StackCopy {
            ip,
            sp,
            bp: 0,
            bytes: &bytes,
        };
        symbols.unwind(self.target(), &copy)
    }

    pub fn target(&self) -> Target {
        Target {
            pid: self.pid(),
            tid: self.pid(),
            space: 1,
        }
    }

    /// Returns the next line that the program writes.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        let out = self.child.stdout.as_mut().unwrap();
        let mut byte = [0];
        while out.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }
}
