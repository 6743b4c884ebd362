//! Files: an in-memory tree of inodes, open files, pipes and the terminal.
//!
//! ```text
//! table     descriptors of a process ──▶ open ──▶ inode      files, directories, links, devices
//! path      names ──▶ inodes                      pipe       bytes between processes
//! initramfs the first files                       terminal   the serial line as a device
//! ```

pub mod initramfs;
pub mod inode;
pub mod open;
pub mod path;
pub mod pipe;
pub mod table;
pub mod terminal;

pub use inode::Inode;
pub use open::OpenFile;
pub use table::FileTable;
