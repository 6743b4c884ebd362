//! The terminal while `top` draws on it: its state, which is restored at the end, its keys, and what
//! it shows.
//!
//! A line that changes is written in its whole width over the old one, and all of them by one write,
//! so nothing is cleared before and nothing flickers. What a terminal sends that is no key of [`Key`]
//! is skipped.

use console::{Alignment, Style, pad_str, truncate_str};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::SIGWINCH;
use signal_hook::low_level::pipe;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic;
use std::sync::Arc;
use std::time::Duration;

/// Another screen, without a cursor, on which a line that is too long does not continue in the next.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// The screen and the cursor as they were.
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// A key that means something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    CtrlC,
    Letter(char),
}

/// What [`Screen::wait`] has waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Key(Key),
    /// The screen has to be drawn again, if only because its size is another one.
    Redraw,
    /// The time is over.
    Timeout,
}

/// Columns and rows of the screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size {
    pub columns: usize,
    pub rows: usize,
}

/// The terminal, which is as it was once the value is dropped, or when a panic is about to be
/// reported.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: Arc<Terminal>,
    /// Readable after a change of the size.
    resized: UnixStream,
    /// What was read but is no whole key yet.
    typed: Vec<u8>,
    /// Lines that are on the screen.
    shown: Vec<String>,
}

#[derive(Debug)]
struct Terminal {
    input: File,
    before: Termios,
}

impl Terminal {
    fn restore(&self) {
        // The terminal may have gone, and no one can be told.
        let _ = tcsetattr(&self.input, OptionalActions::Now, &self.before);
        let _ = write(LEAVE);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// Any error from reading or changing the terminal's state.
    pub fn enter() -> io::Result<Screen> {
        let stdin = io::stdin();
        let input = match stdin.is_terminal() {
            true => stdin.as_fd().try_clone_to_owned()?.into(),
            false => File::open("/dev/tty")?,
        };
        let (resized, resizes) = UnixStream::pair()?;
        resized.set_nonblocking(true)?;
        pipe::register(SIGWINCH, resizes)?;
        let colours = anstream::AutoStream::choice(&io::stdout());
        console::set_colors_enabled(colours != anstream::ColorChoice::Never);
        let before = tcgetattr(&input)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&input, OptionalActions::Now, &raw)?;
        let screen = Screen {
            terminal: Arc::new(Terminal { input, before }),
            resized,
            typed: Vec::new(),
            shown: Vec::new(),
        };
        // The report of a panic belongs on the screen that stays.
        let (report, terminal) = (panic::take_hook(), Arc::downgrade(&screen.terminal));
        panic::set_hook(Box::new(move |what| {
            if let Some(terminal) = terminal.upgrade() {
                terminal.restore();
            }
            report(what);
        }));
        write(ENTER)?;
        Ok(screen)
    }

    pub fn size(&self) -> Size {
        let size = tcgetwinsize(io::stdout()).map(|size| (size.ws_col, size.ws_row));
        let (columns, rows) = size
            .ok()
            .filter(|&size| size.0 > 0 && size.1 > 0)
            .unwrap_or((80, 24));
        Size {
            columns: columns.into(),
            rows: rows.into(),
        }
    }

    /// Shows these lines from the top of a screen of this size.
    ///
    /// # Errors
    /// Any error from writing to the terminal.
    pub fn draw(&mut self, lines: &[String], size: Size) -> io::Result<()> {
        let mut changes = String::new();
        let lines = lines.iter().map(String::as_str);
        let lines = lines.chain(std::iter::repeat("")).take(size.rows);
        let lines: Vec<_> = lines.map(|line| cell(line, size.columns, false)).collect();
        for (row, line) in lines.iter().enumerate() {
            if self.shown.get(row) != Some(line) {
                // Writing to a string cannot fail.
                let _ = write!(changes, "\x1b[{};1H{line}", row + 1);
            }
        }
        self.shown = lines;
        write(&changes)
    }

    /// Waits for a key or a resize, at most for this time.
    ///
    /// # Errors
    /// Any error from reading from the terminal, and its end.
    pub fn wait(&mut self, most: Duration) -> io::Result<Event> {
        if let Some(event) = self.next() {
            return Ok(event);
        }
        let input = &self.terminal.input;
        let [keys, resized] = readable([input.as_fd(), self.resized.as_fd()], most)?;
        if resized {
            // What is left makes another event.
            let _ = self.resized.read(&mut [0; 64]);
            self.shown.clear();
            return Ok(Event::Redraw);
        }
        if !keys {
            return Ok(Event::Timeout);
        }
        self.read()?;
        Ok(self.next().unwrap_or(Event::Redraw))
    }

    fn next(&mut self) -> Option<Event> {
        let (key, len) = first(&self.typed)?;
        self.typed.drain(..len);
        Some(key.map_or(Event::Redraw, Event::Key))
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 256];
        match (&self.terminal.input).read(&mut bytes)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            len => {
                self.typed.extend_from_slice(&bytes[..len]);
                Ok(())
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // After a panic, the terminal is restored already.
        if !std::thread::panicking() {
            self.terminal.restore();
        }
    }
}

/// Waits until one of these can be read, and returns which.
fn readable(of: [impl AsFd; 2], most: Duration) -> io::Result<[bool; 2]> {
    let mut each = of.each_ref().map(|one| PollFd::new(one, PollFlags::IN));
    match poll(&mut each, Timespec::try_from(most).ok().as_ref()) {
        Ok(_) => Ok(each.map(|one| !one.revents().is_empty())),
        // The resize that interrupted it can be read the next time.
        Err(Errno::INTR) => readable(of, Duration::ZERO),
        Err(error) => Err(error.into()),
    }
}

/// Returns the first key of what was typed, if it means something, and its number of bytes; `None`
/// if more has to be read.
///
/// An escape character that nothing follows is the key of that name.
fn first(typed: &[u8]) -> Option<(Option<Key>, usize)> {
    let one = |key| Some((Some(key), 1));
    match *typed {
        [] => None,
        [b'\r' | b'\n', ..] => one(Key::Enter),
        [0x7f | 0x08, ..] => one(Key::Backspace),
        [0x03, ..] => one(Key::CtrlC),
        [0x1b, b'[' | b'O', ref rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte))?;
            Some((sequence(&rest[..end], rest[end]), end + 3))
        }
        [0x1b, ..] => one(Key::Escape),
        [..0x20, ..] => Some((None, 1)),
        _ => match typed.utf8_chunks().next()?.valid().chars().next() {
            Some(letter) => Some((Some(Key::Letter(letter)), letter.len_utf8())),
            // Unknown length: the rest of a letter is on its way.
            None => Some((None, str::from_utf8(typed).err()?.error_len()?)),
        },
    }
}

/// Returns the key of an escape sequence, by its parameters and its last byte.
fn sequence(parameters: &[u8], last: u8) -> Option<Key> {
    Some(match (parameters, last) {
        (_, b'A') => Key::Up,
        (_, b'B') => Key::Down,
        (_, b'H') | (b"1" | b"7", b'~') => Key::Home,
        (_, b'F') | (b"4" | b"8", b'~') => Key::End,
        (b"5", b'~') => Key::PageUp,
        (b"6", b'~') => Key::PageDown,
        _ => return None,
    })
}

/// Returns a text in exactly so many columns, cut or filled up.
pub(super) fn cell(text: &str, columns: usize, to_the_right: bool) -> String {
    let side = match to_the_right {
        true => Alignment::Right,
        false => Alignment::Left,
    };
    let cut = truncate_str(text, columns, "");
    pad_str(&cut, columns, side, None).into_owned()
}

/// Makes a text stand out, also where colours are not wanted.
pub(super) fn strong(text: &str) -> String {
    let style = Style::new().bold().force_styling(true);
    style.apply_to(text).to_string()
}

/// Marks a text as the selected one, also where colours are not wanted.
pub(super) fn selected(text: &str) -> String {
    let style = Style::new().reverse().force_styling(true);
    style.apply_to(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all keys, and what is left.
    fn keys(mut typed: &[u8]) -> (Vec<Key>, &[u8]) {
        let mut keys = Vec::new();
        while let Some((key, len)) = first(typed) {
            keys.extend(key);
            typed = &typed[len..];
        }
        (keys, typed)
    }

    #[test]
    fn keys_are_read_from_what_terminals_send() {
        let sent = "q\r\x7f\x03\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[1~\x1b[4~\x1b[H\x1b[F/é界\x1b";
        let expected = [
            Key::Letter('q'),
            Key::Enter,
            Key::Backspace,
            Key::CtrlC,
            Key::Up,
            Key::Down,
            Key::PageUp,
            Key::PageDown,
            Key::Home,
            Key::End,
            Key::Home,
            Key::End,
            Key::Letter('/'),
            Key::Letter('é'),
            Key::Letter('界'),
            Key::Escape,
        ];
        assert_eq!(keys(sent.as_bytes()), (expected.to_vec(), &b""[..]));
    }

    #[test]
    fn what_is_no_key_is_skipped_and_half_a_key_is_kept() {
        let only_q = (vec![Key::Letter('q')], &b""[..]);
        for sent in [&b"\x1b[200~q"[..], b"\x1b[1;5Cq", b"\xff\x80q", b"\x15\0q"] {
            assert_eq!(keys(sent), only_q, "{sent:?}");
        }
        for half in [&b"\x1b["[..], b"\x1b[5", b"\xe7\x95"] {
            assert_eq!(keys(half), (vec![], half));
        }
    }

    #[test]
    fn a_cell_has_its_width_whatever_is_in_it() {
        for text in [
            "",
            "abc",
            "abcdefgh",
            "界界界界",
            "a界界界",
            "\x1b[1mabcdefgh\x1b[0m",
        ] {
            for to_the_right in [false, true] {
                let cell = cell(text, 6, to_the_right);
                assert_eq!(console::measure_text_width(&cell), 6, "{cell:?}");
            }
        }
        assert_eq!(cell("ab", 4, true), "  ab");
    }
}
