//! `Perms`: the permissions of a mapping.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The four letters of `/proc/PID/maps`.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
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

impl Perms {
    /// Reads the letters, as in `rw-p`.
    pub fn parse(letters: [u8; 4]) -> Option<Perms> {
        let flag = |byte: u8, set: u8, unset: u8| match byte {
            _ if byte == set => Some(true),
            _ if byte == unset => Some(false),
            _ => None,
        };
        let [r, w, x, s] = letters;
        Some(Perms {
            read: flag(r, b'r', b'-')?,
            write: flag(w, b'w', b'-')?,
            exec: flag(x, b'x', b'-')?,
            shared: flag(s, b's', b'p')?,
        })
    }
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
