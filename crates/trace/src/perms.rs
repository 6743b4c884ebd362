//! `Perms`: the permissions of a mapping.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The four letters of `/proc/PID/maps`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Perms {
    /// `r`
    pub read: bool,
    /// `w`
    pub write: bool,
    /// `x`
    pub exec: bool,
    /// `s` rather than `p`
    pub shared: bool,
}

/// Writes the letters as `/proc/PID/maps` does, such as `rw-p`.
impl fmt::Display for Perms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Perms {
            read,
            write,
            exec,
            shared,
        } = *self;
        let letters = [
            (read, 'r', '-'),
            (write, 'w', '-'),
            (exec, 'x', '-'),
            (shared, 's', 'p'),
        ];
        letters
            .iter()
            .try_for_each(|&(set, yes, no)| fmt::Write::write_char(f, if set { yes } else { no }))
    }
}
