//! A terminal for a program under test: a pseudoterminal, and an emulator that keeps its screen.

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Time limit for a screen to appear, which is longer than it takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A program on a terminal. It receives SIGHUP when the value is dropped, or when the test ends.
pub struct Terminal {
    program: Child,
    master: File,
    output: Receiver<Vec<u8>>,
    emulator: vt100::Parser,
}

impl Terminal {
    /// Starts a program on a terminal of this size.
    pub fn start(program: &str, arguments: &[&str], columns: u16, rows: u16) -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a pseudoterminal");
        grantpt(&master).expect("permission");
        unlockpt(&master).expect("its other end");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NOCTTY.bits() as i32)
            .open(name.to_str().expect("a path"))
            .expect("its other end");
        let end = || slave.try_clone().expect("another descriptor");
        let mut master = File::from(master);
        set_size(&master, columns, rows);
        // A session with this terminal, so that a resize raises SIGWINCH.
        let program = Command::new("setsid")
            .args(["--ctty", program])
            .args(arguments)
            .env("TERM", "xterm-256color")
            .env_remove("COLUMNS")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("setsid");
        let (sender, output) = channel();
        let mut reader = master.try_clone().expect("another descriptor");
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The read fails when the program has closed the terminal.
            while let Ok(len @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..len].to_vec()).is_err() {
                    break;
                }
            }
        });
        master.flush().expect("nothing to write");
        Terminal {
            program,
            master,
            output,
            emulator: vt100::Parser::new(rows, columns, 0),
        }
    }

    /// Types keys.
    pub fn keys(&mut self, keys: &str) {
        self.master
            .write_all(keys.as_bytes())
            .expect("the terminal");
    }

    /// Changes the size of the terminal.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.emulator.screen_mut().set_size(rows, columns);
        set_size(&self.master, columns, rows);
    }

    /// Waits until the screen is as `wanted`, and returns its lines.
    pub fn wait_for(&mut self, what: &str, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
        let until = Instant::now() + LIMIT;
        loop {
            let lines = self.lines();
            if wanted(&lines) {
                return lines;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.emulator.process(&bytes),
                Err(why) => panic!("no {what} ({why}) on this screen:\n{}", lines.join("\n")),
            }
        }
    }

    /// Waits until a line of the screen contains a text, and returns that line.
    pub fn wait_for_line(&mut self, text: &str) -> String {
        let lines = self.wait_for(text, |lines| lines.iter().any(|line| line.contains(text)));
        let line = lines.into_iter().find(|line| line.contains(text));
        line.expect("the line that was waited for")
    }

    /// Waits for the program to end; returns its status, and whether it left the terminal as it was.
    pub fn end(mut self) -> (ExitStatus, bool) {
        let status = self.program.wait().expect("the program");
        while let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(200)) {
            self.emulator.process(&bytes);
        }
        let screen = self.emulator.screen();
        (status, !screen.alternate_screen() && !screen.hide_cursor())
    }

    fn lines(&self) -> Vec<String> {
        let screen = self.emulator.screen();
        let (_, columns) = screen.size();
        let rows = screen.rows(0, columns);
        rows.map(|row| row.trim_end().to_owned()).collect()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Only after a failed test is the program still running.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn set_size(terminal: &File, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).expect("a size");
}
