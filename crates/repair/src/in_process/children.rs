//! Copies missing pages to children that are forked while pages are moved out.
//!
//! A child that is forked while a piece is replaced inherits the piece without the pages that are
//! moved out, and does not inherit the temporary range that holds these pages. This module
//! therefore gives the child a copy of each missing page. The child runs during the copy; if it
//! touches a missing page, it waits. If the child itself discards or moves pages, or forks, its
//! call blocks until this module has read the corresponding event, so each page is copied to the
//! address at which the child expects it. Unregistering the child's range wakes the child.

use std::io;

use super::page_locations::PageLocations;
use super::shared::Locked;
use crate::plan::PAGE;
use vmarea_linux_sys::calls::{self, Arena};
use vmarea_linux_sys::own_process;
use vmarea_linux_sys::uffd::{self, Event};

/// Maximum depth of nested forks. If a child forks while its pages are being copied, the pages of
/// the new child are copied first.
const GENERATIONS: u32 = 8;

/// Copies the missing pages to the child whose userfaultfd is `fd`, and closes `fd`.
///
/// If the copies cannot be completed, the child is left waiting, because it would otherwise read
/// wrong bytes. Possible causes are a lack of memory for tracking the child's changes, forks that
/// are nested deeper than [`GENERATIONS`], and a copy that fails permanently.
pub(super) fn complete(shared: &Locked<'_>, fd: i32) {
    complete_one(shared, fd, None, GENERATIONS);
}

/// Copies the missing pages to one child. `inherited` holds the addresses to which the pages
/// belonged when the child was forked, if they differ from the original addresses.
fn complete_one(shared: &Locked<'_>, fd: i32, inherited: Option<&PageLocations>, generations: u32) {
    let mut child = Child {
        shared,
        fd,
        inherited,
        own: None,
        generations,
    };
    let mut lost = false;
    if shared.wipes() {
        shared.let_child_go(fd);
        return;
    }
    shared.pages_out(&mut |off, len| {
        let done = child.copy(off, len);
        let has_ended = |error: &io::Error| error.raw_os_error() == Some(libc::ESRCH);
        lost = done.as_ref().is_err_and(|error| !has_ended(error));
        done.is_ok()
    });
    if !lost {
        shared.let_child_go(fd);
    }
}

/// A child whose missing pages are being copied to it.
struct Child<'a> {
    shared: &'a Locked<'a>,
    fd: i32,
    /// The addresses to which the pages belonged in the child's parent; `None` for the original
    /// addresses.
    inherited: Option<&'a PageLocations>,
    /// The addresses to which the child's pages belong, if the child has changed some.
    own: Option<Arena<PageLocations>>,
    generations: u32,
}

impl Child<'_> {
    fn locations(&self) -> Option<&PageLocations> {
        self.own
            .as_ref()
            .map_or(self.inherited, |own| Some(&own.get()[0]))
    }

    /// Copies a run of moved-out pages to the child.
    fn copy(&mut self, off: u64, len: u64) -> io::Result<()> {
        let (piece, temporary) = (self.shared.piece(), self.shared.temporary());
        let (mut at, end) = (off, off + len);
        let mut step = len;
        let mut round = 0;
        while at < end {
            let home = match self.locations() {
                None => piece.start + at,
                Some(locations) => {
                    step = PAGE;
                    let Some(home) = locations.of(piece, at) else {
                        at += PAGE;
                        continue;
                    };
                    home
                }
            };
            let now = step.min(end - at);
            let mut call = uffd::copy(0, self.fd, home, temporary + at, now);
            calls::run(&mut call);
            match call.errno() {
                0 => at += now,
                libc::EAGAIN => {
                    let done = call.payload[4].cast_signed().max(0).unsigned_abs();
                    at += done;
                    if done == 0 {
                        self.listen()?;
                    }
                }
                // The kernel copies within one mapping only, and the range may span many.
                libc::ENOENT | libc::EEXIST if step > PAGE => step = PAGE,
                // The kernel looks up the address before it checks whether the child changes its
                // mappings: a mapping that was not found may be in the middle of a move.
                libc::ENOENT | libc::EEXIST if uffd::is_changing(self.fd) => self.listen()?,
                // The address is no longer mapped, or the page is there already.
                libc::ENOENT | libc::EEXIST => at += PAGE,
                // The kernel refuses for the moment, for example because memory is short; the child
                // waits.
                libc::ENOMEM | libc::EINTR | libc::EBUSY => {
                    own_process::rest(round);
                    round = round.saturating_add(1);
                }
                // `ESRCH`: the child has ended.
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
        Ok(())
    }

    /// Reads an event from the child. The child's system call blocks until its event has been read.
    fn listen(&mut self) -> io::Result<()> {
        let piece = self.shared.piece();
        match self.shared.event(self.fd) {
            None => own_process::breathe(),
            Some(Event::Fault) => {}
            Some(Event::Fork(_)) if self.generations == 0 => {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            Some(Event::Fork(fd)) => {
                complete_one(self.shared, fd, self.locations(), self.generations - 1);
            }
            Some(Event::Remap { from, to, len }) => {
                self.own_locations()?.moved(piece, from, to, len);
            }
            Some(Event::Remove { start, end } | Event::Unmap { start, end }) => {
                self.own_locations()?.dropped(piece, start, end);
            }
        }
        Ok(())
    }

    fn own_locations(&mut self) -> io::Result<&PageLocations> {
        let own = match self.own.take() {
            Some(own) => own,
            None => PageLocations::fork(self.inherited, self.shared.piece())?,
        };
        Ok(&self.own.insert(own).get()[0])
    }
}
