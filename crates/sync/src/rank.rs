//! The order of locks, checked in debug builds.
//!
//! A thread may wait for a lock only if all that it holds have a lower rank. The check needs to know
//! the thread, so it is compiled in debug builds with the feature `std` (which tests switch on) and
//! costs nothing otherwise. Locks taken without waiting are written down and not checked: they
//! cannot close a circle.

/// A lock's place in the order. The numbers are the embedder's, but for that of VMAs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rank(pub u8);

impl Rank {
    /// Is not checked.
    pub const NONE: Rank = Rank(0);
    /// The locks of [`VmaCell`](crate::VmaCell)s: after `mmap_lock`, before those of the reverse map.
    pub const VMA: Rank = Rank(64);
}

/// Which of several VMAs that one thread reads; later ones have higher numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Subclass(pub u8);

impl Subclass {
    /// The first, or the only one.
    pub const NORMAL: Subclass = Subclass(0);
    /// One more, under the first.
    #[doc(alias = "SINGLE_DEPTH_NESTING")]
    pub const SINGLE_DEPTH: Subclass = Subclass(1);
}

#[cfg(all(debug_assertions, feature = "std", not(loom)))]
mod check {
    use super::{Rank, Subclass};
    use std::cell::RefCell;
    use std::vec::Vec;

    std::thread_local! {
        /// How often each is held: a VMA may be read very often.
        static HELD: RefCell<Vec<(Rank, Subclass, u64)>> = const { RefCell::new(Vec::new()) };
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

    /// Before waiting for a lock.
    #[track_caller]
    pub fn acquire(rank: Rank) {
        if rank != Rank::NONE {
            let highest = HELD.with_borrow(|held| held.iter().copied().max());
            if let Some((highest, ..)) = highest.filter(|&(h, ..)| h >= rank) {
                panic!(
                    "lock of rank {} taken under one of rank {}",
                    rank.0, highest.0
                );
            }
        }
        acquired(rank);
    }

    /// Before waiting for one more lock of a rank; the caller has an order among those.
    #[track_caller]
    pub fn acquire_more(rank: Rank) {
        let above = HELD.with_borrow(|held| held.iter().copied().find(|&(h, ..)| h > rank));
        if let Some((above, ..)) = above.filter(|_| rank != Rank::NONE) {
            panic!(
                "lock of rank {} taken under one of rank {}",
                rank.0, above.0
            );
        }
        acquired(rank);
    }

    /// After a lock was had without waiting.
    pub fn acquired(rank: Rank) {
        if rank != Rank::NONE {
            push(rank, Subclass::NORMAL);
        }
    }

    /// After a lock was had without waiting, one of several of its rank. That it is the next one is
    /// asked of all but the first subclass, which a thread may have got by trying.
    #[track_caller]
    pub fn nested(rank: Rank, subclass: Subclass) {
        HELD.with_borrow(|held| {
            let out_of_order = held.iter().any(|&(h, s, _)| h == rank && s > subclass);
            assert!(
                !out_of_order,
                "VMA of subclass {} read under a later one",
                subclass.0
            );
        });
        push(rank, subclass);
    }

    pub fn release(rank: Rank) {
        if rank != Rank::NONE {
            // A guard may go while the thread ends, when the list is gone already.
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
