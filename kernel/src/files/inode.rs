//! `Inode`: a file, a directory, a symbolic link or a device, all in memory as in tmpfs.
//!
//! A file's pages are its page cache: system calls read and write them, and mappings map them. When
//! a page is first used, it is filled from the initramfs or with zeros.

use crate::failure::Failure;
use crate::memory::frames::{FRAME_SIZE, Frame};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use linux_raw_sys::errno::{EFBIG, EISDIR, ENOSPC, EPERM};
use linux_raw_sys::general::{
    F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE, S_IFBLK, S_IFCHR,
    S_IFDIR, S_IFLNK, S_IFMT, S_IFREG,
};
use spin::{Mutex, Once};

/// Maximum size of a file in bytes.
const MAX_SIZE: u64 = 1 << 46;

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

/// The contents of a file.
#[derive(Debug, Default)]
struct Contents {
    size: u64,
    pages: BTreeMap<u64, Frame>,
    /// Contents of the file in the initramfs; empty if the file does not come from the initramfs.
    initial: &'static [u8],
}

/// Kind of an inode, together with the inode's contents.
#[derive(Debug)]
enum Node {
    File(Mutex<Contents>),
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
    seals: AtomicU32,
    node: Node,
}

static NEXT: AtomicU64 = AtomicU64::new(2);
static ROOT: Once<Arc<Inode>> = Once::new();

/// Returns the root directory.
pub fn root() -> Arc<Inode> {
    let new = || Inode::with(Node::Directory(Mutex::default()), S_IFDIR | 0o755);
    Arc::clone(ROOT.call_once(new))
}

impl Contents {
    /// Returns a page, creating it if needed, or `None` if there is no memory for it.
    fn page(&mut self, index: u64) -> Option<&Frame> {
        if !self.pages.contains_key(&index) {
            let frame = Frame::zeroed()?;
            let from = index.saturating_mul(FRAME_SIZE as u64);
            if let Some(rest) = self.initial.get(from as usize..) {
                frame.write(0, &rest[..rest.len().min(FRAME_SIZE)]);
            }
            self.pages.insert(index, frame);
        }
        self.pages.get(&index)
    }

    /// Calls `f` for each page in the `len` bytes at `offset`; returns the number of bytes handled.
    ///
    /// The arguments of `f` are the page, the offset in the page, and the range that the part
    /// occupies within the `len` bytes. If memory runs out, the remaining parts are skipped.
    fn for_parts(
        &mut self,
        offset: u64,
        len: usize,
        mut f: impl FnMut(&Frame, usize, core::ops::Range<usize>),
    ) -> usize {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let within = at as usize % FRAME_SIZE;
            let part = (FRAME_SIZE - within).min(len - done);
            let Some(page) = self.page(at / FRAME_SIZE as u64) else {
                break;
            };
            f(page, within, done..done + part);
            done += part;
        }
        done
    }
}

impl Inode {
    fn with(node: Node, mode: u32) -> Arc<Inode> {
        // ORDERING: Relaxed; the number only has to be unique.
        Inode::numbered(NEXT.fetch_add(1, Ordering::Relaxed), node, mode)
    }

    fn numbered(number: u64, node: Node, mode: u32) -> Arc<Inode> {
        Arc::new(Inode {
            number,
            mode: AtomicU32::new(mode),
            seals: AtomicU32::new(F_SEAL_SEAL),
            node,
        })
    }

    /// Creates a file whose initial contents come from the initramfs.
    pub fn file(mode: u32, initial: &'static [u8]) -> Arc<Inode> {
        let contents = Contents {
            size: initial.len() as u64,
            initial,
            ..Contents::default()
        };
        Inode::with(Node::File(Mutex::new(contents)), S_IFREG | mode & 0o7777)
    }

    /// Creates the file behind a shared anonymous mapping, with an inode number chosen by the core.
    pub fn nameless(number: u64, size: u64) -> Arc<Inode> {
        let contents = Contents {
            size,
            ..Contents::default()
        };
        Inode::numbered(number, Node::File(Mutex::new(contents)), S_IFREG | 0o777)
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

    fn contents(&self) -> Option<spin::MutexGuard<'_, Contents>> {
        match &self.node {
            Node::File(contents) => Some(contents.lock()),
            _ => None,
        }
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        match &self.node {
            Node::Link(target) => target.len() as u64,
            _ => self.contents().map_or(0, |contents| contents.size),
        }
    }

    /// Returns the number of pages of the file that are in memory.
    pub fn pages(&self) -> u64 {
        self.contents()
            .map_or(0, |contents| contents.pages.len() as u64)
    }

    /// Reads bytes at an offset; returns the number of bytes read, 0 at the end of the file.
    ///
    /// # Errors
    /// EISDIR if this is not a file; ENOSPC if there is no memory for a page.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<usize, Failure> {
        let mut contents = self.contents().ok_or(EISDIR)?;
        let len = contents.size.saturating_sub(offset).min(to.len() as u64) as usize;
        let read = contents.for_parts(offset, len, |page, at, part| page.read(at, &mut to[part]));
        match read == 0 && len > 0 {
            true => Err(ENOSPC.into()),
            false => Ok(read),
        }
    }

    /// Writes bytes at an offset; returns the number of bytes written.
    ///
    /// # Errors
    /// EISDIR if this is not a file; EPERM if a seal forbids the write; EFBIG if the file would be
    /// too large; ENOSPC if there is no memory for a page.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<usize, Failure> {
        let end = offset
            .checked_add(from.len() as u64)
            .filter(|&end| end <= MAX_SIZE);
        let end = end.ok_or(EFBIG)?;
        let mut contents = self.contents().ok_or(EISDIR)?;
        let grows = end > contents.size;
        if self.has_seal(F_SEAL_WRITE | F_SEAL_FUTURE_WRITE) || grows && self.has_seal(F_SEAL_GROW)
        {
            return Err(EPERM.into());
        }
        let len = from.len();
        let written = contents.for_parts(offset, len, |page, at, part| page.write(at, &from[part]));
        contents.size = contents.size.max(offset + written as u64);
        match written == 0 && len > 0 {
            true => Err(ENOSPC.into()),
            false => Ok(written),
        }
    }

    /// Sets the size; returns the pages beyond the new size, which may still be mapped.
    ///
    /// # Errors
    /// EPERM if a seal forbids the change; EFBIG if the size is too large; EISDIR if this is not a
    /// file.
    pub fn resize(&self, size: u64) -> Result<Vec<Frame>, Failure> {
        if size > MAX_SIZE {
            return Err(EFBIG.into());
        }
        let mut contents = self.contents().ok_or(EISDIR)?;
        let forbidden = match size.cmp(&contents.size) {
            core::cmp::Ordering::Less => F_SEAL_SHRINK,
            core::cmp::Ordering::Equal => 0,
            core::cmp::Ordering::Greater => F_SEAL_GROW,
        };
        if self.has_seal(forbidden) {
            return Err(EPERM.into());
        }
        let within = size as usize % FRAME_SIZE;
        if size < contents.size
            && within != 0
            && let Some(page) = contents.page(size / FRAME_SIZE as u64)
        {
            page.write(within, &[0; FRAME_SIZE][within..]);
        }
        contents.size = size;
        contents.initial = &contents.initial[..contents.initial.len().min(size as usize)];
        let gone = contents.pages.split_off(&size.div_ceil(FRAME_SIZE as u64));
        Ok(gone.into_values().collect())
    }

    /// Fills the pages in `first..end` with zeros.
    pub fn punch_hole(&self, first: u64, end: u64) {
        let Some(mut contents) = self.contents() else {
            return;
        };
        // The pages are not removed, because they may be mapped.
        let last = end.min(contents.size.div_ceil(FRAME_SIZE as u64));
        for index in first..last {
            if (contents.pages.contains_key(&index) || !contents.initial.is_empty())
                && let Some(page) = contents.page(index)
            {
                page.write(0, &[0; FRAME_SIZE]);
            }
        }
    }

    /// Returns the physical address of a page, creating the page if needed.
    ///
    /// Returns `None` if the page is beyond the end of the file or there is no memory for it.
    pub fn page_address(&self, index: u64) -> Option<u64> {
        let mut contents = self.contents()?;
        match index < contents.size.div_ceil(FRAME_SIZE as u64) {
            true => contents.page(index).map(Frame::address),
            false => None,
        }
    }

    /// Returns a copy of a page, or `None` if there is no memory for the copy.
    pub fn copy_of_page(&self, index: u64) -> Option<Frame> {
        let mut contents = self.contents()?;
        let page = contents.page(index)?.address();
        Frame::copy_of(page)
    }

    /// True if the page is in memory.
    pub fn is_cached(&self, index: u64) -> bool {
        self.contents()
            .is_some_and(|contents| contents.pages.contains_key(&index))
    }

    /// Returns the seals (`F_SEAL_`).
    pub fn seals(&self) -> u32 {
        // ORDERING: Relaxed; one word.
        self.seals.load(Ordering::Relaxed)
    }

    /// Sets the seals.
    pub fn set_seals(&self, seals: u32) {
        // ORDERING: Relaxed; one word.
        self.seals.store(seals, Ordering::Relaxed);
    }

    /// True if the file has one of these seals.
    pub fn has_seal(&self, seals: u32) -> bool {
        self.seals() & seals != 0
    }
}
