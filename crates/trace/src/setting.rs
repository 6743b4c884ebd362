//! Notes about settings of the machine that are written during a recording.
//!
//! The kernel obeys a new value at once, so a replay has to know it. Such a write is rare, so it has no
//! event of its own: it is a note of a fixed form, which every version of the format can contain.

use crate::event::Nanos;
use std::fmt;

/// A setting that was written during a recording.
///
/// ```
/// use vmarea_trace::setting::SettingWritten;
///
/// let written = SettingWritten {
///     name: "vm.max_map_count".to_owned(),
///     value: "100000".to_owned(),
///     since: 1_000,
///     until: 2_000,
/// };
/// assert_eq!(SettingWritten::from_note(&written.to_string()), Some(written));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingWritten {
    /// Name of the setting, as in [`Header::settings`](crate::event::Header::settings).
    pub name: String,
    /// The value that was read after the write.
    pub value: String,
    /// The last time at which the setting is known to have had its previous value.
    pub since: Nanos,
    /// The time at which the value was read.
    pub until: Nanos,
}

impl fmt::Display for SettingWritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SettingWritten {
            name,
            value,
            since,
            until,
        } = self;
        write!(
            f,
            "the setting {name} was written between {since} and {until} ns and is {value} now; \
             differences between these times are undecided"
        )
    }
}

impl SettingWritten {
    /// Returns what a note says; `None` if it is another note.
    pub fn from_note(note: &str) -> Option<SettingWritten> {
        let (name, rest) = note
            .strip_prefix("the setting ")?
            .split_once(" was written between ")?;
        let (since, rest) = rest.split_once(" and ")?;
        let (until, rest) = rest.split_once(" ns and is ")?;
        let (value, _) = rest.split_once(" now; ")?;
        Some(SettingWritten {
            name: name.to_owned(),
            value: value.to_owned(),
            since: since.parse().ok()?,
            until: until.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_notes_are_not_taken_for_writes() {
        for note in [
            "",
            "not root: no_new_privs is set",
            "the setting x was written between now and then",
            "the setting x was written between 1 and y ns and is 3 now; z",
        ] {
            assert_eq!(SettingWritten::from_note(note), None, "{note}");
        }
    }
}
