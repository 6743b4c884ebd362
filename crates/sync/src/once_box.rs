//! Memory that is allocated when it is first needed.
//!
//! Large tables serve threads that share an object, but most objects are used by one thread or not
//! at all. Such a table is allocated by the first caller that needs it, and from then on stays where
//! it is until the object is borrowed mutably.

use crate::chunks::OutOfMemory;
use crate::primitive::{AtomicPtr, Ordering};
use alloc::alloc::{Layout, alloc, dealloc};
use core::marker::PhantomData;
use core::ptr::null_mut;

/// A value that is allocated on first use, and then stays until the cell is dropped.
///
/// ```
/// use vmarea_sync::OnceBox;
///
/// let mut cell = OnceBox::<[u64; 32]>::new();
/// assert!(cell.get().is_none());
/// assert_eq!(cell.get_or_make()?[7], 0);
/// assert!(cell.get_mut().is_some_and(|words| words.len() == 32));
/// // To give the memory back:
/// cell = OnceBox::new();
/// assert!(cell.get().is_none());
/// # Ok::<(), vmarea_sync::OutOfMemory>(())
/// ```
#[derive(Debug)]
pub struct OnceBox<T> {
    /// Null until the value is made.
    value: AtomicPtr<T>,
    owns: PhantomData<T>,
}

// SAFETY: threads share the value as `&T`; the thread that makes or drops it may be any.
unsafe impl<T: Send + Sync> Sync for OnceBox<T> {}

impl<T> Default for OnceBox<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceBox<T> {
    const LAYOUT: Layout = Layout::new::<T>();

    /// Creates an empty cell. Allocates nothing.
    pub fn new() -> Self {
        const { assert!(size_of::<T>() != 0, "nothing to allocate") };
        OnceBox {
            value: AtomicPtr::new(null_mut()),
            owns: PhantomData,
        }
    }

    /// Returns the value, if it has been made.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // ORDERING: Acquire, pairs with the Release in `make`.
        let value = self.value.load(Ordering::Acquire);
        // SAFETY: a pointer that is not null is from `make`, and the value lives as long as the
        // cell.
        unsafe { value.as_ref() }
    }

    /// Returns the value, if it has been made.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // ORDERING: Relaxed; the cell is borrowed mutably.
        let value = self.value.load(Ordering::Relaxed);
        // SAFETY: as in `get`; the cell is borrowed mutably, so no other reference exists.
        unsafe { value.as_mut() }
    }
}

impl<T: Default> OnceBox<T> {
    /// Returns the value; makes it if this is the first call.
    ///
    /// # Errors
    /// If the allocator has no memory for the value.
    #[inline]
    pub fn get_or_make(&self) -> Result<&T, OutOfMemory> {
        match self.get() {
            Some(value) => Ok(value),
            None => self.make(),
        }
    }

    #[cold]
    fn make(&self) -> Result<&T, OutOfMemory> {
        // SAFETY: the size is not zero, see `new`.
        let fresh: *mut T = unsafe { alloc(Self::LAYOUT) }.cast();
        if fresh.is_null() {
            return Err(OutOfMemory);
        }
        // SAFETY: the memory was just allocated with this layout.
        unsafe { fresh.write(T::default()) };
        // ORDERING: Release, pairs with the Acquire in `get`; Acquire, to see another's value.
        let first =
            self.value
                .compare_exchange(null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
        let value = match first {
            Ok(_) => fresh,
            Err(theirs) => {
                // SAFETY: no other thread knows this value.
                unsafe { free(fresh) };
                theirs
            }
        };
        // SAFETY: as in `get`.
        Ok(unsafe { &*value })
    }
}

/// Drops and frees a value.
///
/// # Safety
/// `OnceBox::make` allocated the value, and nothing refers to it.
unsafe fn free<T>(value: *mut T) {
    // SAFETY: the caller's promise.
    unsafe {
        value.drop_in_place();
        dealloc(value.cast(), OnceBox::<T>::LAYOUT);
    }
}

impl<T> Drop for OnceBox<T> {
    fn drop(&mut self) {
        let value = self.value.load(Ordering::Relaxed);
        if !value.is_null() {
            // SAFETY: the value is from `make`, and the cell is borrowed mutably.
            unsafe { free(value) };
        }
    }
}
