//! Creates an arrangement, and makes the call under test.
//!
//! Each mapping is faulted at the address that its page offset requires; with `off_line`, the
//! middle mapping is faulted at another address. Each mapping is then moved to a separate range for
//! the fork, and finally to its place in the arrangement. KSM merges pages only at that final
//! place, because a move would unmerge them.

use crate::arrange::{Arrangement, Call, Family, Pages, Unit};
use crate::world::{PAGE, RW, World, at};
use vmarea::policy::Policy;
use vmarea::syscall::madvise::Advice;
use vmarea::types::call_flags::{MbindFlags, MlockFlags, MremapFlags, Prot};
use vmarea::types::mempolicy::MpolMode;
use vmarea::types::prctl::PrctlOption;
use vmarea::types::{MmId, PMD_SIZE, VmFlags};
use vmarea::vma::VmaView;
use vmarea::{HugePages, System};

/// Index of the first unit of `prev`, `middle` and `next`, each two units long.
const PLACES: [u64; 3] = [0, 2, 4];
/// Index of the first unit of the ranges to which the mappings are moved for the fork.
const WAITING: [u64; 3] = [1000, 2000, 3000];
/// Index of the first unit of the twins: pages that KSM merges with pages of the mappings.
const EQUALS: u64 = 4000;
const NOTHING: MremapFlags = MremapFlags::empty();

/// A [`World`] in which an arrangement has been created.
pub struct Scene {
    pub w: World,
    /// The process that makes the call.
    pub mm: MmId,
    /// Number of pages in one unit.
    unit: u64,
}

impl Unit {
    /// Returns the number of pages in the unit.
    pub fn pages(self) -> u64 {
        match self {
            Unit::Small => 1,
            Unit::Huge => PMD_SIZE / PAGE,
        }
    }
}

/// Creates the whole arrangement, except for what the call itself creates.
pub fn build(policy: Policy, case: &Arrangement) -> Scene {
    let system = System {
        swap: true,
        huge_pages: match case.unit {
            Unit::Small => HugePages::Never,
            Unit::Huge => HugePages::Always,
        },
        ..System::default()
    };
    let (mut w, first) = World::of(policy, system);
    w.checks = false;
    let unit = case.unit.pages();
    let mut scene = Scene { w, mm: first, unit };
    let parts = case.parts();
    let has = |wanted: &[Pages]| parts.iter().flatten().any(|p| wanted.contains(p));
    if has(&[Pages::Ksm, Pages::KsmInherited]) {
        let option = PrctlOption::SET_MEMORY_MERGE;
        let space = scene.w.machine.space();
        space.prctl(first, option, [1, 0, 0, 0]).unwrap();
    }
    scene.before_the_fork(&parts, case);
    match case.family {
        Family::Alone => {}
        Family::HasChild => drop(scene.w.fork(first)),
        Family::HasParent => scene.mm = scene.w.fork(first),
        Family::ParentGone => {
            scene.mm = scene.w.fork(first);
            scene.w.exit(first);
        }
    }
    scene.after_the_fork(&parts, case);
    scene.come_together(case);
    scene
}

impl Scene {
    fn before_the_fork(&mut self, parts: &[Option<Pages>; 3], case: &Arrangement) {
        for (n, part) in parts.iter().enumerate() {
            match part {
                Some(Pages::Inherited | Pages::Rewritten | Pages::KsmInherited) => {
                    self.lone(n, case);
                }
                Some(Pages::SwappedInherited) => {
                    self.lone(n, case);
                    self.swap_out(WAITING[n], 2);
                }
                _ => {}
            }
        }
        self.pieces(parts, Pages::InheritedPiece);
    }

    fn after_the_fork(&mut self, parts: &[Option<Pages>; 3], case: &Arrangement) {
        for (n, part) in parts.iter().enumerate() {
            match part {
                Some(Pages::Rewritten) => self.write(WAITING[n], 2),
                Some(Pages::Own | Pages::Ksm) => self.lone(n, case),
                Some(Pages::Swapped) => {
                    self.lone(n, case);
                    self.swap_out(WAITING[n], 1);
                }
                Some(Pages::Unfaulted) => self.map(WAITING[n], 2),
                _ => {}
            }
        }
        self.pieces(parts, Pages::Piece);
    }

    /// Creates and faults a mapping with its own anon_vma; moves it to its range in [`WAITING`].
    fn lone(&mut self, n: usize, case: &Arrangement) {
        let (unit, mm) = (self.unit, self.mm);
        // One page further, so that the address is not aligned for a huge page.
        let off = n == 1 && case.off_line;
        let from = PLACES[n] * unit + if off { 5000 * unit + 1 } else { 0 };
        self.w.map(mm, from, 2 * unit, RW);
        self.write_pages(from, 2);
        self.w
            .shift(mm, from, 2 * unit, WAITING[n] * unit, NOTHING)
            .unwrap();
    }

    /// Creates and faults one large mapping, and moves parts of it to their ranges in [`WAITING`].
    fn pieces(&mut self, parts: &[Option<Pages>; 3], kind: Pages) {
        if !parts.contains(&Some(kind)) {
            return;
        }
        self.map(0, 6);
        for (n, part) in parts.iter().enumerate() {
            if *part == Some(kind) {
                self.write(PLACES[n], 2);
            }
        }
        for (n, part) in parts.iter().enumerate() {
            if *part == Some(kind) {
                self.shift(PLACES[n], WAITING[n], NOTHING);
            } else {
                let (unit, mm) = (self.unit, self.mm);
                self.w.unmap(mm, PLACES[n] * unit, 2 * unit);
            }
        }
    }

    fn come_together(&mut self, case: &Arrangement) {
        for (n, neighbour) in [(0, case.prev), (2, case.next)] {
            let Some(neighbour) = neighbour else { continue };
            if neighbour.equal {
                self.give(case.call, WAITING[n]);
            } else {
                self.protect(WAITING[n], 2, Prot::READ | Prot::EXEC);
            }
            self.shift(WAITING[n], PLACES[n], NOTHING);
        }
        let moves = matches!(case.call, Call::Move | Call::MoveAndKeep);
        if case.middle.is_some() && !moves {
            use Call::{ProtectLower, ProtectUpper, ProtectWhole};
            if matches!(case.call, ProtectWhole | ProtectLower | ProtectUpper) {
                self.protect(WAITING[1], 2, Prot::READ);
            }
            // The calls `Lock`, `Advise` and `Bind` set an attribute that is not set here.
            self.shift(WAITING[1], PLACES[1], NOTHING);
        }
        for (n, part) in case.parts().into_iter().enumerate() {
            if matches!(part, Some(Pages::Ksm | Pages::KsmInherited)) {
                let there = if n == 1 && moves {
                    WAITING[1]
                } else {
                    PLACES[n]
                };
                self.merge_equal(n as u64, there);
            }
        }
    }

    fn map(&mut self, at: u64, units: u64) {
        self.w.map(self.mm, at * self.unit, units * self.unit, RW);
    }

    fn shift(&mut self, from: u64, to: u64, flags: MremapFlags) {
        let unit = self.unit;
        self.w
            .shift(self.mm, from * unit, 2 * unit, to * unit, flags)
            .unwrap();
    }

    fn protect(&mut self, at: u64, units: u64, prot: Prot) {
        let unit = self.unit;
        self.w.protect(self.mm, at * unit, units * unit, prot);
    }

    fn write(&mut self, at: u64, units: u64) {
        self.write_pages(at * self.unit, units);
    }

    /// Writes to `units` units starting at page `at`: to each small page, or four pages per huge
    /// page.
    fn write_pages(&mut self, at: u64, units: u64) {
        for n in 0..units {
            let first = at + n * self.unit;
            self.w.write(self.mm, first, 1);
            if self.unit > 1 {
                self.w.write(self.mm, first + self.unit / 2, 2);
                self.w.write(self.mm, first + self.unit - 1, 1);
            }
        }
    }

    /// Swaps out the first page in each of `units` units.
    fn swap_out(&mut self, at_unit: u64, units: u64) {
        for n in 0..units {
            let addr = at((at_unit + n) * self.unit);
            self.w.machine.space().swap_out(self.mm, addr).unwrap();
        }
    }

    /// Creates a twin of the first page of a mapping, and lets KSM merge the two pages.
    fn merge_equal(&mut self, n: u64, there: u64) {
        let twin = EQUALS + 10 * n;
        self.map(twin, 1);
        self.w.write_equal(self.mm, twin, there);
        let space = self.w.machine.space();
        space
            .ksm_merge((self.mm, at(there)), (self.mm, at(twin)))
            .unwrap();
    }

    /// Gives a neighbour the attribute that the call will give to the middle mapping.
    fn give(&mut self, call: Call, at_unit: u64) {
        if matches!(call, Call::Advise | Call::Lock | Call::Bind) {
            self.attribute(call, at_unit);
        }
    }

    fn attribute(&mut self, call: Call, at_unit: u64) {
        let (mm, addr, len) = (self.mm, at(at_unit * self.unit), 2 * self.unit * PAGE);
        let space = self.w.machine.space();
        match call {
            Call::Advise => space.madvise(mm, addr, len, Advice::DontDump),
            // `ONFAULT` faults nothing in, so unfaulted memory remains unfaulted.
            Call::Lock => space.mlock(mm, addr, len, MlockFlags::ONFAULT),
            Call::Bind => space.mbind(mm, addr, len, (MpolMode::BIND, 1), MbindFlags::empty()),
            _ => Ok(()),
        }
        .unwrap();
    }

    /// Makes the call.
    pub fn call(&mut self, call: Call) {
        let (mm, unit) = (self.mm, self.unit);
        match call {
            Call::ProtectWhole => self.protect(2, 2, RW),
            Call::ProtectLower => self.protect(2, 1, RW),
            Call::ProtectUpper => self.protect(3, 1, RW),
            Call::Advise | Call::Lock | Call::Bind => self.attribute(call, 2),
            Call::Move => self.shift(WAITING[1], 2, NOTHING),
            Call::MoveAndKeep => self.shift(WAITING[1], 2, MremapFlags::DONTUNMAP),
            Call::Map => self.map(2, 2),
            Call::Expand => self.w.grow(mm, 0, 2 * unit, 4 * unit),
            Call::Brk => drop(self.w.machine.space().brk(mm, at(4 * unit)).unwrap()),
        }
    }

    /// Returns the VMAs that belong to the arrangement.
    pub fn vmas(&self) -> Vec<VmaView> {
        let mut vmas = self.w.vmas(self.mm);
        vmas.retain(|vma| vma.range.end <= at(EQUALS * self.unit));
        vmas
    }

    /// Writes to every writable VMA of the arrangement.
    pub fn write_all(&mut self) {
        for vma in self.vmas() {
            if vma.body.flags.contains(VmFlags::WRITE) {
                let first = (vma.range.start - at(0)) / PAGE;
                self.write_pages(first, vma.range.pages() / self.unit);
            }
        }
    }
}
