//! System calls with path names: opening and examining files, and changing directories.

use super::{Call, Outcome, memory};
use crate::failure::{Failure, Value};
use crate::files::open::{Object, OpenFile};
use crate::files::path::{self, Last};
use crate::files::{Inode, inode};
use crate::proc::{self, Found};
use crate::space::shrinker;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::errno::{
    EEXIST, EINVAL, EISDIR, ENOENT, ENOSPC, ENOTDIR, ENOTEMPTY, ERANGE, EXDEV,
};
use linux_raw_sys::general::*;

const HERE: u32 = AT_FDCWD as u32;

/// Performs a system call with path names.
pub fn call(call: &Call<'_>) -> Outcome {
    let [a, b, c, d, ..] = call.args;
    let follow = |flags: u64| match flags as u32 & AT_SYMLINK_NOFOLLOW {
        0 => Last::Follow,
        _ => Last::Keep,
    };
    Some(match call.number {
        __NR_open => open(call, HERE, a, b as u32, c as u32),
        __NR_creat => open(call, HERE, a, O_CREAT | O_WRONLY | O_TRUNC, b as u32),
        __NR_openat => open(call, a as u32, b, c as u32, d as u32),
        __NR_stat => find(call, HERE, a, Last::Follow, 0).and_then(|f| stat(call, &f, b)),
        __NR_lstat => find(call, HERE, a, Last::Keep, 0).and_then(|f| stat(call, &f, b)),
        __NR_newfstatat => find(call, a as u32, b, follow(d), d).and_then(|f| stat(call, &f, c)),
        __NR_fstat => found_by_number(call, a as u32).and_then(|f| stat(call, &f, b)),
        __NR_access => find(call, HERE, a, Last::Follow, 0).map(|_| 0),
        __NR_faccessat | __NR_faccessat2 => find(call, a as u32, b, Last::Follow, d).map(|_| 0),
        __NR_getdents64 => list(call),
        __NR_getcwd => current_directory(call),
        __NR_chdir => change_directory(call),
        __NR_readlink => read_link(call, HERE, a, b, c),
        __NR_readlinkat => read_link(call, a as u32, b, c, d),
        __NR_mkdir => enter(call, HERE, a, || Inode::directory(b as u32)),
        __NR_mkdirat => enter(call, a as u32, b, || Inode::directory(c as u32)),
        __NR_mknod => enter(call, HERE, a, || Inode::file(b as u32, &[])),
        __NR_symlink => call
            .mm
            .read_path(a)
            .and_then(|target| enter(call, HERE, b, || Inode::link(target))),
        __NR_link => find_inode(call, a).and_then(|inode| enter(call, HERE, b, || inode)),
        __NR_unlink => remove(call, HERE, a, 0),
        __NR_rmdir => remove(call, HERE, a, AT_REMOVEDIR),
        __NR_unlinkat => remove(call, a as u32, b, c as u32),
        __NR_rename => rename(call, (HERE, a), (HERE, b)),
        __NR_renameat | __NR_renameat2 => rename(call, (a as u32, b), (c as u32, d)),
        __NR_chmod => find_inode(call, a)
            .map(|inode| inode.set_mode(b as u32))
            .map(|()| 0),
        __NR_fchmod => found_by_number(call, a as u32).map(|found| {
            if let Target::Inode(inode) = found {
                inode.set_mode(b as u32);
            }
            0
        }),
        __NR_chown | __NR_fchown | __NR_lchown | __NR_utimensat | __NR_mount | __NR_umount2 => {
            Ok(0)
        }
        __NR_truncate => find_inode(call, a).and_then(|inode| memory::truncate(&inode, b)),
        __NR_umask => {
            let mut inherited = call.thread.process.inherited.lock();
            Ok(core::mem::replace(&mut inherited.umask, a as u32 & 0o777).into())
        }
        __NR_statfs | __NR_fstatfs => {
            // The file system is a tmpfs with blocks of 4096 bytes.
            let mut words = [0u64; 15];
            words[..2].copy_from_slice(&[0x0102_1994, 4096]);
            call.mm.write_values(b, &words).map(|()| 0)
        }
        _ => return None,
    })
}

/// Object that a path names.
enum Target {
    Inode(Arc<Inode>),
    Proc(Found),
    Open(Arc<OpenFile>),
}

fn directory(call: &Call<'_>) -> String {
    call.thread.process.inherited.lock().directory.clone()
}

/// Returns the directory that a path is relative to.
fn base(call: &Call<'_>, fd: u32, name: &str) -> Result<String, Failure> {
    if fd == HERE || name.starts_with('/') {
        return Ok(directory(call));
    }
    let file = call.thread.process.files.get(fd)?;
    match file.inode().is_some_and(|inode| inode.is_directory()) {
        true => Ok(file.path.clone()),
        false => Err(ENOTDIR.into()),
    }
}

fn found_by_number(call: &Call<'_>, fd: u32) -> Result<Target, Failure> {
    let file = call.thread.process.files.get(fd)?;
    Ok(match file.inode() {
        Some(inode) => Target::Inode(Arc::clone(inode)),
        None => Target::Open(file),
    })
}

/// Returns the object named by the path string at `addr`.
///
/// With `AT_EMPTY_PATH`, an empty path refers to `fd` itself.
fn find(call: &Call<'_>, fd: u32, addr: u64, last: Last, flags: u64) -> Result<Target, Failure> {
    let name = call.mm.read_path(addr)?;
    if name.is_empty() && flags as u32 & AT_EMPTY_PATH != 0 && fd != HERE {
        return found_by_number(call, fd);
    }
    find_name(&base(call, fd, &name)?, &name, last)
}

fn find_name(base: &str, name: &str, last: Last) -> Result<Target, Failure> {
    if name.is_empty() {
        return Err(ENOENT.into());
    }
    match proc::find(&path::absolute(base, name)) {
        Some(Ok(Found::Link(target))) if last == Last::Follow => {
            path::find("/", &target).map(Target::Inode)
        }
        Some(Ok(Found::Descriptor(file))) if last == Last::Follow => Ok(match file.inode() {
            Some(inode) => Target::Inode(Arc::clone(inode)),
            None => Target::Open(file),
        }),
        Some(found) => found.map(Target::Proc),
        None => path::find_with(base, name, last).map(Target::Inode),
    }
}

fn find_inode(call: &Call<'_>, addr: u64) -> Result<Arc<Inode>, Failure> {
    match find(call, HERE, addr, Last::Follow, 0)? {
        Target::Inode(inode) => Ok(inode),
        _ => Err(EINVAL.into()),
    }
}

fn open(call: &Call<'_>, fd: u32, addr: u64, flags: u32, mode: u32) -> Result<Value, Failure> {
    let name = call.mm.read_path(addr)?;
    let base = base(call, fd, &name)?;
    let last = if flags & O_NOFOLLOW != 0 {
        Last::Keep
    } else {
        Last::Follow
    };
    let process = &call.thread.process;
    let object = match find_name(&base, &name, last) {
        Ok(_) if flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL => return Err(EEXIST.into()),
        Ok(Target::Inode(inode)) => Object::Inode(inode),
        Ok(Target::Proc(Found::File(file))) => Object::Generated(Box::new(file)),
        Ok(Target::Proc(Found::Directory(path))) => {
            let file = OpenFile::new(Object::Inode(Inode::directory(0o555)), path, flags);
            return Ok(process.files.add(file, 0, flags & O_CLOEXEC != 0)?.into());
        }
        // The name of a pipe in `/proc/PID/fd`: the same open file is used again.
        Ok(Target::Open(file)) => {
            return Ok(process.files.add(file, 0, flags & O_CLOEXEC != 0)?.into());
        }
        Ok(Target::Proc(_)) => return Err(ENOENT.into()),
        Err(failure) if failure.errno() == ENOENT && flags & O_CREAT != 0 => {
            let (parent, last) = path::find_parent(&base, &name)?;
            let inode = Inode::file(mode & !process.inherited.lock().umask, &[]);
            insert_new(&parent, &last, Arc::clone(&inode))?;
            Object::Inode(inode)
        }
        Err(failure) => return Err(failure),
    };
    if let Object::Inode(inode) = &object {
        let writes = flags & O_ACCMODE != O_RDONLY;
        if inode.is_directory() && (writes || flags & O_CREAT != 0) {
            return Err(EISDIR.into());
        }
        if !inode.is_directory() && flags & O_DIRECTORY != 0 {
            return Err(ENOTDIR.into());
        }
        if inode.is_file() && writes && flags & O_TRUNC != 0 {
            memory::truncate(inode, 0)?;
        }
    }
    let file = OpenFile::new(object, path::absolute(&base, &name), flags | O_LARGEFILE);
    Ok(process.files.add(file, 0, flags & O_CLOEXEC != 0)?.into())
}

/// Writes a `struct stat`.
fn stat(call: &Call<'_>, target: &Target, to: u64) -> Result<Value, Failure> {
    let (number, mode, device, size, pages) = match target {
        Target::Inode(i) => {
            let pages = i.file_pages().map_or(0, |pages| pages.pages());
            (i.number, i.mode(), i.device_number(), i.size(), pages)
        }
        Target::Proc(Found::Link(path)) => (1, S_IFLNK | 0o777, 0, path.len() as u64, 0),
        Target::Proc(Found::Descriptor(_)) => (1, S_IFLNK | 0o700, 0, 64, 0),
        Target::Proc(Found::Directory(_)) => (1, S_IFDIR | 0o555, 0, 0, 0),
        Target::Proc(Found::File(_)) => (1, S_IFREG | 0o444, 0, 0, 0),
        Target::Open(file) => match file.object {
            Object::Generated(_) | Object::PidFd(_) => (1, S_IFREG | 0o444, 0, 0, 0),
            _ => (1, S_IFIFO | 0o600, 0, 0, 0),
        },
    };
    let mut words = [0u64; 18];
    // Device, inode, number of links; mode and user; group; device number; size, block size,
    // blocks.
    let first = [
        2,
        number,
        1,
        u64::from(mode),
        0,
        device,
        size,
        4096,
        pages * 8,
    ];
    words[..first.len()].copy_from_slice(&first);
    call.mm.write_values(to, &words).map(|()| 0)
}

/// Writes the entries of a directory as `struct linux_dirent64`.
fn list(call: &Call<'_>) -> Result<Value, Failure> {
    let [fd, to, room, ..] = call.args;
    let file = call.thread.process.files.get(fd as u32)?;
    let inode = file
        .inode()
        .filter(|inode| inode.is_directory())
        .ok_or(ENOTDIR)?;
    let mut children: Vec<(String, Arc<Inode>)> = inode.children();
    children.extend(proc::names(&file.path));
    let own = [".", ".."].map(|name| (String::from(name), Arc::clone(inode)));
    children.splice(0..0, own);
    let mut bytes: Vec<u8> = Vec::new();
    file.with_position(|position| {
        for (name, child) in children.iter().skip(*position as usize) {
            let len = (19 + name.len() + 1).next_multiple_of(8);
            if bytes.len() + len > room as usize {
                return if bytes.is_empty() {
                    Err(Failure::from(EINVAL))
                } else {
                    Ok(())
                };
            }
            let end = bytes.len() + len;
            *position += 1;
            bytes.extend_from_slice(&child.number.to_ne_bytes());
            bytes.extend_from_slice(&position.to_ne_bytes());
            bytes.extend_from_slice(&(len as u16).to_ne_bytes());
            bytes.push((child.mode() >> 12) as u8);
            bytes.extend_from_slice(name.as_bytes());
            bytes.resize(end, 0);
        }
        Ok(())
    })?;
    call.mm.write(to, &bytes)?;
    Ok(bytes.len() as u64)
}

fn current_directory(call: &Call<'_>) -> Result<Value, Failure> {
    let [to, room, ..] = call.args;
    let mut bytes = directory(call).into_bytes();
    bytes.push(0);
    if bytes.len() as u64 > room {
        return Err(ERANGE.into());
    }
    call.mm.write(to, &bytes)?;
    Ok(bytes.len() as u64)
}

fn change_directory(call: &Call<'_>) -> Result<Value, Failure> {
    let name = call.mm.read_path(call.args[0])?;
    let base = directory(call);
    if !path::find(&base, &name)?.is_directory() {
        return Err(ENOTDIR.into());
    }
    call.thread.process.inherited.lock().directory = path::absolute(&base, &name);
    Ok(0)
}

fn read_link(call: &Call<'_>, fd: u32, name: u64, to: u64, room: u64) -> Result<Value, Failure> {
    let target: String = match find(call, fd, name, Last::Keep, 0)? {
        Target::Inode(inode) => inode.target().ok_or(EINVAL)?.into(),
        Target::Proc(Found::Link(target)) => target,
        Target::Proc(Found::Descriptor(file)) => file.path.clone(),
        _ => return Err(EINVAL.into()),
    };
    let len = target.len().min(room as usize);
    call.mm.write(to, &target.as_bytes()[..len])?;
    Ok(len as u64)
}

/// Adds an inode to a directory under a new name.
fn enter(
    call: &Call<'_>,
    fd: u32,
    addr: u64,
    new: impl FnOnce() -> Arc<Inode>,
) -> Result<Value, Failure> {
    let name = call.mm.read_path(addr)?;
    let (parent, last) = path::find_parent(&base(call, fd, &name)?, &name)?;
    if parent.child(&last).is_some() {
        return Err(EEXIST.into());
    }
    insert_new(&parent, &last, new()).map(|()| 0)
}

/// Adds a new inode to a directory.
///
/// # Errors
/// ENOSPC if the kernel's heap is nearly used up.
fn insert_new(parent: &Inode, name: &str, inode: Arc<Inode>) -> Result<(), Failure> {
    if !shrinker::has_heap() {
        return Err(ENOSPC.into());
    }
    parent.insert(name, inode);
    Ok(())
}

fn remove(call: &Call<'_>, fd: u32, addr: u64, flags: u32) -> Result<Value, Failure> {
    let name = call.mm.read_path(addr)?;
    let (parent, last) = path::find_parent(&base(call, fd, &name)?, &name)?;
    let child = parent.child(&last).ok_or(ENOENT)?;
    match (flags & AT_REMOVEDIR != 0, child.is_directory()) {
        (false, true) => return Err(EISDIR.into()),
        (true, false) => return Err(ENOTDIR.into()),
        (true, true) if !child.children().is_empty() => return Err(ENOTEMPTY.into()),
        _ => {}
    }
    drop(parent.remove(&last));
    Ok(0)
}

fn rename(call: &Call<'_>, from: (u32, u64), to: (u32, u64)) -> Result<Value, Failure> {
    let place = |(fd, addr)| {
        let name = call.mm.read_path(addr)?;
        path::find_parent(&base(call, fd, &name)?, &name)
    };
    let ((from, old), (to, new)) = (place(from)?, place(to)?);
    let child = from.child(&old).ok_or(ENOENT)?;
    if Arc::ptr_eq(&child, &to) || Arc::ptr_eq(&child, &inode::root()) {
        return Err(EXDEV.into());
    }
    if let Some(there) = to.child(&new)
        && there.is_directory()
        && !there.children().is_empty()
    {
        return Err(ENOTEMPTY.into());
    }
    drop(to.insert(&new, child));
    if !(Arc::ptr_eq(&from, &to) && old == new) {
        drop(from.remove(&old));
    }
    Ok(0)
}
