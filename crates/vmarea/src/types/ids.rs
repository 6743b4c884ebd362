//! Names of things in slots: each carries a generation, so that a stale one finds nothing.

use vmarea_sync::Key;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub(crate) Key);

        impl $name {
            /// As one nonzero number.
            #[inline]
            pub fn to_bits(self) -> u64 {
                self.0.to_bits()
            }

            /// The id that [`to_bits`](Self::to_bits) made; `None` for 0.
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
    /// An anonymous object: the reverse map of anonymous pages.
    #[doc(alias = "anon_vma")]
    AnonVmaId,
    /// A page frame with an anonymous page in it.
    #[doc(alias = "folio")]
    FrameId,
}

/// A place on the swap device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[doc(alias = "swp_entry_t")]
pub struct SwapId(pub(crate) u32);

impl SwapId {
    /// Its number: small, dense, reused.
    pub fn number(self) -> u32 {
        self.0
    }
}
