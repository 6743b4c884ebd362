//! Lists of mappings in files that people send: pasted text, a JVM's error file, a minidump.
//!
//! The format is detected from the content. Every format is reduced to the text of `maps` or
//! `smaps`, which [`crate::maps`] parses. A file that is cut off is used up to that point, and a
//! note says so. What else the file says about the failure is kept: the limit, and the error.

mod hs_err;
mod junk;
mod minidump;

use std::borrow::Cow;

/// Call that failed in the process, as its error file describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedCall {
    /// Name of the call, such as `mmap` or `pthread_create`.
    pub call: String,
    /// Error number, if the file states it.
    pub errno: Option<i32>,
    /// Soft limit `RLIMIT_AS` in bytes, if the file states it and the limit is finite.
    pub rlimit_as: Option<u64>,
    /// Limit and size of the machine's committed memory in KiB, if the file states both.
    pub committed_kib: Option<(u64, u64)>,
}

/// List of mappings found in a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pasted<'a> {
    /// Text of `maps` or `smaps`.
    pub text: Cow<'a, [u8]>,
    /// Limit on the number of mappings, if the file states it.
    pub limit: Option<u64>,
    /// Call that failed, if the file describes one.
    pub failed: Option<FailedCall>,
    /// What was left out, as complete sentences without a full stop.
    pub notes: Vec<String>,
}

/// Finds the list of mappings in a file.
///
/// # Errors
/// Fails with a description if the file is a minidump without a list of mappings.
pub fn find(file: &[u8]) -> Result<Pasted<'_>, String> {
    if file.starts_with(minidump::SIGNATURE) {
        return minidump::read(file);
    }
    if let Some(pasted) = hs_err::read(file) {
        return Ok(pasted);
    }
    Ok(junk::removed(file))
}
