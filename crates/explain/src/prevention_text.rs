//! Text of the changes to a program that would have prevented mappings.

use super::Report;
use super::made_from_text::{WIDTH, one_line};
use super::text::{count, write_wrapped};
use std::io::{self, Write};

/// What to do about the guards that the C library makes for the stacks of threads.
const IN_PTHREAD_CREATE: &str = "the C library makes these guards in pthread_create: glibc 2.42 and \
                                 later does so on Linux 6.13 and later; with an older one, pass an \
                                 attribute with pthread_attr_setguardsize(&attr, 0), which leaves the \
                                 stacks without guards";

impl Report {
    /// Writes the changes to the program that a replay has examined.
    pub(super) fn write_prevention(&self, out: &mut dyn Write) -> io::Result<()> {
        for change in &self.prevention {
            let older = match change.older {
                0 => String::new(),
                n => format!(
                    " ({} of them are older than the recording; to count from the program's start: \
                     vmarea explain --stacks -- CMD)",
                    count(n)
                ),
            };
            let result = match (change.after, &change.no_count) {
                (Some(after), _) => format!(
                    "{} mappings at the peak become {}{older}",
                    count(change.before),
                    count(after)
                ),
                (None, why) => format!("no count: {}", why.as_deref().unwrap_or_default()),
            };
            let calls = count(change.calls);
            let how = match change.in_pthread_create {
                true => format!("{} ({IN_PTHREAD_CREATE})", change.text),
                false => change.text.to_owned(),
            };
            let text = format!(
                "in place of {calls} calls ({}, each of which can split a mapping and so add two): \
                 {how}: {result}",
                change.call
            );
            write_wrapped(out, &text)?;
            if let Some(frame) = &change.site {
                writeln!(out, "  {}", one_line(frame, WIDTH - 2))?;
            }
        }
        Ok(())
    }
}
