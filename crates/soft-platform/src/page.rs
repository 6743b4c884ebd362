//! The bytes of a page.

use alloc::boxed::Box;
use vmarea::types::PAGE_SIZE;

/// The bytes of one page.
pub(crate) type Page = [u8; PAGE_SIZE as usize];

/// Returns a page filled with zeros.
pub(crate) fn zeros() -> Box<Page> {
    Box::new([0; PAGE_SIZE as usize])
}
