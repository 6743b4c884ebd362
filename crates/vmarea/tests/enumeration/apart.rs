//! Finds VMAs that should have merged after a call, without using the decision under test.

use crate::arrange::{Arrangement, Call};
use crate::build::Scene;
use crate::world::{PAGE, World, at};
use vmarea::page::Pte;
use vmarea::policy::rules::OneSided;
use vmarea::types::{MmId, VmRange};
use vmarea::vma::VmaView;

/// Checks both borders of the changed range, and returns the number of VMAs in the scene.
pub fn check(scene: &Scene, case: &Arrangement) -> Result<usize, String> {
    let (w, mm) = (&scene.w, scene.mm);
    let policy = w.machine.space().policy();
    let vmas = scene.vmas();
    // `brk` and an expanding `mremap` are allowed to check one neighbour only.
    if matches!(case.call, Call::Brk | Call::Expand) {
        return Ok(vmas.len());
    }
    let units = match case.call {
        Call::ProtectLower => [2, 3],
        Call::ProtectUpper => [3, 4],
        _ => [2, 4],
    };
    let [start, end] = units.map(|n| at(n * case.unit.pages()));
    let changed = VmRange::new(start, end);
    for pair in vmas.windows(2) {
        let (a, b) = (&pair[0], &pair[1]);
        let border = a.range.end;
        if border != b.range.start || border != changed.start && border != changed.end {
            continue;
        }
        if a.body != b.body {
            continue;
        }
        let must = if policy.merging.either_survives {
            shared(w, mm, a).min(shared(w, mm, b)) == 0
        } else if policy.rules.one_sided == OneSided::HolderSingular {
            a.offsets == b.offsets && linux_joins(a, b)
        } else {
            false
        };
        if must {
            let page = (border - at(0)) / PAGE;
            return Err(format!(
                "nothing keeps the two at page {page} apart\n{}",
                w.picture()
            ));
        }
    }
    Ok(vmas.len())
}

/// True if Linux 6.16 and later let VMAs with these anon_vmas merge.
///
/// The anon_vmas must be equal; or one VMA must have none, and the other VMA's chain must have a
/// single link.
fn linux_joins(a: &VmaView, b: &VmaView) -> bool {
    match (a.anon_vma, b.anon_vma) {
        (Some(x), Some(y)) => x == y,
        _ => a.chain_singular && b.chain_singular,
    }
}

/// Returns the number of the VMA's pages that another process also maps.
fn shared(w: &World, mm: MmId, vma: &VmaView) -> usize {
    let space = w.machine.space();
    let entries: Vec<Pte> = {
        let r = space.mmap_read_lock(mm).unwrap();
        let range = vma.range;
        (range.start..range.end)
            .step_by(PAGE as usize)
            .map(|addr| r.pages().get(addr))
            .collect()
    };
    let others = |entry: &&Pte| {
        let Pte::Anon { frame, .. } = **entry else {
            return false;
        };
        let mut mappings = 0;
        space.rmap_walk(frame, |_| mappings += 1);
        mappings > 1
    };
    entries.iter().filter(others).count()
}
