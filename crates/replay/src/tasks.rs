//! The address space of each thread, which is needed to transfer settings across `execve`.
//!
//! `PR_SET_MDWE`, `PR_SET_MEMORY_MERGE` and `PR_SET_THP_DISABLE` outlive the address space in which
//! they were set. The first two do not appear in any list of mappings.

use std::collections::HashMap;
use vmarea::mm::Layout;
use vmarea_trace::event::{MmId, Tid};

/// The threads of a trace.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    mms: HashMap<Tid, MmId>,
    /// Layouts of address spaces that ended while threads were using them, because of `execve`.
    ended: HashMap<MmId, Layout>,
}

impl Tasks {
    /// Records that a thread uses `mm`. Returns the layout of the thread's previous address space
    /// if the thread used a different one before.
    ///
    /// `living` returns the layout of an address space that still exists.
    pub(super) fn starts(
        &mut self,
        tid: Tid,
        mm: MmId,
        living: impl Fn(MmId) -> Layout,
    ) -> Option<Layout> {
        let old = self.mms.insert(tid, mm).filter(|old| *old != mm)?;
        let left = self.ended.get(&old).copied();
        self.forget_unused();
        Some(left.unwrap_or_else(|| living(old)))
    }

    /// Forgets a thread that has ended.
    pub(super) fn ends(&mut self, tid: Tid) {
        self.mms.remove(&tid);
        self.forget_unused();
    }

    /// Stores the layout of an address space that ends while threads are using it.
    pub(super) fn mm_ends(&mut self, mm: MmId, layout: Layout) {
        if self.mms.values().any(|&of| of == mm) {
            self.ended.insert(mm, layout);
        }
    }

    fn forget_unused(&mut self) {
        let mms = &self.mms;
        self.ended.retain(|mm, _| mms.values().any(|of| of == mm));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_takes_its_settings_along_although_its_address_space_has_ended() {
        let on = Layout {
            merge_any: true,
            ..Layout::default()
        };
        let mut tasks = Tasks::default();
        let none = |_| Layout::default();
        assert_eq!(tasks.starts(Tid(1), MmId(1), none), None);
        tasks.mm_ends(MmId(1), on);
        assert_eq!(tasks.starts(Tid(1), MmId(2), none), Some(on));
        assert!(tasks.ended.is_empty());
        // A vfork child leaves the address space of its parent, which continues.
        assert_eq!(tasks.starts(Tid(2), MmId(2), none), None);
        assert_eq!(tasks.starts(Tid(2), MmId(3), |_| on), Some(on));
        tasks.ends(Tid(2));
        tasks.mm_ends(MmId(3), on);
        assert!(tasks.ended.is_empty());
    }
}
