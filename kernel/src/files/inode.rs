//! `Inode`: a file, a directory, a symbolic link or a device, all in memory as in tmpfs.

use crate::failure::Failure;
use crate::memory::file_pages::FilePages;
use crate::space::file::InUse;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use linux_raw_sys::errno::EISDIR;
use linux_raw_sys::general::{
    F_SEAL_FUTURE_WRITE, F_SEAL_WRITE, S_IFBLK, S_IFCHR, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG,
};
use spin::{Mutex, Once};
use vmarea::types::{Errno, File, FileId, FileKind};

/// A device that an inode can represent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    /// The serial line.
    Terminal,
    /// Discards writes; reads return end of file.
    Null,
    /// Reads return zeros.
    Zero,
    /// Reads return pseudorandom bytes.
    Random,
}

/// Kind of an inode, together with the inode's contents.
#[derive(Debug)]
enum Node {
    File(Arc<FilePages>),
    Directory(Mutex<BTreeMap<String, Arc<Inode>>>),
    Link(String),
    Device(Device),
}

/// A file, directory, symbolic link or device.
#[derive(Debug)]
pub struct Inode {
    /// Unique number of the inode.
    pub number: u64,
    mode: AtomicU32,
    node: Node,
}

static NEXT: AtomicU64 = AtomicU64::new(2);
static ROOT: Once<Arc<Inode>> = Once::new();

/// Returns the root directory.
pub fn root() -> Arc<Inode> {
    let new = || Inode::with(Node::Directory(Mutex::default()), S_IFDIR | 0o755);
    Arc::clone(ROOT.call_once(new))
}

impl Inode {
    fn with(node: Node, mode: u32) -> Arc<Inode> {
        Arc::new(Inode {
            // ORDERING: Relaxed; the number only has to be unique.
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            mode: AtomicU32::new(mode),
            node,
        })
    }

    /// Creates a file whose initial contents come from the initramfs.
    pub fn file(mode: u32, initial: &'static [u8]) -> Arc<Inode> {
        let pages = Arc::new(FilePages::new(initial));
        Inode::with(Node::File(pages), S_IFREG | mode & 0o7777)
    }

    /// Creates a directory.
    pub fn directory(mode: u32) -> Arc<Inode> {
        Inode::with(Node::Directory(Mutex::default()), S_IFDIR | mode & 0o7777)
    }

    /// Creates a symbolic link.
    pub fn link(target: String) -> Arc<Inode> {
        Inode::with(Node::Link(target), S_IFLNK | 0o777)
    }

    /// Creates a device.
    pub fn device(device: Device) -> Arc<Inode> {
        Inode::with(Node::Device(device), S_IFCHR | 0o666)
    }

    /// Returns the file type and permissions.
    pub fn mode(&self) -> u32 {
        // ORDERING: Relaxed; one word.
        self.mode.load(Ordering::Relaxed)
    }

    /// Sets the permissions.
    pub fn set_mode(&self, mode: u32) {
        // ORDERING: Relaxed; one word.
        self.mode
            .store(self.mode() & S_IFMT | mode & 0o7777, Ordering::Relaxed);
    }

    /// True for a regular file.
    pub fn is_file(&self) -> bool {
        matches!(self.node, Node::File(_))
    }

    /// True for a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.node, Node::Directory(_))
    }

    /// Returns the target of a symbolic link.
    pub fn target(&self) -> Option<&str> {
        match &self.node {
            Node::Link(target) => Some(target),
            _ => None,
        }
    }

    /// Returns the device that the inode represents, if any.
    pub fn as_device(&self) -> Option<Device> {
        match self.node {
            Node::Device(device) => Some(device),
            _ => None,
        }
    }

    /// Returns the device number for `stat` (major and minor).
    pub fn device_number(&self) -> u64 {
        match (self.mode() & S_IFMT, self.as_device()) {
            (S_IFCHR | S_IFBLK, Some(Device::Null)) => 0x103,
            (S_IFCHR | S_IFBLK, Some(Device::Zero)) => 0x105,
            (S_IFCHR | S_IFBLK, Some(Device::Random)) => 0x109,
            (S_IFCHR | S_IFBLK, Some(Device::Terminal)) => 0x501,
            _ => 0,
        }
    }

    /// Returns the inode with this name in the directory.
    pub fn child(&self, name: &str) -> Option<Arc<Inode>> {
        match &self.node {
            Node::Directory(children) => children.lock().get(name).cloned(),
            _ => None,
        }
    }

    /// Adds an inode to a directory; returns the inode that had the same name before, if any.
    pub fn insert(&self, name: &str, child: Arc<Inode>) -> Option<Arc<Inode>> {
        match &self.node {
            Node::Directory(children) => children.lock().insert(name.into(), child),
            _ => None,
        }
    }

    /// Removes a name from a directory.
    pub fn remove(&self, name: &str) -> Option<Arc<Inode>> {
        match &self.node {
            Node::Directory(children) => children.lock().remove(name),
            _ => None,
        }
    }

    /// Returns the names in a directory together with their inodes.
    pub fn children(&self) -> Vec<(String, Arc<Inode>)> {
        match &self.node {
            Node::Directory(children) => {
                let children = children.lock();
                children
                    .iter()
                    .map(|(name, child)| (name.clone(), Arc::clone(child)))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the pages of a regular file.
    pub fn file_pages(&self) -> Option<&Arc<FilePages>> {
        match &self.node {
            Node::File(pages) => Some(pages),
            _ => None,
        }
    }

    /// Reads bytes at an offset; returns the number of bytes read, 0 at the end of the file.
    ///
    /// # Errors
    /// EISDIR if this is not a file; ENOSPC if there is no memory for a page.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<usize, Failure> {
        self.file_pages().ok_or(EISDIR)?.read(offset, to)
    }

    /// Writes bytes at an offset; returns the number of bytes written.
    ///
    /// # Errors
    /// EISDIR if this is not a file; those of [`FilePages::write`].
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<usize, Failure> {
        self.file_pages().ok_or(EISDIR)?.write(offset, from)
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        match &self.node {
            Node::File(pages) => pages.size(),
            Node::Link(target) => target.len() as u64,
            _ => 0,
        }
    }

    /// Adds the inode to the table of mapped files for a call that is about to map it, and describes
    /// it to the core.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn describe(
        &self,
        path: &str,
        id: FileId,
        (readable, writable): (bool, bool),
    ) -> Result<(File, InUse), Errno> {
        let pages = self.file_pages();
        let in_use = InUse::new(self.number, pages, path)?;
        let file = File {
            id,
            inode: self.number,
            kind: match self.as_device() {
                Some(Device::Zero) => FileKind::DevZero,
                _ => FileKind::Shmem,
            },
            readable,
            writable,
            noexec: false,
            append_only: false,
            write_sealed: pages
                .is_some_and(|pages| pages.has_seal(F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)),
        };
        Ok((file, in_use))
    }
}
