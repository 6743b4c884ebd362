//! Path lookup: from names to inodes.
//!
//! A path is first made absolute, `.` and `..` are removed from it, and it is then followed from
//! the root. The target of a symbolic link on the way replaces the part of the path up to and
//! including the link. `..` after a link therefore leads to the directory that contains the link,
//! not to the parent of the link's target.

use super::Inode;
use super::inode::root;
use crate::failure::Failure;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::errno::{ELOOP, ENOENT, ENOTDIR};

/// Maximum number of symbolic links that are followed during one lookup.
const LINKS: usize = 16;

/// Returns the absolute form of a path, without `.` and `..`.
pub fn absolute(directory: &str, path: &str) -> String {
    let whole = match path.starts_with('/') {
        true => path.into(),
        false => format!("{directory}/{path}"),
    };
    let mut names: Vec<&str> = Vec::new();
    for name in whole.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            _ => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

/// How a symbolic link at the end of a path is treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last {
    /// The link is followed.
    Follow,
    /// The path refers to the link itself.
    Keep,
}

/// Returns the inode that a path names.
///
/// # Errors
/// ENOENT; ENOTDIR; ELOOP.
pub fn find(directory: &str, path: &str) -> Result<Arc<Inode>, Failure> {
    find_with(directory, path, Last::Follow)
}

/// Returns the inode that a path names, treating a symbolic link at the end as `last` says.
///
/// # Errors
/// ENOENT; ENOTDIR; ELOOP.
pub fn find_with(directory: &str, path: &str, last: Last) -> Result<Arc<Inode>, Failure> {
    if path.is_empty() {
        return Err(ENOENT.into());
    }
    let mut whole = absolute(directory, path);
    for _ in 0..LINKS {
        match follow(&whole, last)? {
            Followed::Found(inode) => return Ok(inode),
            Followed::Link(path) => whole = path,
        }
    }
    Err(ELOOP.into())
}

enum Followed {
    Found(Arc<Inode>),
    /// The path in which a symbolic link has been replaced by its target.
    Link(String),
}

fn follow(path: &str, last: Last) -> Result<Followed, Failure> {
    let mut at = root();
    let mut seen = String::new();
    let mut names = path.split('/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        if !at.is_directory() {
            return Err(ENOTDIR.into());
        }
        let child = at.child(name).ok_or(ENOENT)?;
        if let Some(target) = child.target()
            && (names.peek().is_some() || last == Last::Follow)
        {
            let rest: Vec<&str> = names.collect();
            let target = format!("{target}/{}", rest.join("/"));
            return Ok(Followed::Link(absolute(&seen, &target)));
        }
        seen.push('/');
        seen.push_str(name);
        at = child;
    }
    Ok(Followed::Found(at))
}

/// Returns the directory that contains the last component of a path, and that component.
///
/// # Errors
/// ENOENT; ENOTDIR; ELOOP.
pub fn find_parent(directory: &str, path: &str) -> Result<(Arc<Inode>, String), Failure> {
    if path.is_empty() {
        return Err(ENOENT.into());
    }
    let whole = absolute(directory, path);
    let (parent, name) = whole.rsplit_once('/').unwrap_or(("", &whole));
    let parent = find("/", &format!("/{parent}"))?;
    match parent.is_directory() && !name.is_empty() {
        true => Ok((parent, name.into())),
        false => Err(ENOTDIR.into()),
    }
}
