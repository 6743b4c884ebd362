//! What a list does not show about a mapping, although another list would.
//!
//! A copy of `/proc/PID/maps` shows every column; the output of other tools leaves some out. A
//! column that is left out has a harmless value in the mapping's entry, and is marked here, so that
//! no reason rests on it.

use bitflags::bitflags;

bitflags! {
    /// Columns that the list of a mapping does not show.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Unseen: u8 {
        /// Read, write and execute permission; the entry says `rw-`.
        const PERMS = 1;
        /// Whether the mapping is shared; the entry says that it is private.
        const SHARING = 2;
        /// The offset in the file; the entry says 0.
        const OFFSET = 4;
        /// Device and inode; the entry says 0.
        const INODE = 8;
        /// Names of memory without a file, such as `[heap]` and `[anon:NAME]`; the entry has none.
        const NAME = 0x10;
        /// Whether the addresses below are free, or mapped without access.
        const GAP = 0x20;
        /// Whether there is a file; the entry has none.
        const FILE = 0x80;
        /// The mappings below: the list was cut there, or a line could not be read.
        const CUT = 0x40;
    }
}
