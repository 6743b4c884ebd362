//! The watcher: a thread that answers the kernel's events while pages are out.
//!
//! Some changes to watched mappings wait until somebody has read of them; a thread that waits for
//! its own change cannot. So a second thread reads: it completes the child of a fork, drops pages
//! that the program dropped, and remembers where a mapping went that was moved. What an event means
//! is decided by [`Phase::meaning`](super::phase::Phase::meaning); this file does it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use vmarea::types::VmRange;

use super::children;
use super::fork_gate;
use super::phase::Meaning;
use super::shared::{Descriptors, Locked, Shared};
use crate::plan::PAGE;
use vmarea_linux_sys::calls::Arena;
use vmarea_linux_sys::own_process::{self, Aside};
use vmarea_linux_sys::uffd;

/// What the thread does.
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
    match meaning {
        Meaning::Nothing => {}
        Meaning::Child(fd) => {
            children::complete(locked, fd);
            locked.count_fork();
        }
        Meaning::Moved { from, to, len } => {
            locked.disturb();
            moved(locked, from, to, len);
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
            // The pages go a moment after this: one that went out before would come back.
            if disturbs {
                locked.disturb();
            }
            dropped(locked, start, end);
        }
    }
}

/// The program has moved mappings; the pages of the piece in them belong there now.
fn moved(locked: &Locked<'_>, from: u64, to: u64, len: u64) {
    let piece = locked.piece();
    locked.locations().moved(piece, from, to, len);
    // What lies before the piece is watched as well, and what has grown behind it; nothing of it is out.
    let before = match piece.start.saturating_sub(from) {
        0 => len,
        before => before.min(len),
    };
    if !locked.locations().any_within(piece, to..to + before) {
        locked.cease(to, before);
    }
}

/// The program drops `start..end`; the part of the piece in it goes with it.
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

/// The thread, and what it works on.
#[derive(Debug)]
pub(super) struct Watcher {
    shared: Arena<Shared>,
    thread: Option<Aside>,
    stop: OwnedFd,
    _pagemap: File,
}

impl Watcher {
    /// Starts it on the descriptor `home`, and with `silent` to drop pages by. Both must stay open
    /// until it is dropped.
    ///
    /// # Errors
    /// Those of starting a thread and of opening `/proc/self/pagemap`.
    pub(super) fn start(home: i32, silent: i32) -> io::Result<Watcher> {
        let pagemap = File::open("/proc/self/pagemap")?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let mut watcher = Watcher {
            shared: Arena::new(1)?,
            thread: None,
            stop,
            _pagemap: pagemap,
        };
        // Before the thread runs, so that nobody else reads them meanwhile.
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

    /// The kernel's id of the thread.
    pub(super) fn thread_id(&self) -> i32 {
        self.shared().thread_id()
    }

    /// What it works on.
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
