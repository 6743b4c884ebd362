//! The direct map, through which the kernel accesses physical memory.

/// Address at which the direct map starts; physical address 0 is mapped there.
const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;

/// Returns the direct-map address of a physical address below 4 GiB.
pub fn direct(physical: u64) -> u64 {
    debug_assert!(physical >> 32 == 0);
    DIRECT_MAP + physical
}

/// True if an address is in the direct map.
pub fn is_direct(addr: u64) -> bool {
    addr.wrapping_sub(DIRECT_MAP) >> 32 == 0
}

/// Returns a pointer to a physical address below 4 GiB.
pub fn pointer_to<T>(physical: u64) -> *mut T {
    direct(physical) as *mut T
}
