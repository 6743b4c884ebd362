//! What a guard tells the observer of changes ([`changes`](crate::changes)).

use super::MmapGuard;
use crate::changes::Change;
use crate::types::platform::Environment;
use crate::types::writers::WriteToken;
use crate::types::{PageOffsets, VmFlags, VmRange};
use crate::vma::VmaBody;
use vmarea_sync::Callback;

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Tells the observer of a change.
    #[inline]
    pub(crate) fn changed(&self, change: impl FnOnce() -> Change) {
        if let Some(observer) = &self.space.change_observer {
            let _inside = Callback::enter("changed");
            observer.changed(self.id, change());
        }
    }

    /// Tells the observer that a range is mapped, unless it is empty.
    #[inline]
    pub(crate) fn mapped(&self, range: VmRange, offsets: PageOffsets, body: &VmaBody) {
        if !range.is_empty() {
            self.changed(|| Change::Mapped {
                range,
                flags: body.flags,
                file: (body.file).map(|file| (file.inode, offsets.pgoff_at(range.start))),
            });
        }
    }

    /// Tells the observer that a range has another protection, if it has.
    #[inline]
    pub(crate) fn protected(&self, range: VmRange, (old, new): (VmFlags, VmFlags)) {
        let differ = || (old ^ new).intersects(VmFlags::ACCESS | VmFlags::PKEY);
        if self.space.change_observer.is_some() && differ() {
            self.changed(|| Change::Protected { range, flags: new });
        }
    }
}
