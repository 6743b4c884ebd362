//! Progress on standard error: a bar on a terminal, otherwise a line every ten seconds.

use crate::console::Console;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

/// Time between two lines if no bar is drawn.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Progress of one phase of the work; dropping it removes the bar.
#[derive(Debug)]
pub struct Meter<'a> {
    console: &'a Console,
    what: &'static str,
    bar: ProgressBar,
    drawn: Drawn,
    last_line: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Drawn {
    Bar,
    Lines,
}

impl<'a> Meter<'a> {
    /// Starts a phase of unknown length, while the user's program runs.
    pub fn beside_program(console: &'a Console, what: &'static str) -> Self {
        Self::of_unknown_length(console, what, console.draws_beside_program())
    }

    /// Starts a phase of unknown length, while no program uses the terminal.
    pub fn alone(console: &'a Console, what: &'static str) -> Self {
        Self::of_unknown_length(console, what, console.draws_alone())
    }

    fn of_unknown_length(console: &'a Console, what: &'static str, draws: bool) -> Self {
        let drawn = if draws { Drawn::Bar } else { Drawn::Lines };
        let style = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {msg}");
        Self::new(console, what, drawn, ProgressBar::no_length(), style)
    }

    /// Starts a phase that processes `total` bytes.
    pub fn of_bytes(console: &'a Console, what: &'static str, total: u64) -> Self {
        let drawn = if console.draws_alone() {
            Drawn::Bar
        } else {
            Drawn::Lines
        };
        let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent}% {eta} {msg}");
        Self::new(console, what, drawn, ProgressBar::new(total), style)
    }

    /// Starts a phase that processes `total` items.
    pub fn of_items(console: &'a Console, what: &'static str, total: u64) -> Self {
        let drawn = if console.draws_alone() {
            Drawn::Bar
        } else {
            Drawn::Lines
        };
        // The remaining time follows from the speed of the items so far.
        let style = ProgressStyle::with_template("{prefix} {wide_bar} {eta} {msg}");
        Self::new(console, what, drawn, ProgressBar::new(total), style)
    }

    fn new(
        console: &'a Console,
        what: &'static str,
        drawn: Drawn,
        bar: ProgressBar,
        style: Result<ProgressStyle, indicatif::style::TemplateError>,
    ) -> Self {
        bar.set_draw_target(match drawn {
            Drawn::Bar => ProgressDrawTarget::stderr_with_hz(10),
            Drawn::Lines => ProgressDrawTarget::hidden(),
        });
        bar.set_style(style.expect("the templates are ours"));
        bar.set_prefix(what);
        Self {
            console,
            what,
            bar,
            drawn,
            last_line: Instant::now(),
        }
    }

    /// Advances to `position` (in bytes, if the phase has a length) and shows the text from
    /// `reached`.
    pub fn at(&mut self, position: u64, reached: impl FnOnce() -> String) {
        match self.drawn {
            Drawn::Bar => {
                self.bar.set_message(reached());
                self.bar.set_position(position);
            }
            Drawn::Lines if self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                self.console.note(&format!("{}: {}", self.what, reached()));
            }
            Drawn::Lines => {}
        }
    }
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
