//! Address spaces: the core's `Space`, and what the kernel does with it for a thread.
//!
//! ```text
//! user      copies between the kernel and programs, checked by faults
//! mm        one address space of the core, and what a fault means for a thread
//! file      a file that a call is about to map            background  compaction and KSM
//! shortage  ends a process if neither reclaim nor the shrinker helps
//! reclaim   swaps out unused pages when frames are short
//! shrinker  gives back memory that the core keeps for later
//! ```

pub mod background;
pub mod file;
pub mod mm;
pub mod reclaim;
pub mod shortage;
pub mod shrinker;
pub mod user;

pub use mm::Mm;

use crate::cpu::stop::Shared;
use crate::memory::platform::{Machine, Memory};
use crate::memory::{frame_numbers, frames, mapped, swap};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use spin::{Mutex, Once};
use vmarea::policy::Policy;
use vmarea::types::MmId;
use vmarea::{HugePages, Overcommit, Space, System};

static SPACE: Once<Shared<Space<Machine>>> = Once::new();

/// Ids of all address spaces.
static ALL: Mutex<BTreeSet<MmId>> = Mutex::new(BTreeSet::new());

/// First address above user memory.
pub const TASK_SIZE: u64 = 0x7fff_ffff_f000;

/// Creates the core's `Space`; must be called only once.
pub fn start(policy: Policy) {
    frame_numbers::start();
    let system = System {
        task_size: TASK_SIZE,
        huge_pages: HugePages::Never,
        overcommit: Overcommit::Guess((frames::total_frames() + swap::slots()) as u64),
        swap: swap::slots() != 0,
        swap_slots: swap::slots() as u32,
        ..System::default()
    };
    SPACE.call_once(|| Shared::new(Space::in_environment(policy, system, Memory)));
    mapped::set_is_used(|inode| space().file_is_used(inode));
}

fn shared() -> &'static Shared<Space<Machine>> {
    SPACE.get().expect("the core has started")
}

/// Returns the core's `Space`. The caller must not call the scheduler while it uses the reference.
pub fn space() -> &'static Space<Machine> {
    shared().get()
}

/// Returns the ids of all address spaces.
pub fn all() -> Vec<MmId> {
    ALL.lock().iter().copied().collect()
}
