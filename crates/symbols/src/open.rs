//! Files opened as the process sees them, which may be another file system than ours.
//!
//! Paths are resolved within the process's root, so that a link in it cannot lead to a file outside
//! of it. A file is opened for reading only after it is known to be a regular file: to open a device
//! can have an effect, and to open a pipe can wait forever.

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, major, minor, openat2};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use vmarea_process::maps::MapsEntry;

/// Whether the last part of a path may be a symbolic link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Links {
    /// A link is followed, within the process's root.
    Follow,
    /// A link is refused.
    Refuse,
}

/// The file of a mapping, or a file that has taken its place.
pub(crate) enum Mapped {
    /// The mapped file.
    Same(File),
    /// Another file has the path of the mapped file.
    Replaced,
}

/// Opens the regular file at an absolute path, as process `pid` sees it.
pub(crate) fn in_root(pid: i32, path: &Path, links: Links) -> io::Result<File> {
    let root = File::open(format!("/proc/{pid}/root"))?;
    let inner = path.strip_prefix("/").unwrap_or(path);
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    if links == Links::Refuse {
        flags |= OFlags::NOFOLLOW;
    }
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(&root, inner, flags, Mode::empty(), resolve)?;
    regular(found)
}

/// Opens the file of a mapping of process `pid`.
pub(crate) fn mapped(pid: i32, mapping: &MapsEntry) -> io::Result<Mapped> {
    // This needs privileges, and finds the mapped file even if it was deleted.
    let exact = format!(
        "/proc/{pid}/map_files/{:x}-{:x}",
        mapping.start, mapping.end
    );
    // The owner of the process may use this, if the file is the program itself.
    let program = format!("/proc/{pid}/exe");
    for path in [exact, program] {
        if let Ok(file) = by_link(&path)
            && is_of(&fstat(&file)?, mapping)
        {
            return Ok(Mapped::Same(file));
        }
    }
    let Some(path) = mapping.name.path() else {
        return Ok(Mapped::Replaced);
    };
    let file = in_root(pid, Path::new(&path), Links::Follow)?;
    Ok(match is_of(&fstat(&file)?, mapping) {
        true => Mapped::Same(file),
        false => Mapped::Replaced,
    })
}

/// Opens the regular file to which a link in `/proc` leads.
fn by_link(path: &str) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    regular(rustix::fs::open(path, flags, Mode::empty())?)
}

fn regular(found: OwnedFd) -> io::Result<File> {
    let kind = FileType::from_raw_mode(fstat(found.as_fd())?.st_mode);
    if kind != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

fn is_of(file: &Stat, mapping: &MapsEntry) -> bool {
    let (high, low) = (u64::from(major(file.st_dev)), u64::from(minor(file.st_dev)));
    // Btrfs and overlayfs show a volume of their own in `stat`, but not in the list of mappings.
    let virtual_device = high == 0 && mapping.dev >> 20 == 0;
    file.st_ino == mapping.ino && (high << 20 | low == mapping.dev || virtual_device)
}

/// Reads a file that has at most `bound` bytes.
pub(crate) fn read(file: &mut File, bound: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if file.metadata()?.len() > bound {
        return Err(io::Error::other("it is too large"));
    }
    file.take(bound).read_to_end(&mut bytes)?;
    Ok(bytes)
}
