//! The tests of the thesis "VMA merging in Linux" (3.1.1 to 3.1.6, 3.3.1 to 3.3.3), each with its
//! shared variant, under four policies; and the eight cases of its figure 2.16.
//!
//! What each policy should come to is written beside the test, in the order of [`POLICIES`]:
//! `linux` (6.18), `linux-5.10`, `thesis`, `vmarea`. A mapping is *shared* where a child of a fork
//! has its pages too and neither has written since.

mod cases;
mod merge;
mod moved_back;
mod other;
mod pages;
mod tracing;
#[path = "../world/mod.rs"]
mod world;

use vmarea::policy::Policy;
use vmarea::types::MmId;
use world::World;

/// In the order of the tables.
const POLICIES: [Policy; 4] = [
    Policy::LINUX,
    Policy::LINUX_5_10,
    Policy::THESIS,
    Policy::VMAREA,
];

/// `scene` under each policy must end with so many VMAs.
#[track_caller]
fn ends_with(vmas: [usize; 4], scene: impl Fn(&mut World, MmId)) {
    let found = POLICIES.map(|policy| {
        let (mut world, mm) = World::new(policy);
        scene(&mut world, mm);
        world.vmas(mm).len()
    });
    assert_eq!(
        found, vmas,
        "VMAs under linux, linux-5.10, thesis and vmarea"
    );
}
