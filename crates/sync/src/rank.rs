//! Lock order, checked in debug builds.
//!
//! A thread may wait for a lock only if all locks that it holds have a lower rank. The check needs
//! thread-local storage, so it is compiled only in debug builds with the feature `std` (which tests
//! enable) and costs nothing otherwise. A lock taken without waiting is recorded but not checked,
//! because it cannot complete a deadlock cycle.

use core::marker::PhantomData;

/// Position of a lock in the lock order. The embedder chooses all ranks except that of VMAs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rank(pub u8);

impl Rank {
    /// Rank of a lock whose order is not checked.
    pub const NONE: Rank = Rank(0);
    /// Rank of [`VmaCell`](crate::VmaCell)s: after `mmap_lock`, before the reverse map's locks.
    pub const VMA: Rank = Rank(64);
}

/// Lock order among several VMAs that one thread locks for reading; later locks have higher
/// subclasses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Subclass(pub u8);

impl Subclass {
    /// Subclass of the first or only VMA that the thread locks.
    pub const NORMAL: Subclass = Subclass(0);
    /// Subclass of a second VMA that the thread locks while it holds the first.
    #[doc(alias = "SINGLE_DEPTH_NESTING")]
    pub const SINGLE_DEPTH: Subclass = Subclass(1);
}

/// A call of code that must not take a ranked lock, for as long as this value lives.
///
/// Such a call could wait for a lock that its caller holds. Where the order is checked, it panics
/// instead.
///
/// ```
/// use vmarea_sync::Callback;
///
/// let notify = || 42;
/// let inside = Callback::enter("notify");
/// assert_eq!(notify(), 42);
/// drop(inside);
/// ```
#[derive(Debug)]
#[must_use = "the call ends when this value is dropped"]
pub struct Callback {
    /// The call that goes on when this one ends.
    outer: Option<&'static str>,
    /// The call is one of this thread.
    thread: PhantomData<*const ()>,
}

impl Callback {
    /// Begins the call of the function `name`, on this thread.
    #[inline(always)]
    pub fn enter(name: &'static str) -> Callback {
        Callback {
            outer: check::set_callback(Some(name)),
            thread: PhantomData,
        }
    }
}

impl Drop for Callback {
    #[inline(always)]
    fn drop(&mut self) {
        check::set_callback(self.outer);
    }
}

#[cfg(all(debug_assertions, feature = "std", not(loom)))]
mod check {
    use super::{Rank, Subclass};
    use std::cell::{Cell, RefCell};
    use std::vec::Vec;

    std::thread_local! {
        /// Ranks and subclasses of the locks that this thread holds, with the number of locks of
        /// each.
        static HELD: RefCell<Vec<(Rank, Subclass, u64)>> = const { RefCell::new(Vec::new()) };
        /// The function of the innermost [`Callback`](super::Callback).
        static CALLBACK: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    pub fn set_callback(name: Option<&'static str>) -> Option<&'static str> {
        CALLBACK.replace(name)
    }

    /// Panics if the lock is taken in a callback; not while another panic unwinds.
    #[track_caller]
    fn check_callback() {
        if let Some(name) = CALLBACK.get()
            && !std::thread::panicking()
        {
            panic!("`{name}`, which the core calls, must not call the core");
        }
    }

    fn push(rank: Rank, subclass: Subclass) {
        HELD.with_borrow_mut(|held| {
            match held
                .iter_mut()
                .find(|(h, s, _)| (*h, *s) == (rank, subclass))
            {
                Some((_, _, times)) => *times += 1,
                None => held.push((rank, subclass, 1)),
            }
        });
    }

    /// Checks the order and records the lock. Called before waiting for the lock.
    #[track_caller]
    pub fn acquire(rank: Rank) {
        if rank != Rank::NONE {
            check_callback();
            let highest = HELD.with_borrow(|held| held.iter().copied().max());
            if let Some((highest, ..)) = highest.filter(|&(h, ..)| h >= rank) {
                panic!(
                    "lock of rank {} taken while holding one of rank {}",
                    rank.0, highest.0
                );
            }
        }
        acquired(rank);
    }

    /// Like [`acquire`], for another lock of the same rank; callers take such locks in a fixed
    /// order.
    #[track_caller]
    pub fn acquire_more(rank: Rank) {
        if rank != Rank::NONE {
            check_callback();
        }
        let above = HELD.with_borrow(|held| held.iter().copied().find(|&(h, ..)| h > rank));
        if let Some((above, ..)) = above.filter(|_| rank != Rank::NONE) {
            panic!(
                "lock of rank {} taken while holding one of rank {}",
                rank.0, above.0
            );
        }
        acquired(rank);
    }

    /// Records a lock that was taken without waiting.
    pub fn acquired(rank: Rank) {
        if rank != Rank::NONE {
            push(rank, Subclass::NORMAL);
        }
    }

    /// Records a VMA lock that was taken without waiting, and checks its subclass.
    ///
    /// Panics if the thread holds a VMA lock with a higher subclass. Equal subclasses are allowed,
    /// since `start_read` never waits.
    #[track_caller]
    pub fn nested(rank: Rank, subclass: Subclass) {
        check_callback();
        HELD.with_borrow(|held| {
            let out_of_order = held.iter().any(|&(h, s, _)| h == rank && s > subclass);
            assert!(
                !out_of_order,
                "VMA of subclass {} locked after one of a higher subclass",
                subclass.0
            );
        });
        push(rank, subclass);
    }

    pub fn release(rank: Rank) {
        if rank != Rank::NONE {
            // A guard may be dropped while the thread ends, after the list has been destroyed.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                let Some(at) = held.iter().rposition(|&(h, ..)| h == rank) else {
                    return;
                };
                held[at].2 -= 1;
                if held[at].2 == 0 {
                    held.remove(at);
                }
            });
        }
    }
}

#[cfg(not(all(debug_assertions, feature = "std", not(loom))))]
mod check {
    use super::{Rank, Subclass};

    #[inline(always)]
    pub fn set_callback(_name: Option<&'static str>) -> Option<&'static str> {
        None
    }
    #[inline(always)]
    pub fn acquire(_rank: Rank) {}
    #[inline(always)]
    pub fn acquire_more(_rank: Rank) {}
    #[inline(always)]
    pub fn acquired(_rank: Rank) {}
    #[inline(always)]
    pub fn nested(_rank: Rank, _subclass: Subclass) {}
    #[inline(always)]
    pub fn release(_rank: Rank) {}
}

pub(crate) use check::{acquire, acquire_more, acquired, nested, release};
