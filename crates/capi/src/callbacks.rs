//! Calls to the embedder's functions.

/// Calls a callback with the embedder's context, or returns `$other` if the callback is NULL.
macro_rules! call {
    ($of:expr, $callback:ident($($argument:expr),*), else $other:expr) => {
        match $of.$callback {
            // SAFETY: the embedder passed the function with its context to `vmarea_space_create`,
            // and the header says that both may be used until the space is destroyed, by any
            // thread.
            Some(callback) => unsafe { callback($of.context, $($argument),*) },
            None => $other,
        }
    };
}
pub(crate) use call;
