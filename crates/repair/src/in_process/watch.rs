//! The watcher: a thread that handles userfaultfd events while pages are moved out.
//!
//! A thread that forks or changes watched mappings waits until another thread has read the
//! resulting event. The watcher copies the missing pages to a forked child. The only thread that
//! changes the mappings of a piece is the mover, which raises events by its swap: these are only
//! read.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use super::children;
use super::shared::{Descriptors, Shared};
use vmarea_linux_sys::calls::Arena;
use vmarea_linux_sys::own_process::Aside;
use vmarea_linux_sys::uffd::{self, Event};

/// Main loop of the watcher thread.
fn watch(shared: &Shared) {
    let Descriptors { home, stop, .. } = shared.descriptors;
    while uffd::wait(home, stop) {
        let locked = shared.lock();
        while let Some(event) = locked.event(home) {
            if let Event::Fork(child) = event {
                children::complete(&locked, child);
                locked.count_fork();
            }
        }
        drop(locked);
    }
}

/// The watcher thread and the memory that it shares with the mover.
#[derive(Debug)]
pub(super) struct Watcher {
    shared: Arena<Shared>,
    thread: Option<Aside>,
    stop: OwnedFd,
    _pagemap: File,
}

impl Watcher {
    /// Starts the watcher on the userfaultfd `home`, which must stay open until the watcher is
    /// dropped.
    ///
    /// # Errors
    /// Errors from starting a thread and from opening the pagemap.
    pub(super) fn start(home: i32) -> io::Result<Watcher> {
        // `/proc/self` shows no memory if the first thread of the process has exited.
        let pagemap = File::open("/proc/thread-self/pagemap")?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let mut watcher = Watcher {
            shared: Arena::new(1)?,
            thread: None,
            stop,
            _pagemap: pagemap,
        };
        // The fields are set before the thread runs, so that no other thread reads them while they
        // change.
        watcher.shared.all()[0].descriptors = Descriptors {
            home,
            stop: watcher.stop.as_raw_fd(),
            pagemap: watcher._pagemap.as_raw_fd(),
        };
        watcher.thread = Some(Aside::start(watch, watcher.shared())?);
        Ok(watcher)
    }

    /// Returns the memory shared by the watcher and the mover.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared.get()[0]
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(mut thread) = self.thread.take() {
            let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
            thread.join();
        }
        self.shared().close();
    }
}
