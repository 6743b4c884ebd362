//! Injects the resources of a repair into a process, and removes them again.
//!
//! The resources are a page with the agent's code, a table of calls in shared memory, a scratch
//! area for the pages of a piece, and a userfaultfd. The process itself opens the userfaultfd,
//! because the kernel does not move or copy pages on behalf of another process.

use vmarea_merge::types::VmRange;

use super::descriptor;
use super::injector::Injector;
use super::stop::stop_patiently;
use super::target::Target;
use crate::journal::{self, Agent, Journal};
use crate::piece::Room;
use crate::plan::PAGE;
use crate::{RepairError, Way};
use vmarea_linux_sys::calls::{Call, ENTRY_BYTES};
use vmarea_linux_sys::uffd;

/// Capacity of the table of calls in the process.
pub(super) const MOST_CALLS: usize = 1_200;
/// Size of the largest piece, in bytes.
pub(super) const MOST_BYTES: u64 = 256 << 20;
/// Size of the table, in bytes.
pub(super) const TABLE_BYTES: u64 = MOST_CALLS as u64 * ENTRY_BYTES;
const O_NONBLOCK_CLOEXEC: u64 = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
const UFFD_USER_MODE_ONLY: u64 = 1;

/// Maps the agent, its table and the scratch area, and opens a userfaultfd, all in the process. If
/// one of these steps fails, the results of the others are removed.
pub(super) fn make_agent(
    target: &Target,
    held: &impl Injector,
    journal: &mut Journal,
    way: Option<Way>,
) -> Result<Agent, RepairError> {
    let mut agent = Agent {
        code: 0,
        table: 0,
        room: VmRange::new(0, 0),
        fd: -1,
        inode: None,
        way: way.unwrap_or(Way::Move),
    };
    let made = fill(target, held, journal, &mut agent).and_then(|()| {
        held.settle()?;
        agent.way = begin_to_use(held, &agent, way)?;
        journal.agent(&agent).map_err(journal::failed)?;
        journal.made().map_err(journal::failed)
    });
    match made {
        Ok(()) => Ok(agent),
        Err(error) => {
            take_out(held, journal, agent)?;
            Err(error)
        }
    }
}

/// Creates the parts of the agent one by one, and records each part immediately. If this run is
/// interrupted, another run can then remove the parts.
fn fill(
    target: &Target,
    held: &impl Injector,
    journal: &mut Journal,
    agent: &mut Agent,
) -> Result<(), RepairError> {
    let make = |what, nr, args: &[u64]| {
        let result = held.call(&Call::plain(0, nr, args))?;
        if result < 0 {
            return Err(failed(target.pid, what, -result as i32));
        }
        Ok(result as u64)
    };
    let (none, rw, rx) = (
        libc::PROT_NONE as u64,
        (libc::PROT_READ | libc::PROT_WRITE) as u64,
        (libc::PROT_READ | libc::PROT_EXEC) as u64,
    );
    let anonymous = libc::MAP_ANONYMOUS as u64;
    let private = anonymous | libc::MAP_PRIVATE as u64;
    let map =
        |what, len, prot, kind| make(what, libc::SYS_mmap, &[0, len, prot, kind, u64::MAX, 0]);
    agent.code = map("mapping the agent", PAGE, rx, private)?;
    journal.agent(agent).map_err(journal::failed)?;
    journal.clearing().map_err(journal::failed)?;
    target
        .put_code(agent.code)
        .map_err(|_| RepairError::Forbidden(target.pid))?;
    let shared = anonymous | libc::MAP_SHARED as u64;
    agent.table = map("mapping a table", TABLE_BYTES, rw, shared)?;
    journal.agent(agent).map_err(journal::failed)?;
    let reserve = private | libc::MAP_NORESERVE as u64;
    let mut bytes = MOST_BYTES;
    agent.room = loop {
        let len = Room::bytes_for(bytes);
        match map("reserving room", len, none, reserve) {
            Ok(start) => break VmRange::new(start, start + len),
            Err(RepairError::NoRoom(_)) if bytes > 1 << 20 => bytes /= 4,
            Err(error) => return Err(error),
        }
    };
    journal.agent(agent).map_err(journal::failed)?;
    open_descriptor(held, journal, agent)
}

/// Opens a userfaultfd in the process.
fn open_descriptor(
    held: &impl Injector,
    journal: &mut Journal,
    agent: &mut Agent,
) -> Result<(), RepairError> {
    let open = |flags| {
        let result = held.call(&Call::plain(0, libc::SYS_userfaultfd, &[flags]))?;
        match result {
            0.. => Ok(result as i32),
            errno => Err(failed(held.pid(), "userfaultfd", -errno as i32)),
        }
    };
    let fd = match open(O_NONBLOCK_CLOEXEC) {
        // No thread runs while pages are moved out, so faults in kernel mode need not be handled.
        Err(RepairError::TargetUserfaultfd(_)) => open(O_NONBLOCK_CLOEXEC | UFFD_USER_MODE_ONLY)?,
        fd => fd?,
    };
    let Some(inode) = descriptor::inode(held.pid(), held.tid(), fd) else {
        // The inode is the only means to distinguish the descriptor from others later.
        held.call(&Call::plain(0, libc::SYS_close, &[fd as u64]))?;
        return Err(failed(held.pid(), "looking at a descriptor", libc::EACCES));
    };
    (agent.fd, agent.inode) = (fd, Some(inode));
    journal.agent(agent).map_err(journal::failed)
}

/// Opens another userfaultfd if the program has closed the agent's userfaultfd.
///
/// If the program has opened a file with the same descriptor number, that file is left alone.
///
/// # Errors
/// The errors of opening the first userfaultfd, including `EMFILE`. The agent then has no
/// userfaultfd.
pub(super) fn see_to_descriptor(
    held: &impl Injector,
    journal: &mut Journal,
    agent: &mut Agent,
) -> Result<(), RepairError> {
    if descriptor::is_ours(held.pid(), held.tid(), agent) {
        return Ok(());
    }
    (agent.fd, agent.inode) = (-1, None);
    let opened = open_descriptor(held, journal, agent);
    held.settle()?;
    opened?;
    let way = agent.way;
    begin_to_use(held, agent, Some(way)).map(|_| ())
}

fn failed(pid: i32, what: &'static str, errno: i32) -> RepairError {
    match errno {
        libc::EPERM | libc::EACCES => RepairError::TargetUserfaultfd(pid),
        libc::ENOSYS => RepairError::TooOld,
        libc::ENOMEM => RepairError::NoRoom(pid),
        errno => RepairError::System {
            what,
            cause: std::io::Error::from_raw_os_error(errno),
        },
    }
}

/// Initializes the userfaultfd and returns the method (move or copy) that the kernel supports. If
/// `wanted` is set, only that method is tried. Also prevents forked children from inheriting the
/// agent.
fn begin_to_use(
    held: &impl Injector,
    agent: &Agent,
    wanted: Option<Way>,
) -> Result<Way, RepairError> {
    let advise = |start, len| {
        let advice = libc::MADV_DONTFORK as u64;
        Call::plain(0, libc::SYS_madvise, &[start, len, advice])
    };
    // A request for an unknown feature changes nothing, so another request can follow.
    for (way, features) in [(Way::Move, uffd::FEATURE_MOVE), (Way::Copy, 0)] {
        if wanted.is_some_and(|wanted| wanted != way) {
            continue;
        }
        let mut calls = [
            Call::ioctl(0, agent.fd, uffd::UFFDIO_API, &[uffd::API, features, 0]),
            advise(agent.table, TABLE_BYTES),
            advise(agent.code, PAGE),
        ];
        if held.run(agent, &mut calls, 0)? > 0 {
            return Ok(way);
        }
    }
    Err(RepairError::TooOld)
}

/// Maximum number of attempts to remove a part of the agent.
const TRIES: u32 = 8;

/// Unmaps and closes all parts of the agent. The thread is left in a stop that permits its release.
///
/// The removal happens before the process resumes, because later the recorded addresses could
/// belong to the program. The code page is unmapped last, because its mark shows that the removal
/// is not complete yet.
///
/// # Errors
/// [`RepairError::LeftBehind`] if the kernel keeps refusing one of the calls. The journal then
/// records the remaining parts.
pub(super) fn take_out(
    held: &impl Injector,
    journal: &mut Journal,
    agent: Agent,
) -> Result<(), RepairError> {
    let mut agent = descriptor::without_closed(held, agent);
    let noted = journal.clearing();
    let mut refused = 0;
    let mut gone = |nr, args: &[u64]| {
        for _ in 0..TRIES {
            match -held.call(&Call::plain(0, nr, args))? {
                // `EBADF`: the descriptor is closed already.
                errno if errno <= 0 || errno == i64::from(libc::EBADF) => return Ok(true),
                errno => refused = errno as i32,
            }
        }
        Ok(false)
    };
    if agent.fd >= 0 && gone(libc::SYS_close, &[agent.fd as u64])? {
        agent.fd = -1;
    }
    let room = (agent.room.start, agent.room.len_bytes());
    if room.0 != 0 && gone(libc::SYS_munmap, &[room.0, room.1])? {
        agent.room = VmRange::new(0, 0);
    }
    if agent.table != 0 && gone(libc::SYS_munmap, &[agent.table, TABLE_BYTES])? {
        agent.table = 0;
    }
    let only_code = agent.fd < 0 && agent.room.start == 0 && agent.table == 0;
    if only_code && agent.code != 0 && gone(libc::SYS_munmap, &[agent.code, PAGE])? {
        agent.code = 0;
    }
    held.settle()?;
    if only_code && agent.code == 0 {
        return noted.and(journal.cleared()).map_err(journal::failed);
    }
    // The process resumes with the remaining parts of the agent, so the journal must not contain
    // the removed parts.
    noted.and(journal.agent(&agent)).map_err(journal::failed)?;
    Err(RepairError::LeftBehind {
        pid: held.pid(),
        cause: std::io::Error::from_raw_os_error(refused),
    })
}

/// Stops the process again and removes the agent from it.
pub(super) fn clear_up(
    target: &Target,
    journal: &mut Journal,
    agent: Agent,
) -> Result<(), RepairError> {
    let held = stop_patiently(target, journal)?;
    let done = take_out(&held, journal, agent);
    done.and(held.release(journal))
}
