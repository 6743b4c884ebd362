//! `wait4` and `waitid`: a parent waits for a child to end and receives its exit status.

use super::{Process, all, current, exit, forget};
use crate::failure::{Failure, RESTART, Value};
use crate::scheduler::task::Woken;
use crate::scheduler::{self, Event};
use crate::space::Mm;
use alloc::sync::Arc;
use linux_raw_sys::errno::{ECHILD, EINVAL};
use linux_raw_sys::general::{P_ALL, P_PGID, P_PID, SIGCHLD, WEXITED, WNOHANG, WNOWAIT};

/// The set of children that a call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    Any,
    Process(u32),
    Group(u32),
}

impl Wanted {
    fn is(self, child: &Process) -> bool {
        match self {
            Wanted::Any => true,
            Wanted::Process(pid) => child.pid == pid,
            Wanted::Group(group) => child.inherited.lock().group == group,
        }
    }
}

/// Returns a child in `wanted` that has ended. With `WNOHANG`, returns `None` if there is none yet.
fn wait_for(wanted: Wanted, options: u32) -> Result<Option<Arc<Process>>, Failure> {
    let parent = current();
    let look = || {
        let mut children = all().filter(|p| p.parent_number() == parent.pid);
        let mut any = false;
        let ended = children.find(|child| {
            let is_wanted = wanted.is(child);
            any |= is_wanted;
            is_wanted && child.zombie_status().is_some()
        });
        match ended {
            Some(child) => Some(Ok(Some(child))),
            None if !any => Some(Err(Failure::from(ECHILD))),
            None if options & WNOHANG != 0 => Some(Ok(None)),
            None => None,
        }
    };
    let found = scheduler::wait(Event::Child(parent.pid), None, look);
    let child = found.unwrap_or_else(|why| {
        debug_assert!(why == Woken::Signal);
        Err(RESTART.into())
    })?;
    if let Some(child) = &child
        && options & WNOWAIT == 0
    {
        forget(child.pid);
    }
    Ok(child)
}

/// `wait4`, which writes the status and an empty `struct rusage`.
///
/// # Errors
/// ECHILD if there is no such child; EFAULT.
pub fn wait4(mm: &Mm, pid: i32, status: u64, options: u32, usage: u64) -> Result<Value, Failure> {
    let wanted = match pid {
        -1 => Wanted::Any,
        0 => Wanted::Group(current().inherited.lock().group),
        1.. => Wanted::Process(pid as u32),
        _ => Wanted::Group(pid.unsigned_abs()),
    };
    let Some(child) = wait_for(wanted, options & !WNOWAIT)? else {
        return Ok(0);
    };
    mm.write_if_wanted(status, &[child.zombie_status().unwrap_or(0)])?;
    mm.write_if_wanted(usage, &[0u64; 18])?;
    Ok(u64::from(child.pid))
}

/// `waitid`, which writes a `siginfo_t`.
///
/// # Errors
/// EINVAL for unsupported options; ECHILD if there is no such child; EFAULT.
pub fn waitid(mm: &Mm, kind: u32, id: u32, info: u64, options: u32) -> Result<Value, Failure> {
    let wanted = match kind {
        P_ALL => Wanted::Any,
        P_PID => Wanted::Process(id),
        P_PGID => Wanted::Group(id),
        _ => return Err(EINVAL.into()),
    };
    if options & WEXITED == 0 {
        return Err(EINVAL.into());
    }
    let mut words = [0u64; 16];
    if let Some(child) = wait_for(wanted, options)? {
        let about = exit::child_info(&child, SIGCHLD, child.zombie_status().unwrap_or(0));
        words[0] = u64::from(about.number);
        words[1] = u64::from(about.code as u32);
        words[2..4].copy_from_slice(&about.words);
    }
    mm.write_if_wanted(info, &words)?;
    Ok(0)
}
