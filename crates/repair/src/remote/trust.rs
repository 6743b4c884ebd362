//! Decides whether a journal may be followed.
//!
//! Root can also finish the repairs of other users. For root, the journal of another user is
//! hostile input: it contains registers and addresses that are written into a process. A journal is
//! followed only if the process has no privilege that its user lacks, and if everything that the
//! journal names has the form that a repair would have created. The checks are repeated while the
//! process is stopped.
//!
//! # Invariants
//! T1  A user's journal causes only changes to the process that the user could make directly.
//! T2  A number from a journal is used as an address only after its mapping was checked.

use std::ops::Range;

use vmarea_merge::types::VmRange;

use super::agent::{MOST_BYTES, TABLE_BYTES};
use crate::journal::{Agent, State};
use crate::pace::MOST_CHANGES;
use crate::piece::Room;
use crate::plan::PAGE;
use crate::proc_status;
use vmarea_process::guard::MOST_GUARD_PAGES;
use vmarea_process::maps::{self, MapName, MapsEntry};

/// The reason for rejecting a journal.
type Doubt = String;

/// Name, start and length of a part of the agent, and a check of its mapping.
type AgentPart<'a> = (&'a str, u64, u64, &'a dyn Fn(&MapsEntry) -> bool);

/// Checks whether a journal of user `owner` may control process `pid`.
///
/// # Errors
/// The reason why not.
pub(super) fn may_decide(pid: i32, owner: u32) -> Result<(), Doubt> {
    if owner == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let rights = proc_status::rights(pid).ok_or("the process cannot be seen")?;
    if rights.users.iter().any(|&user| user != owner) {
        return Err("it belongs to another user than the process runs as".to_owned());
    }
    if rights.is_privileged {
        return Err("the process may do what its user may not".to_owned());
    }
    if rights.seccomp {
        return Err("the process is in a sandbox (seccomp), from which it may come".to_owned());
    }
    Ok(())
}

/// Checks whether the journal names only what a repair could have put into process `pid`. The
/// descriptor number is checked where it is used ([`descriptor`](super::descriptor)).
///
/// # Errors
/// The reason why not.
pub(super) fn check(pid: i32, state: &State) -> Result<(), Doubt> {
    let mappings = maps::read(pid).map_err(|error| error.to_string())?;
    let at = Look { mappings };
    if let Some(saved) = &state.saved {
        let pc = saved.registers.pc();
        if !saved.registers.is_64_bit() {
            return Err("its registers are those of no 64-bit program".to_owned());
        }
        if !at.all(pc..pc.saturating_add(1), |m| m.perms.exec) {
            return Err(format!(
                "its thread would run on at {pc:#x}, where no code is"
            ));
        }
    }
    let Some(agent) = &state.agent else {
        return match state.piece {
            Some(_) => Err("it names a piece, but no tools".to_owned()),
            None => Ok(()),
        };
    };
    at.agent(agent, state.clearing, state.piece)?;
    if state.guards.len() > MOST_CHANGES {
        return Err("it names more guard pages than a repair opens at once".to_owned());
    }
    state.guards.iter().try_for_each(|guard| at.guard(*guard))?;
    state.piece.map_or(Ok(()), |piece| at.piece(piece, agent))
}

struct Look {
    mappings: Vec<MapsEntry>,
}

impl Look {
    fn inside(&self, range: &Range<u64>) -> impl Iterator<Item = &MapsEntry> {
        let first = self.mappings.partition_point(|m| m.end <= range.start);
        let end = range.end;
        self.mappings[first..]
            .iter()
            .take_while(move |m| m.start < end)
    }

    /// True if the whole range is mapped, and every mapping of it satisfies `right`.
    fn all(&self, range: Range<u64>, right: impl Fn(&MapsEntry) -> bool) -> bool {
        let mut at = range.start;
        for mapping in self.inside(&range) {
            if mapping.start > at || !right(mapping) {
                return false;
            }
            at = mapping.end;
        }
        at >= range.end && !range.is_empty()
    }

    /// Like [`all`](Look::all), but the part `hole` of the range may be unmapped.
    fn all_but(
        &self,
        range: Range<u64>,
        hole: Range<u64>,
        right: impl Fn(&MapsEntry) -> bool,
    ) -> bool {
        self.all(range.start..hole.start, &right)
            && self.inside(&hole).all(&right)
            && self.all(hole.end..range.end, &right)
    }

    fn none(&self, range: &Range<u64>) -> bool {
        self.inside(range).next().is_none()
    }

    fn agent(&self, agent: &Agent, clearing: bool, piece: Option<VmRange>) -> Result<(), Doubt> {
        let Agent {
            code, table, room, ..
        } = *agent;
        let is_private = |m: &MapsEntry| is_plain(m) && !m.perms.shared;
        let is_code = |m: &MapsEntry| is_private(m) && m.perms.exec && !m.perms.write;
        let is_table = |m: &MapsEntry| m.perms.shared && m.perms.write && !m.perms.exec;
        let most = Room::bytes_for(MOST_BYTES);
        // The swap moves the fresh mapping out of the scratch area.
        let hole = piece.filter(|&piece| fits(piece, room)).map(|piece| {
            let fresh = Room { range: room }.fresh(piece);
            fresh.start..fresh.end
        });
        let parts: [AgentPart<'_>; 3] = [
            ("agent", code, PAGE, &is_code),
            (
                "table",
                table,
                TABLE_BYTES.next_multiple_of(PAGE),
                &is_table,
            ),
            ("room", room.start, room.len_bytes(), &is_private),
        ];
        for (name, start, len, right) in parts {
            let gone = start == 0 && (clearing || name == "room" && len == 0);
            let range = start..start.checked_add(len).ok_or("an address wraps")?;
            let aligned = start % PAGE == 0 && len % PAGE == 0 && len <= most;
            let there = aligned
                && match hole.clone().filter(|_| name == "room") {
                    Some(hole) => self.all_but(range.clone(), hole, right),
                    None => self.all(range.clone(), right),
                };
            if !(gone || there || clearing && aligned && self.none(&range)) {
                return Err(format!(
                    "what is at {start:#x} is not the {name} of a repair"
                ));
            }
        }
        let whole = agent.room.start == 0 || room.len_bytes() >= Room::bytes_for(0);
        whole
            .then_some(())
            .ok_or_else(|| "its room is too small".to_owned())
    }

    fn guard(&self, guard: VmRange) -> Result<(), Doubt> {
        let (start, end) = (guard.start, guard.end);
        let fits = start % PAGE == 0 && end % PAGE == 0 && guard.pages() <= MOST_GUARD_PAGES;
        let right = fits && self.all(start..end, |m| is_plain(m) && !m.perms.shared);
        match right {
            true => Ok(()),
            false => Err(format!("{start:#x}-{end:#x} is no guard page")),
        }
    }

    fn piece(&self, piece: VmRange, agent: &Agent) -> Result<(), Doubt> {
        let apart = |start: u64, len: u64| piece.end <= start || start + len <= piece.start;
        let is_heap = |m: &MapsEntry| is_plain(m) && !m.perms.shared;
        // Part of the piece may be unmapped, because the swap unmaps the piece before it moves the
        // fresh mapping there.
        let right = self.inside(&(piece.start..piece.end)).all(is_heap);
        let ours = apart(agent.room.start, agent.room.len_bytes())
            && apart(agent.code, PAGE)
            && apart(agent.table, TABLE_BYTES);
        match fits(piece, agent.room) && right && ours {
            true => Ok(()),
            false => Err(format!(
                "{:#x}-{:#x} is no memory that a repair works with",
                piece.start, piece.end
            )),
        }
    }
}

/// True if a piece could have been replaced by means of a scratch area of this size.
fn fits(piece: VmRange, room: VmRange) -> bool {
    piece.start.is_multiple_of(PAGE)
        && piece.end.is_multiple_of(PAGE)
        && piece.start < piece.end
        && room.start != 0
        && room.len_bytes() >= Room::bytes_for(0)
        && piece.len_bytes() <= Room { range: room }.piece_bytes()
}

fn is_plain(mapping: &MapsEntry) -> bool {
    let named = !matches!(mapping.name, MapName::None | MapName::Heap);
    mapping.ino == 0 && mapping.dev == 0 && !named
}
