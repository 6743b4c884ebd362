//! Terminal output: colours, units, notes and errors.

use crate::fit;
use crate::words::in_words;
use clap::{Args, ValueEnum};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Heading of the options that every command has.
const EVERYWHERE: &str = "Options of every command";

/// Options that every command has.
#[derive(Debug, Default, Args)]
pub struct ConsoleArgs {
    /// When to colour the output; `auto` honours NO_COLOR
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true, help_heading = EVERYWHERE)]
    color: When,

    /// Print sizes in bytes instead of KiB and MiB
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    bytes: bool,

    /// When to draw progress on standard error; `auto` draws only if no recorded program can use
    /// the terminal
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true, help_heading = EVERYWHERE)]
    progress: When,
}

/// When to use features of a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum When {
    /// Only if the output is a terminal
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Unit in which sizes are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Units {
    Binary,
    Bytes,
}

/// Prints data, notes and errors.
#[derive(Debug)]
pub struct Console {
    /// Name of the program, with which its messages begin.
    name: &'static str,
    units: Units,
    progress: When,
}

impl Console {
    /// Creates a program's console with these options. Sets the colour choice for the whole process.
    pub fn new(name: &'static str, arguments: &ConsoleArgs) -> Self {
        match arguments.color {
            When::Auto => anstream::ColorChoice::Auto,
            When::Always => anstream::ColorChoice::Always,
            When::Never => anstream::ColorChoice::Never,
        }
        .write_global();
        Self {
            name,
            units: if arguments.bytes {
                Units::Bytes
            } else {
                Units::Binary
            },
            progress: arguments.progress,
        }
    }

    /// Returns standard output for data, without escape sequences if colour is off.
    pub fn data(&self) -> impl Write {
        anstream::stdout()
    }

    /// Prints a note on standard error.
    pub fn note(&self, text: &str) {
        // If standard error is closed, no one can read the note.
        let text = in_words(text);
        let text = fit::message(&format!("{}: {text}", self.name), fit::width(&io::stderr()));
        let _ = writeln!(anstream::stderr(), "{text}");
    }

    /// Prints the error of a failed command.
    pub fn complain(&self, text: &str) {
        let text = format!("\x1b[1;31m{}:\x1b[0m {}", self.name, in_words(text));
        let text = fit::message(&text, fit::width(&io::stderr()));
        let _ = writeln!(anstream::stderr(), "{text}");
    }

    /// True if progress is to be drawn while no recorded program shares the terminal.
    pub fn draws_alone(&self) -> bool {
        match self.progress {
            When::Auto => io::stderr().is_terminal(),
            When::Always => true,
            When::Never => false,
        }
    }

    /// True if progress is to be drawn while the user's program runs.
    ///
    /// The program shares standard error with vmarea, so `auto` draws only if neither standard
    /// input nor standard output is a terminal.
    pub fn draws_beside_program(&self) -> bool {
        let program_may_draw = io::stdin().is_terminal() || io::stdout().is_terminal();
        self.draws_alone() && (self.progress == When::Always || !program_may_draw)
    }

    /// Formats a size in readable units, or in bytes if `--bytes` is given.
    pub fn size(&self, bytes: u64) -> impl Display + use<> {
        match self.units {
            Units::Bytes => bytes.to_string(),
            Units::Binary => binary_size(bytes),
        }
    }
}

fn binary_size(bytes: u64) -> String {
    let mut size = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        unit = larger;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{size:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_use_the_largest_unit_below_them() {
        assert_eq!(binary_size(1023), "1023 B");
        assert_eq!(binary_size(1024), "1.0 KiB");
        assert_eq!(binary_size(5 * 1024 * 1024 / 2), "2.5 MiB");
    }
}
