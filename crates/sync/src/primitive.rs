//! Atomics and the spin hint, from `core` or from loom.
//!
//! With `--cfg loom`, the locks of this crate and the range tree run in loom's model checker, which
//! tries all interleavings. Only this module chooses between `core` and loom.

pub use core::sync::atomic::Ordering;

#[cfg(not(loom))]
pub use core::hint::spin_loop;
#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence};

#[cfg(loom)]
pub use modelled::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence, spin_loop};

/// Loom's atomics, each with a marker to which every access writes.
///
/// Loom 0.7.2 stores only the last access of an atomic. If a thread loads and then stores, loom
/// misses another thread's load in between, and the model ends after one run (loom issues 166 and
/// 392). The marker is a relaxed read-modify-write without effect. It makes all accesses depend on
/// each other, so loom explores more runs and misses none.
#[cfg(loom)]
mod modelled {
    use super::Ordering;
    use loom::sync::atomic as model;
    pub use loom::sync::atomic::fence;

    /// Lets another thread of the model run.
    pub fn spin_loop() {
        loom::thread::yield_now();
    }

    macro_rules! atomic {
        ($name:ident $(<$t:ident>)?, $value:ty) => {
            /// A loom atomic with its marker.
            #[derive(Debug)]
            pub struct $name $(<$t>)? {
                value: model::$name $(<$t>)?,
                mark: model::AtomicUsize,
            }

            #[allow(missing_docs)]
            impl $(<$t>)? $name $(<$t>)? {
                pub fn new(value: $value) -> Self {
                    $name { value: model::$name::new(value), mark: model::AtomicUsize::new(0) }
                }
                fn marked(&self) -> &model::$name $(<$t>)? {
                    self.mark.fetch_or(0, Ordering::Relaxed);
                    &self.value
                }
                pub fn load(&self, order: Ordering) -> $value {
                    self.marked().load(order)
                }
                pub fn store(&self, value: $value, order: Ordering) {
                    self.marked().store(value, order);
                }
                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    self.marked().swap(value, order)
                }
                pub fn compare_exchange(
                    &self,
                    from: $value,
                    to: $value,
                    done: Ordering,
                    failed: Ordering,
                ) -> Result<$value, $value> {
                    self.marked().compare_exchange(from, to, done, failed)
                }
                pub fn compare_exchange_weak(
                    &self,
                    from: $value,
                    to: $value,
                    done: Ordering,
                    failed: Ordering,
                ) -> Result<$value, $value> {
                    self.marked().compare_exchange(from, to, done, failed)
                }
            }
        };
    }

    macro_rules! arithmetic {
        ($name:ident, $value:ty) => {
            atomic!($name, $value);
            #[allow(missing_docs)]
            impl $name {
                pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                    self.marked().fetch_add(value, order)
                }
                pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                    self.marked().fetch_sub(value, order)
                }
                pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                    self.marked().fetch_or(value, order)
                }
                pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                    self.marked().fetch_and(value, order)
                }
            }
        };
    }

    macro_rules! zero {
        ($($name:ident)*) => {$(
            impl Default for $name {
                fn default() -> Self {
                    $name::new(Default::default())
                }
            }
        )*};
    }

    zero!(AtomicBool AtomicU32 AtomicU64 AtomicUsize);
    atomic!(AtomicBool, bool);
    atomic!(AtomicPtr<T>, *mut T);
    arithmetic!(AtomicU32, u32);
    arithmetic!(AtomicU64, u64);
    arithmetic!(AtomicUsize, usize);
}

/// Defines a function that is `const`, except under loom.
#[macro_export]
#[doc(hidden)]
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty $body:block) => {
        #[cfg(not(loom))]
        $(#[$meta])* $vis const fn $name($($arg: $ty),*) -> $ret $body
        #[cfg(loom)]
        $(#[$meta])* $vis fn $name($($arg: $ty),*) -> $ret $body
    };
}
