//! The tests of the thesis "VMA merging in Linux", and the eight cases of its figure 2.16.
//!
//! The tests are those in sections 3.1.1 to 3.1.6 and 3.3.1 to 3.3.3. Each test and its shared
//! variant run under four policies.
//!
//! Each test states the expected number of VMAs under each policy, in the order of [`POLICIES`]:
//! `linux` (6.18), `linux-5.10`, `thesis`, `vmarea`. A mapping is called *shared* if a forked child
//! also maps its pages and neither process has written to them since the fork.

mod cases;
mod merge;
mod moved_back;
mod other;
mod pages;
mod sharing;
mod tracing;
#[path = "../world/mod.rs"]
mod world;

use vmarea::policy::Policy;
use vmarea::types::MmId;
use world::World;

/// The four policies, in the order in which the tests list expected results.
const POLICIES: [Policy; 4] = [
    Policy::LINUX,
    Policy::LINUX_5_10,
    Policy::THESIS,
    Policy::VMAREA,
];

/// Checks the number of VMAs that `scene` leaves under each policy.
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
