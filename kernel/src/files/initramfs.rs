//! The initial files, from the cpio archive ("newc") that the boot loader has loaded into memory.

use super::inode::{Device, Inode, root};
use super::path;
use alloc::string::ToString;
use alloc::sync::Arc;
use linux_raw_sys::general::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

/// Adds the archive's files to the tree; returns the number of files added.
pub fn unpack(archive: &'static [u8]) -> usize {
    let mut count = 0;
    for entry in cpio_reader::iter_files(archive) {
        let mode = entry.mode().bits();
        let inode = match mode & S_IFMT {
            S_IFREG => Inode::file(mode, entry.file()),
            S_IFDIR => Inode::directory(mode),
            S_IFLNK => Inode::link(core::str::from_utf8(entry.file()).unwrap_or("").to_string()),
            _ => continue,
        };
        insert(entry.name(), inode);
        count += 1;
    }
    count
}

/// Adds an inode at a path, and creates the missing directories on that path.
fn insert(name: &str, inode: Arc<Inode>) {
    let whole = path::absolute("/", name);
    let mut at = root();
    let mut names = whole.split('/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            if !(inode.is_directory() && at.child(name).is_some()) {
                at.insert(name, inode);
            }
            return;
        }
        at = match at.child(name) {
            Some(child) => child,
            None => {
                let directory = Inode::directory(0o755);
                at.insert(name, Arc::clone(&directory));
                directory
            }
        };
    }
}

/// Creates the directories and devices that every program expects.
pub fn add_devices() {
    for directory in ["/dev", "/proc", "/sys/kernel/mm/ksm", "/tmp", "/dev/shm"] {
        insert(directory, Inode::directory(0o1777));
    }
    for (name, device) in [
        ("/dev/console", Device::Terminal),
        ("/dev/tty", Device::Terminal),
        ("/dev/ttyS0", Device::Terminal),
        ("/dev/null", Device::Null),
        ("/dev/zero", Device::Zero),
        ("/dev/random", Device::Random),
        ("/dev/urandom", Device::Random),
    ] {
        insert(name, Inode::device(device));
    }
}
