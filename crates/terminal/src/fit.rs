//! Text that fits the width of the terminal: long paths are cut in the middle, other lines are broken.
//!
//! The width is that of `COLUMNS`, or of the terminal. Text that goes to a file or to another program
//! is not changed, unless `COLUMNS` is set.

use console::measure_text_width as columns;
use rustix::termios::tcgetwinsize;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

/// Smallest width at which a line is fitted. Paths that are cut to less are of no use.
const LEAST: usize = 40;
/// Smallest number of columns that remain of a path.
const LEAST_OF_PATH: usize = 16;

/// Returns the number of columns for an output; `None` if lines may have any length.
pub fn width(output: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok();
    let columns = columns.and_then(|columns| columns.parse().ok());
    let of_terminal = || {
        let size = output.is_terminal().then(|| tcgetwinsize(output).ok());
        size.flatten().map(|size| usize::from(size.ws_col))
    };
    columns.or_else(of_terminal).filter(|&width| width >= LEAST)
}

/// Returns a message in lines of at most `width` columns. A longer word, such as a path that a user
/// would copy, stays whole.
pub fn message(text: &str, width: Option<usize>) -> String {
    let width = width.unwrap_or(usize::MAX);
    let lines = text
        .split('\n')
        .map(|line| broken(line, width, str::to_owned));
    lines.collect::<Vec<_>>().join("\n")
}

/// Writer that fits each line into a width.
pub struct Fitted<'a> {
    out: &'a mut dyn Write,
    width: Option<usize>,
    /// Beginning of a line that is not complete yet.
    line: Vec<u8>,
}

impl<'a> Fitted<'a> {
    /// Creates a writer to `out`; without a `width`, it changes nothing.
    pub fn new(out: &'a mut dyn Write, width: Option<usize>) -> Fitted<'a> {
        Fitted {
            out,
            width,
            line: Vec::new(),
        }
    }

    /// Writes a last line that has no end.
    ///
    /// # Errors
    /// Any error from the underlying writer.
    pub fn finish(mut self) -> io::Result<()> {
        self.write_line("")
    }

    fn write_line(&mut self, end: &str) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let width = self.width.unwrap_or(usize::MAX);
        write!(self.out, "{}{end}", fitted(&line, width))
    }
}

impl Write for Fitted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.width.is_none() {
            return self.out.write(bytes);
        }
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            let whole = line.strip_suffix(b"\n");
            self.line.extend(whole.unwrap_or(line));
            if whole.is_some() {
                self.write_line("\n")?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Returns a line as one or more lines of at most `width` columns.
fn fitted(line: &str, width: usize) -> String {
    let all = columns(line);
    if all <= width {
        return line.to_owned();
    }
    let paths = line.split(' ').filter(|word| word.contains('/'));
    let Some(path) = paths.max_by_key(|word| columns(word)) else {
        return broken(line, width, cut_to(width));
    };
    let room = (columns(path) + width).saturating_sub(all);
    let cut = line.replacen(path, &middle_cut(path, room.max(LEAST_OF_PATH)), 1);
    broken(&cut, width, cut_to(width))
}

/// Returns a function that shortens words so that they fit into a line.
fn cut_to(width: usize) -> impl Fn(&str) -> String {
    move |word| middle_cut(word, width - width / 2)
}

/// Breaks a line between words; the following lines are indented by two columns more. `shortened`
/// may shorten words that are too long.
fn broken(line: &str, width: usize, shortened: impl Fn(&str) -> String) -> String {
    if columns(line) <= width {
        return line.to_owned();
    }
    let indent = line.len() - line.trim_start_matches(' ').len() + 2;
    let indent = indent.min(width / 2);
    let (mut text, mut used) = (String::new(), 0);
    // An empty word stands for one of several spaces, which keep columns aligned.
    for (n, word) in line.split(' ').enumerate() {
        let word = match columns(word) + indent > width {
            true => shortened(word),
            false => word.to_owned(),
        };
        let wide = columns(&word);
        if n > 0 && used + 1 + wide > width {
            text.truncate(text.trim_end_matches(' ').len());
            text += "\n";
            text += &" ".repeat(indent);
            used = indent;
        } else if n > 0 && !(used == indent && text.ends_with(' ') && word.is_empty()) {
            text.push(' ');
            used += 1;
        }
        text += &word;
        used += wide;
    }
    text
}

/// Returns `word` in at most `room` columns, with an ellipsis in place of its middle.
fn middle_cut(word: &str, room: usize) -> String {
    if columns(word) <= room {
        return word.to_owned();
    }
    let letters: Vec<char> = word.chars().collect();
    let wide = |letters: &[char]| columns(&letters.iter().collect::<String>());
    let mut front = (room - 1) / 2;
    while wide(&letters[..front]) > (room - 1) / 2 {
        front -= 1;
    }
    let mut back = letters.len() - (room - 1 - (room - 1) / 2);
    while wide(&letters[back..]) > room - 1 - (room - 1) / 2 {
        back += 1;
    }
    let (front, back) = (letters[..front].iter(), letters[back..].iter());
    front.chain(&['…']).chain(back).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(line: &str) -> String {
        let text = fitted(line, 40);
        for line in text.lines() {
            assert!(columns(line) <= 40, "{line:?}");
        }
        text
    }

    #[test]
    fn a_path_is_cut_in_the_middle_and_words_stay_whole() {
        let path = "/a/very/long/folder/name/that/goes/on/and/on/libexample.so";
        assert_eq!(
            fits(&format!("7000 r--p {path}")),
            "7000 r--p /a/very/long/f…n/libexample.so"
        );
        assert_eq!(
            fits("  the number of mappings is not known before the end of it"),
            "  the number of mappings is not known\n    before the end of it"
        );
        assert_eq!(fits("short"), "short");
    }

    #[test]
    fn wide_letters_and_colours_are_measured_as_they_are_shown() {
        fits(&"界".repeat(60));
        fits(&format!("/{}/x y", "界".repeat(60)));
        let colored = format!("\x1b[1m{}\x1b[0m", "a".repeat(38));
        assert_eq!(fits(&colored), colored);
        fits(&"─".repeat(90));
        fits(&format!("{}a", " ".repeat(90)));
    }

    #[test]
    fn lines_are_fitted_even_if_they_are_written_in_pieces() {
        let written = |width| {
            let mut out = Vec::new();
            let mut fitted = Fitted::new(&mut out, width);
            for piece in ["x".repeat(30), "x".repeat(30) + "\n", "end".to_owned()] {
                write!(fitted, "{piece}").unwrap();
            }
            fitted.finish().unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(None), "x".repeat(60) + "\nend");
        let narrow = written(Some(40));
        assert!(narrow.ends_with("\nend"), "{narrow}");
        assert!(narrow.lines().all(|line| columns(line) <= 40), "{narrow}");
    }
}
