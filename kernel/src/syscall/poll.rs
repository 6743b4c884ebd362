//! `poll`, `ppoll` and `select`: a thread waits for several files at once.

use super::{Call, Outcome};
use crate::cpu::clock;
use crate::failure::{Failure, Value};
use crate::files::OpenFile;
use crate::scheduler::task::Woken;
use crate::scheduler::{self, Event};
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::errno::{EINTR, EINVAL};
use linux_raw_sys::general::*;

const FDS_MAX: u64 = 1024;

/// Performs a system call that waits for files.
pub fn call(call: &Call<'_>) -> Outcome {
    let [fds, count, timeout, mask, ..] = call.args;
    Some(match call.number {
        __NR_poll => {
            let milliseconds = timeout as i32;
            let after = (milliseconds >= 0).then_some(milliseconds as u64 * 1_000_000);
            poll(call, fds, count, after)
        }
        __NR_ppoll => call.mm.read_time_if_given(timeout).and_then(|after| {
            super::signals::set_mask_for_wait(call, mask)?;
            poll(call, fds, count, after)
        }),
        __NR_select | __NR_pselect6 => select(call),
        _ => return None,
    })
}

/// A file and the events to wait for; the file is `None` if the descriptor is not open.
type Watched = (Option<Arc<OpenFile>>, u32);

fn happened((file, wanted): &Watched) -> u32 {
    match file {
        Some(file) => file.poll() & (wanted | POLLERR | POLLHUP),
        None => POLLNVAL,
    }
}

/// Waits until an event happens on one of the files, or until `after` nanoseconds have passed.
fn wait(watched: &[Watched], after: Option<u64>) -> Result<(), Failure> {
    let deadline = after.map(|after| clock::now().saturating_add(after));
    let ready = || watched.iter().any(|w| happened(w) != 0).then_some(());
    if after == Some(0) || ready().is_some() {
        return Ok(());
    }
    match scheduler::wait(Event::AnyFile, deadline, ready) {
        Err(Woken::Signal) => Err(EINTR.into()),
        _ => Ok(()),
    }
}

fn poll(call: &Call<'_>, fds: u64, count: u64, after: Option<u64>) -> Result<Value, Failure> {
    if count > FDS_MAX {
        return Err(EINVAL.into());
    }
    let mut numbers = Vec::new();
    let mut watched = Vec::new();
    for at in 0..count {
        let [fd, events]: [u32; 2] = call.mm.read_array(fds + at * 8)?;
        // A negative descriptor is ignored.
        if fd as i32 >= 0 {
            numbers.push(at);
            watched.push((call.thread.process.files.get(fd).ok(), events & 0xffff));
        } else {
            call.mm.write_values(fds + at * 8 + 6, &[0u16])?;
        }
    }
    wait(&watched, after)?;
    let mut ready = 0;
    for (at, watched) in numbers.iter().zip(&watched) {
        let events = happened(watched);
        ready += u64::from(events != 0);
        call.mm.write_values(fds + at * 8 + 6, &[events as u16])?;
    }
    Ok(ready)
}

fn select(call: &Call<'_>) -> Result<Value, Failure> {
    let [count, read, write, except, timeout, _] = call.args;
    if count > FDS_MAX {
        return Err(EINVAL.into());
    }
    let after = match (timeout, call.number) {
        (0, _) => None,
        (_, __NR_pselect6) => Some(call.mm.read_time(timeout)?),
        _ => {
            let [seconds, us]: [u64; 2] = call.mm.read_array(timeout)?;
            Some(
                seconds
                    .saturating_mul(1_000_000_000)
                    .saturating_add(us * 1000),
            )
        }
    };
    let sets = [(read, POLLIN | POLLHUP), (write, POLLOUT)];
    let words = count.div_ceil(64);
    let mut watched = Vec::new();
    let mut places = Vec::new();
    for (set, events) in sets.iter().filter(|(set, _)| *set != 0) {
        for fd in 0..count {
            let word: u64 = call.mm.read_value(set + fd / 64 * 8)?;
            if word >> (fd % 64) & 1 != 0 {
                watched.push((Some(call.thread.process.files.get(fd as u32)?), *events));
                places.push((*set, fd));
            }
        }
    }
    wait(&watched, after)?;
    for set in [read, write, except].into_iter().filter(|set| *set != 0) {
        for word in 0..words {
            call.mm.write_values(set + word * 8, &[0u64])?;
        }
    }
    let mut ready = 0;
    for ((set, fd), watched) in places.iter().zip(&watched) {
        if happened(watched) & watched.1 != 0 {
            let at = set + fd / 64 * 8;
            let word: u64 = call.mm.read_value(at)?;
            call.mm.write_values(at, &[word | 1 << (fd % 64)])?;
            ready += 1;
        }
    }
    Ok(ready)
}
