//! Ids of objects stored in slots. Each id except [`SwapId`] contains a generation, so that a
//! lookup with a stale id fails.

use vmarea_sync::Key;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub Key);

        impl $name {
            /// Returns the id as one nonzero number.
            #[inline]
            pub fn to_bits(self) -> u64 {
                self.0.to_bits()
            }

            /// Returns the index of the object's slot, for use as an array index. Slot indexes are
            /// dense from 0, and are reused after the object has been freed.
            #[inline]
            pub fn index(self) -> usize {
                self.0.index() as usize
            }

            /// Converts a number from [`to_bits`](Self::to_bits) back to the id; returns `None` for
            /// 0.
            #[inline]
            pub fn from_bits(bits: u64) -> Option<Self> {
                Key::from_bits(bits).map(Self)
            }
        }
    )*};
}

ids! {
    /// Id of an address space.
    #[doc(alias = "mm_struct")]
    MmId,
    /// Id of a virtual memory area (VMA).
    #[doc(alias = "vm_area_struct")]
    VmaId,
    /// Id of an anon_vma, the reverse map of anonymous pages.
    #[doc(alias = "anon_vma")]
    AnonVmaId,
    /// Id of a page frame that contains an anonymous page.
    #[doc(alias = "folio")]
    FrameId,
}

/// Id of a slot in the swap device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[doc(alias = "swp_entry_t")]
pub struct SwapId(pub u32);

impl SwapId {
    /// Returns the slot number. Slot numbers are small and dense, and are reused.
    pub fn number(self) -> u32 {
        self.0
    }
}
