//! A minimal embedder: a machine with 64 frames and one process that maps, writes, forks and moves.
//!
//! The embedder provides only memory ([`Frames`]). `main` shows how the embedder uses the core:
//! each system call is a method, each page-fault trap becomes a call to `fault`, and the page table
//! gives the frame that holds each byte. Run the example with `cargo run -p vmarea --example
//! embed`.

use std::sync::{Arc, Mutex};
use vmarea::prelude::*;

/// Physical memory: the content of each frame in use.
#[derive(Default)]
struct Frames(Mutex<std::collections::HashMap<FrameId, Vec<u8>>>);

const FRAMES: usize = 64;

impl Frames {
    fn put(&self, frame: FrameId, bytes: Vec<u8>) -> Result<(), Errno> {
        let mut frames = self.0.lock().unwrap();
        if frames.len() == FRAMES {
            return Err(Errno::ENOMEM);
        }
        frames.insert(frame, bytes);
        Ok(())
    }
}

/// The platform on which the core runs. The core decides which frame holds which page.
struct Memory(Arc<Frames>);

impl Platform for Memory {
    fn zero(&self, frame: FrameId) -> Result<(), Errno> {
        self.0.put(frame, vec![0; PAGE_SIZE as usize])
    }

    fn copy(&self, to: FrameId, from: FrameId) -> Result<(), Errno> {
        let bytes = self.0.0.lock().unwrap()[&from].clone();
        self.0.put(to, bytes)
    }

    fn copy_file(&self, to: FrameId, inode: u64, index: u64) -> Result<(), Errno> {
        let text = format!("page {index} of file {inode}");
        let mut bytes = text.into_bytes();
        bytes.resize(PAGE_SIZE as usize, 0);
        self.0.put(to, bytes)
    }

    fn free(&self, frame: FrameId) {
        self.0.0.lock().unwrap().remove(&frame);
    }
}

/// Stores one byte for a program: calls `fault` until the page table allows the write, then writes.
fn store(space: &Space, frames: &Frames, mm: MmId, addr: u64, byte: u8) -> Result<(), Errno> {
    match space.fault(mm, addr, Access::Write)? {
        Faulted::Done | Faulted::Spurious => {}
        signal => panic!("a kernel would send a signal here: {signal:?}"),
    }
    let space = space.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
    let frame = space.pages().get(addr).frame().expect("just brought");
    let mut frames = frames.0.lock().unwrap();
    frames.get_mut(&frame).expect("in use")[(addr % PAGE_SIZE) as usize] = byte;
    Ok(())
}

fn load(space: &Space, frames: &Frames, mm: MmId, addr: u64) -> Option<u8> {
    let space = space.mmap_read_lock(mm)?;
    let frame = space.pages().get(addr).frame()?;
    Some(frames.0.lock().unwrap()[&frame][(addr % PAGE_SIZE) as usize])
}

fn main() -> Result<(), Errno> {
    let frames = Arc::new(Frames::default());
    let memory = Box::new(Memory(frames.clone()));
    let space = Space::with_platform(Policy::VMAREA, System::default(), memory);
    let layout = Layout {
        mmap_base: 0x7fff_0000_0000,
        ..Layout::default()
    };
    let parent = space.mm_create(layout, Limits::default())?;
    let map = |pages: u64| space.mmap(parent, &MmapRequest::anonymous(pages * PAGE_SIZE));

    // Two mappings stay separate after the third one between them is unmapped.
    let high = map(4)?;
    let between = map(4)?;
    let low = map(4)?;
    store(&space, &frames, parent, high, 1)?;
    store(&space, &frames, parent, low, 2)?;
    space.munmap(parent, between, 4 * PAGE_SIZE)?;

    // The child reads what its parent wrote; the child's writes are visible to the child only.
    let child = space.fork(parent)?;
    store(&space, &frames, child, low, 3)?;
    assert_eq!(load(&space, &frames, child, high), Some(1));
    assert_eq!(load(&space, &frames, parent, low), Some(2));
    space.mm_exit(child)?;

    // Moved next to each other, the two mappings merge although both have pages. Linux would keep
    // two VMAs.
    let request = MremapRequest {
        addr: low,
        old_len: 4 * PAGE_SIZE,
        new_len: 4 * PAGE_SIZE,
        flags: MremapFlags::MAYMOVE | MremapFlags::FIXED,
        new_addr: between,
        ..MremapRequest::default()
    };
    let moved = space.mremap(parent, &request)?;
    assert_eq!(load(&space, &frames, parent, moved), Some(2));
    for vma in space.maps(parent) {
        println!("{:#x}-{:#x}", vma.range.start, vma.range.end);
    }
    space.validate_all().expect("a sound address space");
    space.mm_exit(parent)?;
    println!("{} frames left in use", frames.0.lock().unwrap().len());
    Ok(())
}
