//! A page of text on the screen: what `explain` reports about a process, or the help.
//!
//! The text is fitted to the width of the screen whenever the page is drawn, so it follows a
//! resize.

use super::screen::strong;
use std::io::Write;
use vmarea_explain::rows::printable;
use vmarea_explain::{List, explain};
use vmarea_process::{AskKernel, Process, Smaps};
use vmarea_terminal::console::Console;
use vmarea_terminal::fit::Fitted;

/// What the keys of `top` do.
const HELP: &str = "\x1b[1mvmarea top\x1b[0m shows the processes with the most mappings

  Enter       explain the selected process: why its mappings are separate
  / TEXT      show only processes with TEXT in the PID, name, command line,
              user, container or control group; Enter keeps it, Esc clears it
  s           sort by mappings, growth, time to limit, mergeable, size
  ↑ ↓  k j    select; PgUp, PgDn, Home and End go further
  r           read the processes again now
  ?           this help
  q  Ctrl-C   leave; on a page like this one, q goes back to the list

  LIMIT       mappings in percent of vm.max_map_count
  PER MIN     growth in mappings per minute, averaged over a minute
  TO LIMIT    time until the limit is reached if the growth continues
  MERGEABLE   mappings that all repairs would save; - if that is not known
";

/// A page that can be scrolled.
#[derive(Debug)]
pub(super) struct Page {
    /// Process that is explained; `None` for the help.
    pub pid: Option<i32>,
    text: String,
    scrolled: usize,
}

impl Page {
    pub fn help() -> Page {
        Page {
            pid: None,
            text: HELP.to_owned(),
            scrolled: 0,
        }
    }

    /// Explains a process; if that is impossible, the page says why.
    pub fn explain(pid: i32, console: &Console) -> Page {
        let text = match Process::live(pid, AskKernel::Try, Smaps::Never) {
            Ok(process) => report(&process, console),
            Err(error) => format!("{error}\n"),
        };
        Page {
            pid: Some(pid),
            text,
            scrolled: 0,
        }
    }

    pub fn scroll(&mut self, lines: isize) {
        self.scrolled = self.scrolled.saturating_add_signed(lines);
    }

    /// Returns the visible lines for a width and a number of lines.
    pub fn lines(&mut self, width: usize, room: usize) -> Vec<String> {
        let mut lines = lines(&self.text, width);
        self.scrolled = self.scrolled.min(lines.len().saturating_sub(room));
        lines.drain(..self.scrolled);
        lines.truncate(room);
        lines
    }
}

fn report(process: &Process, console: &Console) -> String {
    let report = explain(process, List::Summary);
    let mut text = Vec::new();
    let size = |bytes| console.size(bytes).to_string();
    // Writing to a vector cannot fail.
    let _ = report.write_text(&mut text, &size);
    for note in &process.notes {
        let _ = writeln!(text, "{}", printable(note));
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the text in lines that fit the width. Each is bold or plain by itself; no other escape
/// sequence is left.
fn lines(text: &str, width: usize) -> Vec<String> {
    let mut fitted = Vec::new();
    let mut writer = Fitted::new(&mut fitted, Some(width.max(20)));
    // Writing to a vector cannot fail.
    let _ = writer.write_all(text.as_bytes());
    let _ = writer.finish();
    let mut bold = false;
    let fitted = String::from_utf8_lossy(&fitted);
    let lines = fitted.lines().map(|line| {
        let pieces = line.split('\x1b').enumerate().map(|(n, piece)| {
            let piece = match piece.split_once('m') {
                Some((code, rest)) if n > 0 => {
                    bold = code == "[1";
                    rest
                }
                _ => piece,
            };
            match bold {
                true => strong(&printable(piece)),
                false => printable(piece),
            }
        });
        pieces.collect()
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bold_text_is_bold_across_lines_and_no_escape_sequence_is_left() {
        let lines = lines("a\x1b[1mb\nc\x1b[0md\n\x1b[31me\n", 80);
        assert_eq!(lines, ["a\x1b[1mb\x1b[0m", "\x1b[1mc\x1b[0md", "e"]);
    }

    #[test]
    fn the_help_fits_80_and_40_columns() {
        for width in [80, 40] {
            for line in lines(HELP, width) {
                assert!(console::measure_text_width(&line) <= width, "{line}");
            }
        }
        assert_eq!(lines(HELP, 80).len(), HELP.lines().count());
    }

    #[test]
    fn a_process_that_has_gone_is_named() {
        let console = Console::new("vmarea", &Default::default());
        let page = Page::explain(i32::MAX, &console);
        assert!(page.text.contains("no process 2147483647"), "{}", page.text);
    }
}
