//! The text of known causes, of the failed call and of the limit's origin in a summary.

use crate::Report;
use crate::rows::printable;
use crate::text::count;
use std::io::{self, Write};

/// Maximum length of a line in characters.
const WIDTH: usize = 80;

impl Report {
    /// Writes which call failed, and which file sets or lowers the limit.
    pub(crate) fn write_limit(&self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(failure) = &self.failure {
            writeln!(out, "{}", printable(&failure.text))?;
        }
        let Some(files) = &self.limit_files else {
            return Ok(());
        };
        let mut text = format!("the limit is set by {}", files.last.file.display());
        if Some(files.last.value) != self.limit {
            text += &format!(
                " to {}, and was changed since then",
                count(files.last.value)
            );
        } else if let Some(larger) = &files.lowered {
            text += &format!(
                ", which lowers it from {} ({})",
                count(larger.value),
                larger.file.display()
            );
        }
        writeln!(out, "{}", printable(&text))
    }

    /// Writes the cause of the most mappings, and the names of the others.
    pub(crate) fn write_causes(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some((first, others)) = self.causes.split_first() else {
            return Ok(());
        };
        let finding = format!("{} ({})", first.text, first.evidence);
        for (n, line) in folded(&printable(&finding), WIDTH - 2).iter().enumerate() {
            let mark = if n == 0 { "\x1b[1m!\x1b[0m" } else { " " };
            writeln!(out, "{mark} {line}")?;
        }
        let mut advice = format!("{} ({})", first.advice, first.measured);
        if let Some(address) = first.references.first() {
            advice += &format!(" {address}");
        }
        for line in folded(&printable(&advice), WIDTH - 2) {
            writeln!(out, "  {line}")?;
        }
        if !others.is_empty() {
            let names: Vec<_> = others.iter().map(|cause| cause.name.as_str()).collect();
            writeln!(out, "  also: {} (docs/causes.md)", names.join(", "))?;
        }
        Ok(())
    }
}

/// Breaks a text into lines of at most `width` characters; a longer word has a line of its own.
fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
