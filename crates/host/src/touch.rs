//! Page faults of our own threads, for measuring what the kernel does with them.

pub use crate::sys::touch::{Untouched, map_and_unmap};
