//! The architecture: page size, size of the address space, and architecture-specific flag bits.
//!
//! Linux makes these choices at build time, and so does this crate: [`Native`] is x86-64 with pages
//! of 4 KiB unless one of the features `aarch64-4k`, `aarch64-16k` and `aarch64-64k` is enabled. A
//! type parameter would instead appear on every type with an address or a page offset. The chosen
//! architecture can differ from the architecture that the crate is compiled for.
//!
//! # Linux
//! `arch/{x86,arm64}/include/asm/{page,processor,pgtable}*.h`, `include/linux/mm.h`, 6.18.

/// Properties of an architecture that Linux fixes at build time.
pub trait Arch {
    /// Number of address bits within a page.
    const PAGE_SHIFT: u32;
    /// End of the user address space (`TASK_SIZE`) if page tables translate 48-bit addresses.
    const TASK_SIZE: u64;
    /// Number of bits in a protection key (`CONFIG_ARCH_PKEY_BITS`).
    const PKEY_BITS: u32;
    /// `VM_SHADOW_STACK`.
    const SHADOW_STACK: u64;
}

/// x86-64, with pages of 4 KiB.
#[derive(Debug)]
pub enum X86_64 {}

impl Arch for X86_64 {
    const PAGE_SHIFT: u32 = 12;
    const TASK_SIZE: u64 = (1 << 47) - (1 << Self::PAGE_SHIFT);
    const PKEY_BITS: u32 = 4;
    const SHADOW_STACK: u64 = 1 << 37;
}

/// AArch64, with pages of `1 << PAGE_SHIFT` bytes.
#[derive(Debug)]
pub enum Aarch64<const PAGE_SHIFT: u32> {}

impl<const PAGE_SHIFT: u32> Arch for Aarch64<PAGE_SHIFT> {
    const PAGE_SHIFT: u32 = PAGE_SHIFT;
    const TASK_SIZE: u64 = 1 << 48;
    const PKEY_BITS: u32 = 3;
    const SHADOW_STACK: u64 = 1 << 38;
}

#[cfg(any(
    all(feature = "aarch64-4k", feature = "aarch64-16k"),
    all(feature = "aarch64-4k", feature = "aarch64-64k"),
    all(feature = "aarch64-16k", feature = "aarch64-64k"),
))]
compile_error!("choose one page size: aarch64-4k, aarch64-16k or aarch64-64k");

#[cfg(feature = "aarch64-4k")]
type Chosen = Aarch64<12>;
#[cfg(feature = "aarch64-16k")]
type Chosen = Aarch64<14>;
#[cfg(feature = "aarch64-64k")]
type Chosen = Aarch64<16>;
#[cfg(not(any(
    feature = "aarch64-4k",
    feature = "aarch64-16k",
    feature = "aarch64-64k"
)))]
type Chosen = X86_64;

/// The architecture that the crate was built for.
pub type Native = Chosen;
