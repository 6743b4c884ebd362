//! Replay of one recorded run under a single policy, for measuring what the policy costs.
//!
//! The replay makes no comparisons and runs no second policy, so an instruction counter sees only
//! the calls and faults under the single policy.

use std::collections::HashSet;
use std::io::Read;
use vmarea_replay::action::{Action, Files};
use vmarea_replay::import::import;
use vmarea_replay::world::World;
use vmarea_trace::event::{Event, Header, Origin};
use vmarea_trace::{Error, Reader};

/// Reads the first `limit` events of a trace.
///
/// # Errors
/// If the trace cannot be read.
pub fn read(trace: impl Read, limit: usize) -> Result<(Header, Vec<Event>), Error> {
    let mut reader = Reader::new(trace)?;
    let header = reader.header().clone();
    let events = (&mut reader).take(limit).collect::<Result<_, _>>()?;
    Ok((header, events))
}

/// Replays the recorded calls, faults and accesses, and the starts and ends of address spaces.
pub fn replay(world: &mut World, events: &[Event]) {
    let mut files = Files::default();
    let mut seen = HashSet::new();
    for event in events {
        match event {
            Event::Fault(fault) => {
                world.fault(fault);
            }
            Event::Touch(touch) => world.touch(touch),
            Event::Call(call) => {
                let action = files.action(call);
                if !matches!(action, Action::Opaque(_)) {
                    world.act(&action, call, true);
                }
            }
            Event::Snapshot(snapshot) if seen.insert(snapshot.mm) => {
                import(world, &mut files, snapshot);
            }
            Event::MmStart(start) => match start.origin {
                Origin::Exec | Origin::Attach => world.mm_empty(start.mm),
                Origin::Fork { parent } => {
                    if seen.contains(&parent) {
                        seen.insert(start.mm);
                    }
                    world.mm_fork(start.mm, parent);
                }
            },
            Event::MmEnd { mm, .. } => world.mm_end(*mm),
            Event::Inode(inode) => files.inode(inode),
            _ => {}
        }
    }
}
