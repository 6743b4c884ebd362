//! The watcher: a thread that handles userfaultfd events while pages are moved out.
//!
//! A thread that changes watched mappings may block until another thread has read the resulting
//! event. The watcher reads these events: it copies the missing pages to a forked child, discards
//! pages that the program discarded, and records the new address of a moved mapping.
//! [`Phase::meaning`](super::phase::Phase::meaning) decides what an event means; this module acts
//! on it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use vmarea_merge::types::VmRange;

use super::children;
use super::fork_gate;
use super::phase::Meaning;
use super::shared::{Descriptors, Locked, Shared};
use crate::plan::PAGE;
use vmarea_linux_sys::calls::Arena;
use vmarea_linux_sys::own_process::{self, Aside};
use vmarea_linux_sys::uffd;

/// Main loop of the watcher thread.
fn watch(shared: &Shared) {
    shared.set_thread_id();
    let Descriptors { home, stop, .. } = shared.descriptors;
    while uffd::wait(home, stop) {
        let locked = shared.lock();
        while let Some(event) = locked.event(home) {
            answer(&locked, locked.phase().meaning(event));
        }
        drop(locked);
    }
}

fn answer(locked: &Locked<'_>, meaning: Meaning) {
    locked.places().note(meaning);
    match meaning {
        Meaning::Nothing => {}
        Meaning::Child(fd) => {
            children::complete(locked, fd);
            locked.count_fork();
        }
        Meaning::Moved { from, to, len } => {
            locked.disturb();
            locked.locations().moved(locked.piece(), from, to, len);
        }
        Meaning::Unmapped { start, end } => {
            locked.disturb();
            dropped(locked, start, end);
        }
        Meaning::Dropped {
            start,
            end,
            disturbs,
        } => {
            fork_gate::begin_drop();
            // The kernel discards the pages after this event. A page that is moved out before it is
            // discarded would reappear when it is moved back.
            if disturbs {
                locked.disturb();
            }
            dropped(locked, start, end);
        }
    }
}

/// Discards the pages of the piece that belong to `start..end`, a range that the program discards.
fn dropped(locked: &Locked<'_>, start: u64, end: u64) {
    let whole = VmRange::new(0, locked.piece().len_bytes());
    locked.pages_out(whole, &mut |off, len| {
        for page in (off..off + len).step_by(PAGE as usize) {
            let home = locked.home_of(page);
            if home.is_some_and(|home| (start..end).contains(&home)) {
                locked.drop_out(page);
            }
        }
        true
    });
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
    /// Starts the watcher on the userfaultfd `home`; `silent` is used to discard pages. Both
    /// descriptors must stay open until the watcher is dropped.
    ///
    /// # Errors
    /// Errors from starting a thread and from opening `/proc/self/pagemap`.
    pub(super) fn start(home: i32, silent: i32) -> io::Result<Watcher> {
        let pagemap = File::open("/proc/self/pagemap")?;
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
            silent,
            stop: watcher.stop.as_raw_fd(),
            pagemap: watcher._pagemap.as_raw_fd(),
        };
        watcher.thread = Some(Aside::start(watch, watcher.shared())?);
        while watcher.thread_id() == 0 {
            own_process::breathe();
        }
        Ok(watcher)
    }

    /// Returns the kernel's id of the watcher thread.
    pub(super) fn thread_id(&self) -> i32 {
        self.shared().thread_id()
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
