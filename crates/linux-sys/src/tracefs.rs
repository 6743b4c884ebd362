//! The tracefs directory, which contains the kernel's list of tracepoints.
//!
//! If tracefs is already mounted, that mount is used. Otherwise, a private mount without a path is
//! created, which lasts until its descriptor is closed.

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Opens the tracefs directory, which contains `events`.
///
/// If tracefs is not mounted, the descriptor refers to a private mount.
///
/// # Errors
/// `EACCES` without permission to read tracefs; the errors of mounting it.
pub fn open() -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut refused = None;
    for path in MOUNTS {
        let found = rustix::fs::open(path, flags, Mode::empty()).and_then(|dir| {
            rustix::fs::openat(&dir, "events", flags, Mode::empty())?;
            Ok(dir)
        });
        match found {
            Ok(dir) => return Ok(dir),
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
                refused = Some(io::Error::from(rustix::io::Errno::ACCESS));
            }
            Err(_) => {}
        }
    }
    if let Some(error) = refused {
        return Err(error);
    }
    mount()
}

/// Mounts tracefs without a path; closing the descriptor unmounts it.
fn mount() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    Ok(rustix::mount::fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_RDONLY,
    )?)
}

/// Returns the id of a tracepoint, such as `mmap_lock/mmap_lock_released`, for `perf_event_open`.
///
/// # Errors
/// `ENOENT` if the kernel has no such tracepoint.
pub fn event_id(tracefs: &OwnedFd, name: &str) -> io::Result<u64> {
    let path = format!("events/{name}/id");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let mut text = String::new();
    File::from(rustix::fs::openat(tracefs, path, flags, Mode::empty())?)
        .read_to_string(&mut text)?;
    let id = text.trim().parse();
    id.map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_mount_has_the_same_events() {
        match (open(), mount()) {
            (Ok(there), Ok(private)) => {
                let id = |tracefs| event_id(tracefs, "mmap_lock/mmap_lock_released");
                assert_eq!(id(&there).unwrap(), id(&private).unwrap());
                assert!(event_id(&there, "no/event").is_err());
            }
            (a, b) => eprintln!("skipped: {:?} {:?}", a.err(), b.err()),
        }
    }
}
