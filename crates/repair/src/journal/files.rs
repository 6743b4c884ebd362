//! Opens journals safely: checks owners and permissions, and follows no link.
//!
//! The contents of a journal are written into a process, so a user who can write to the journal
//! controls the process. Root can also finish the repairs of other users. A folder or a file is
//! therefore accepted only if it belongs to the user of this process or to the owner of the process
//! under repair, and only if no other user can write to it. A process that reads or writes a
//! journal holds a lock on it (`fcntl`). The kernel releases the lock when the process ends, and
//! reports which process holds it.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::process::{Flock, FlockType};

/// Returns `PermissionDenied` with the path and the reason.
fn refuse(path: &Path, why: &str) -> io::Error {
    let text = format!("{} {why}", path.display());
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// Returns the effective user of this process.
fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// An open folder of journals.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    /// Owner of the folder, and the only accepted owner of its files.
    owner: u32,
}

impl Folder {
    /// Returns the default folder for the journals of a user.
    pub(super) fn usual(user: u32) -> PathBuf {
        PathBuf::from(format!("/var/tmp/vmarea-{user}"))
    }

    /// Opens a folder owned by the user of this process or by one of `others`. Returns `None` if
    /// the folder does not exist.
    ///
    /// # Errors
    /// `PermissionDenied` if the folder belongs to another user, is a link, or is writable by other
    /// users; errors of `open`.
    pub(crate) fn open(path: &Path, others: &[u32]) -> io::Result<Option<Folder>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
                return Err(refuse(path, "is not a folder"));
            }
            fd => fd?,
        };
        let stat = rustix::fs::fstat(&fd)?;
        if stat.st_uid != user() && !others.contains(&stat.st_uid) {
            return Err(refuse(path, "belongs to somebody else"));
        }
        if stat.st_mode & 0o022 != 0 {
            return Err(refuse(path, "may be written to by others"));
        }
        let path = path.to_owned();
        Ok(Some(Folder {
            fd,
            path,
            owner: stat.st_uid,
        }))
    }

    /// Opens a folder owned by the user of this process, and creates it if it does not exist.
    ///
    /// # Errors
    /// The errors of [`Folder::open`] and of creating a folder.
    pub(crate) fn make(path: &Path) -> io::Result<Folder> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let folder = Folder::open(path, &[])?;
        folder.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the owner of the folder.
    pub(crate) fn owner(&self) -> u32 {
        self.owner
    }

    /// Returns the path of a file in the folder, for messages.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Creates a file, whose name must not exist yet.
    pub(super) fn create_file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = rustix::fs::openat(&self.fd, name, flags | OFlags::CLOEXEC, mode)?;
        Ok(File::from(fd))
    }

    /// Opens a file that belongs to the owner of the folder; `None` if the file does not exist.
    ///
    /// # Errors
    /// `PermissionDenied` if it is not a regular file that belongs to, and is writable by, that
    /// owner alone.
    pub(super) fn open_file(&self, name: &str) -> io::Result<Option<File>> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let path = || self.path_of(name);
        let fd = match rustix::fs::openat(&self.fd, name, flags | OFlags::CLOEXEC, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(rustix::io::Errno::LOOP) => return Err(refuse(&path(), "is a link")),
            Err(rustix::io::Errno::ISDIR) => return Err(refuse(&path(), "is not a file")),
            fd => fd?,
        };
        let stat = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refuse(&path(), "is not a file"));
        }
        if stat.st_uid != self.owner {
            return Err(refuse(&path(), "belongs to another user than its folder"));
        }
        if stat.st_mode & 0o022 != 0 {
            return Err(refuse(&path(), "may be written to by others"));
        }
        if stat.st_nlink > 1 {
            return Err(refuse(&path(), "has another name elsewhere"));
        }
        Ok(Some(File::from(fd)))
    }

    /// Removes a file.
    pub(super) fn remove_file(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// True if the name `name` in the folder still refers to `file`.
    pub(super) fn is_file(&self, name: &str, file: &File) -> io::Result<bool> {
        let there = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        let there = match there {
            Err(rustix::io::Errno::NOENT) => return Ok(false),
            there => there?,
        };
        let opened = rustix::fs::fstat(file)?;
        Ok((there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino))
    }

    /// Returns the names of the files in the folder.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let entries = rustix::fs::Dir::read_from(&self.fd)?;
        let names = entries.filter_map(|entry| {
            let name = entry.ok()?.file_name().to_str().ok()?.to_owned();
            Some(name)
        });
        Ok(names.collect())
    }
}

/// Locks a journal. If another process holds the lock, returns the id of that process, if known.
///
/// # Errors
/// Errors of `fcntl`.
pub(super) fn lock(file: &File) -> io::Result<Result<(), Option<i32>>> {
    match rustix::fs::fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => return Ok(Ok(())),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {}
        Err(error) => return Err(error.into()),
    }
    let wanted = Flock::from(FlockType::WriteLock);
    let holder = rustix::process::fcntl_getlk(file, &wanted)?;
    Ok(Err(holder
        .and_then(|lock| lock.pid)
        .map(|pid| pid.as_raw_nonzero().get())))
}
