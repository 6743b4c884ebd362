//! The C interface of `vmarea_repair::merge_range`: `libvmarea_repair_capi.so` and `vmarea_repair.h`.
//!
//! An allocator or runtime that links the library merges memory that it owns.

use std::cell::RefCell;
use std::ffi::CString;
use std::io::ErrorKind;
use std::os::raw::{c_char, c_int};
use std::time::Duration;

use vmarea_repair::{MadviseFlags, Options, RepairError};

/// C structure `struct vmarea_merge_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CMergeOptions {
    /// Maximum time for which a thread may be blocked, in microseconds; 0 for no limit.
    pub max_pause_us: u64,
    /// Maximum number of shared pages that may be copied.
    pub copy_pages: u64,
    /// Facts about the range, one per bit. Bit 0: `madvise` has never set a flag in the range.
    pub flags: u64,
}

/// C structure `struct vmarea_merge_report`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CMergeReport {
    /// Number of mappings in the range before the merge.
    pub before: u64,
    /// Number of mappings in the range after the merge.
    pub after: u64,
    /// Number of bytes of address space that were replaced.
    pub bytes: u64,
    /// Number of pages copied.
    pub copied: u64,
    /// Number of forks during the merge in which the child received the missing pages.
    pub forks: u64,
    /// Duration of the longest piece of the merge, in nanoseconds.
    pub longest_pause_ns: u64,
    /// Duration of the whole merge, in nanoseconds.
    pub total_ns: u64,
}

const PLAIN: u64 = 1;

/// Merges neighbouring mappings between `start` and `start + len` where their attributes permit it.
/// The caller owns the range: see [`vmarea_repair::merge_range`]. `options` and `report` may be
/// null. Returns 0 or a negative errno: `-EINVAL` if the range is empty or not made of whole pages,
/// or if a bit of the flags has no meaning, `-EPERM` if the caller is not permitted to use userfaultfd,
/// `-ENOSYS` before Linux 6.8, `-ETIME` if the maximum pause is too short, and otherwise the errno
/// of the system call that failed unexpectedly (`-EIO` if no errno is known). [`vmarea_last_error`]
/// returns the message.
///
/// # Safety
/// `options` and `report` are null or point to valid structures of their types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vmarea_merge_range(
    start: usize,
    len: usize,
    options: *const CMergeOptions,
    report: *mut CMergeReport,
) -> c_int {
    // SAFETY: the pointer is null or valid, as the caller guarantees.
    let wanted = unsafe { options.as_ref() }.copied().unwrap_or_default();
    if wanted.flags & !PLAIN != 0 {
        return failed(
            &format!("no such flags: {:#x}", wanted.flags & !PLAIN),
            EINVAL,
        );
    }
    let Some(end) = start.checked_add(len) else {
        return failed("the range exceeds the address space", EINVAL);
    };
    let options = Options {
        max_pause: (wanted.max_pause_us != 0).then(|| Duration::from_micros(wanted.max_pause_us)),
        copy_pages: wanted.copy_pages,
        madvise_flags: if wanted.flags & PLAIN != 0 {
            MadviseFlags::Unset
        } else {
            MadviseFlags::Read
        },
        ..Options::default()
    };
    match vmarea_repair::merge_range(start as u64..end as u64, options) {
        Ok(done) => {
            // SAFETY: the pointer is null or valid, as the caller guarantees.
            if let Some(report) = unsafe { report.as_mut() } {
                *report = CMergeReport {
                    before: done.before,
                    after: done.after,
                    bytes: done.bytes,
                    copied: done.copied,
                    forks: done.forks,
                    longest_pause_ns: done.longest_pause.as_nanos() as u64,
                    total_ns: done.total.as_nanos() as u64,
                };
            }
            0
        }
        Err(error) => failed(&error.to_string(), errno(&error)),
    }
}

/// Keeps the message of a failure; returns the negative errno.
fn failed(text: &str, errno: c_int) -> c_int {
    LAST_ERROR.replace(CString::new(text).unwrap_or_default());
    -errno
}

fn errno(error: &RepairError) -> c_int {
    match error {
        RepairError::BadRange(..) => EINVAL,
        RepairError::Userfaultfd => EPERM,
        RepairError::TooOld => ENOSYS,
        RepairError::PauseTooShort { .. } => ETIME,
        RepairError::Maps { cause, .. } | RepairError::System { cause, .. } => {
            match cause.kind() {
                // Without an errno if an allocation failed.
                ErrorKind::OutOfMemory => ENOMEM,
                _ => cause.raw_os_error().unwrap_or(EIO),
            }
        }
        _ => EIO,
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Returns the message of the last `vmarea_merge_range` call that failed in the calling thread.
///
/// The message is one line, terminated by a zero byte. It is valid until the next failure, and
/// empty if no call has failed.
#[unsafe(no_mangle)]
pub extern "C" fn vmarea_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}

const EPERM: c_int = 1;
const EIO: c_int = 5;
const ENOMEM: c_int = 12;
const EINVAL: c_int = 22;
const ENOSYS: c_int = 38;
const ETIME: c_int = 62;

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr;

    use super::*;

    #[test]
    fn a_lack_of_memory_has_its_number() {
        for cause in [
            ErrorKind::OutOfMemory.into(),
            std::io::Error::from_raw_os_error(ENOMEM),
        ] {
            assert_eq!(errno(&RepairError::Maps { pid: 1, cause }), ENOMEM);
        }
    }

    #[test]
    fn a_failure_has_a_number_and_words() {
        let unknown = CMergeOptions {
            flags: 2,
            ..CMergeOptions::default()
        };
        let failures = [
            ((1, 2), ptr::null(), "not made of whole pages"),
            ((usize::MAX, 2), ptr::null(), "exceeds the address space"),
            ((4096, 4096), &raw const unknown, "no such flags: 0x2"),
        ];
        for ((start, len), options, words) in failures {
            // SAFETY: the options are null or valid, and the report may be null.
            let answer = unsafe { vmarea_merge_range(start, len, options, ptr::null_mut()) };
            // SAFETY: this thread makes no other call in between.
            let text = unsafe { CStr::from_ptr(vmarea_last_error()) };
            assert_eq!(answer, -EINVAL);
            assert!(text.to_str().unwrap().contains(words), "{text:?}");
        }
    }
}
