//! Memory below the core: physical frames, the heap, hardware page tables, and pages of files.
//!
//! ```text
//! platform       services for the core: frames, bytes, pages of files
//! mmu            the hardware side of the core: entries, flushes
//! frame_numbers  the physical pages behind the core's numbers    tables      page tables
//! mapped         which files have mappings                       file_pages  contents of files
//! heap           the kernel's own objects                        swap        the swap device
//! frames         physical memory
//! ```

pub mod file_pages;
pub mod frame_numbers;
pub mod frames;
pub mod heap;
pub mod mapped;
pub mod mmu;
pub mod platform;
pub mod swap;
pub mod tables;
