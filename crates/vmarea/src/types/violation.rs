//! The result of a failed invariant check.

use alloc::string::String;

/// Description of an invariant that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation(pub String);

/// Returns a [`Violation`] from the enclosing function unless the condition holds.
macro_rules! ensure {
    ($cond:expr, $($arg:tt)*) => {
        if !$cond {
            return Err($crate::types::Violation(alloc::format!($($arg)*)));
        }
    };
}
pub(crate) use ensure;
