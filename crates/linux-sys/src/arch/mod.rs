//! What differs between architectures, apart from the code that runs in another process.
//!
//! There is a file for each architecture, with the same names. A call that an architecture does not
//! have has a negative number, which no filter and no kernel reports.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
