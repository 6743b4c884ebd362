//! Ids of objects stored in slots. Each id contains a generation, so that a stale id finds no
//! object.

use vmarea_sync::Key;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub(crate) Key);

        impl $name {
            /// Returns the id as one nonzero number.
            #[inline]
            pub fn to_bits(self) -> u64 {
                self.0.to_bits()
            }

            /// Returns the id from the number made by [`to_bits`](Self::to_bits); `None` for 0.
            #[inline]
            pub fn from_bits(bits: u64) -> Option<Self> {
                Key::from_bits(bits).map(Self)
            }
        }
    )*};
}

ids! {
    /// An address space.
    #[doc(alias = "mm_struct")]
    MmId,
    /// A virtual memory area.
    #[doc(alias = "vm_area_struct")]
    VmaId,
    /// An anon_vma: the reverse map of anonymous pages.
    #[doc(alias = "anon_vma")]
    AnonVmaId,
    /// A page frame that contains an anonymous page.
    #[doc(alias = "folio")]
    FrameId,
}

/// A slot of the swap device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[doc(alias = "swp_entry_t")]
pub struct SwapId(pub(crate) u32);

impl SwapId {
    /// Returns the slot number. Slot numbers are small and dense, and are reused.
    pub fn number(self) -> u32 {
        self.0
    }
}
