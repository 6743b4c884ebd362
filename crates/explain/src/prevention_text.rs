//! Text of the changes to a program that would have prevented mappings.

use super::Report;
use super::made_from_text::{WIDTH, one_line};
use super::text::{count, write_wrapped};
use std::io::{self, Write};

impl Report {
    /// Writes the changes to the program that a replay has examined.
    pub(super) fn write_prevention(&self, out: &mut dyn Write) -> io::Result<()> {
        for change in &self.prevention {
            let result = match (change.after, &change.no_count) {
                (Some(after), _) => format!(
                    "{} mappings at the peak become {}",
                    count(change.before),
                    count(after)
                ),
                (None, why) => format!("no count: {}", why.as_deref().unwrap_or_default()),
            };
            let calls = count(change.calls);
            let text = format!(
                "in place of {calls} calls ({}): {}: {result}",
                change.call, change.text
            );
            write_wrapped(out, &text)?;
            if let Some(frame) = &change.site {
                writeln!(out, "  {}", one_line(frame, WIDTH - 2))?;
            }
        }
        Ok(())
    }
}
