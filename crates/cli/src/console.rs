//! The terminal, or what stands in its place: colours, units, notes and complaints.

use clap::{Args, ValueEnum};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// The heading of the options that every command has.
const EVERYWHERE: &str = "Options of every command";

/// Options that every command has.
#[derive(Debug, Default, Args)]
pub struct ConsoleArgs {
    /// When to colour the output; NO_COLOR is honoured under `auto`
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true, help_heading = EVERYWHERE)]
    color: When,

    /// Print sizes in bytes instead of KiB and MiB
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    bytes: bool,

    /// When to draw progress on standard error; `auto` draws only where no program of yours writes
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true, help_heading = EVERYWHERE)]
    progress: When,
}

/// When to do what depends on a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum When {
    /// Where the output is a terminal
    #[default]
    Auto,
    /// In any case
    Always,
    /// In no case
    Never,
}

/// How sizes are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Units {
    Binary,
    Bytes,
}

/// Where people and scripts are spoken to.
#[derive(Debug)]
pub struct Console {
    units: Units,
    progress: When,
}

impl Console {
    /// A console as the options ask for it. Colour is decided once, for the whole process.
    pub fn new(arguments: &ConsoleArgs) -> Self {
        match arguments.color {
            When::Auto => anstream::ColorChoice::Auto,
            When::Always => anstream::ColorChoice::Always,
            When::Never => anstream::ColorChoice::Never,
        }
        .write_global();
        Self {
            units: if arguments.bytes {
                Units::Bytes
            } else {
                Units::Binary
            },
            progress: arguments.progress,
        }
    }

    /// Standard output for data; escape sequences are taken out where they are not wanted.
    pub fn data(&self) -> impl Write {
        anstream::stdout()
    }

    /// Says something that is not data.
    pub fn note(&self, text: &str) {
        // There is nobody left to tell if standard error is gone.
        let _ = writeln!(anstream::stderr(), "vmarea: {text}");
    }

    /// Says why a command failed.
    pub fn complain(&self, text: &str) {
        let _ = writeln!(anstream::stderr(), "\x1b[1;31mvmarea:\x1b[0m {text}");
    }

    /// Whether to draw while only we use the terminal.
    pub fn draws_alone(&self) -> bool {
        match self.progress {
            When::Auto => io::stderr().is_terminal(),
            When::Always => true,
            When::Never => false,
        }
    }

    /// Whether to draw while a program of the user's runs. It has the same standard error, so we
    /// draw only where it seems to have no eyes on the terminal, or where we were asked to.
    pub fn draws_beside_program(&self) -> bool {
        let program_may_draw = io::stdin().is_terminal() || io::stdout().is_terminal();
        self.draws_alone() && (self.progress == When::Always || !program_may_draw)
    }

    /// A size for people, or in bytes under `--bytes`.
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

/// A count with its thousands apart.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 address space`, `2 address spaces`.
pub fn address_spaces(n: u64) -> String {
    format!(
        "{} address space{}",
        count(n),
        if n == 1 { "" } else { "s" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_their_thousands_apart() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(count(12_345_678), "12,345,678");
    }

    #[test]
    fn sizes_use_the_largest_unit_below_them() {
        assert_eq!(binary_size(1023), "1023 B");
        assert_eq!(binary_size(1024), "1.0 KiB");
        assert_eq!(binary_size(5 * 1024 * 1024 / 2), "2.5 MiB");
    }
}
