//! Checks of what C passes: pointers, lengths and texts.
//!
//! A check rejects a pointer that is NULL or misaligned, and a length that no object can have. It
//! cannot detect a pointer to an object of another type; the header forbids callers to pass one.

use core::ffi::{CStr, c_char, c_int};
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use vmarea::types::Errno;

/// Converts a result to what C receives: a value, or a negative errno.
pub fn status(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(|errno| -errno.number())
}

/// Converts a result to what a system call returns: a value, or a negative errno.
pub fn register(result: Result<u64, Errno>) -> i64 {
    // An address or a length is below 2^63.
    result.map_or_else(|errno| -i64::from(errno.number()), |value| value as i64)
}

/// Converts the status that a callback returned: 0, or a negative errno. Any other value becomes
/// EIO.
pub fn done(status: c_int) -> Result<(), Errno> {
    match status {
        0 => Ok(()),
        failed => Err(failed
            .checked_neg()
            .and_then(Errno::from_number)
            .unwrap_or(Errno::EIO)),
    }
}

/// Returns the object at `pointer`, or `None` for NULL.
///
/// # Errors
/// EFAULT if the pointer is misaligned.
///
/// # Safety
/// A pointer that is aligned and not NULL leads to a `T` that nothing changes during `'a`.
pub unsafe fn optional<'a, T>(pointer: *const T) -> Result<Option<&'a T>, Errno> {
    if !pointer.is_aligned() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the pointer is NULL or aligned; the caller promises the rest.
    Ok(unsafe { pointer.as_ref() })
}

/// Returns the object at `pointer`.
///
/// # Errors
/// EFAULT if the pointer is NULL or misaligned.
///
/// # Safety
/// As for [`optional`].
pub unsafe fn required<'a, T>(pointer: *const T) -> Result<&'a T, Errno> {
    // SAFETY: the caller makes the same promise.
    unsafe { optional(pointer) }?.ok_or(Errno::EFAULT)
}

/// A structure that begins with its size, so that a structure from another version is rejected.
///
/// # Safety
/// The first member is a `usize`.
pub unsafe trait WithSize {}

/// Returns the structure at `pointer`, or `None` for NULL.
///
/// # Errors
/// EFAULT if the pointer is misaligned; EINVAL if the structure says that it has another size.
///
/// # Safety
/// A pointer that is aligned and not NULL leads to as many bytes as the structure there says, and
/// nothing changes them during `'a`.
pub unsafe fn sized<'a, T: WithSize>(pointer: *const T) -> Result<Option<&'a T>, Errno> {
    if pointer.is_null() {
        return Ok(None);
    }
    if !pointer.is_aligned() {
        return Err(Errno::EFAULT);
    }
    // SAFETY: not NULL and aligned; the first member is a `usize`, which the caller promises.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size != size_of::<T>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the structure has the size of a `T`; the caller promises the rest.
    unsafe { optional(pointer) }
}

/// Returns the address to which a function that runs callbacks writes its result for C.
///
/// Returns no reference, because callbacks may use the memory until the result is written.
///
/// # Errors
/// EFAULT if the pointer is NULL or misaligned.
pub fn destination<T>(pointer: *mut T) -> Result<NonNull<T>, Errno> {
    NonNull::new(pointer)
        .filter(|pointer| pointer.is_aligned())
        .ok_or(Errno::EFAULT)
}

/// Returns the memory at `pointer`, to which a result for C is written.
///
/// # Errors
/// EFAULT if the pointer is NULL or misaligned.
///
/// # Safety
/// A pointer that is aligned and not NULL leads to memory for a `T` that nothing else uses during
/// `'a`.
pub unsafe fn place<'a, T>(pointer: *mut T) -> Result<&'a mut MaybeUninit<T>, Errno> {
    // SAFETY: the caller's promise, for one element.
    let slice = unsafe { places(pointer, 1) }?;
    slice.first_mut().ok_or(Errno::EFAULT)
}

/// Returns the memory at `pointer`, to which `count` results for C are written.
///
/// # Errors
/// EFAULT if the pointer is NULL or misaligned and the count is not 0, or if so many places cannot
/// exist in memory.
///
/// # Safety
/// As for [`place`], for `count` values of type `T`.
pub unsafe fn places<'a, T>(
    pointer: *mut T,
    count: usize,
) -> Result<&'a mut [MaybeUninit<T>], Errno> {
    if count == 0 {
        return Ok(&mut []);
    }
    let bytes = count.checked_mul(size_of::<T>()).ok_or(Errno::EFAULT)?;
    let fits = isize::try_from(bytes).is_ok() && pointer.addr().checked_add(bytes).is_some();
    if pointer.is_null() || !pointer.is_aligned() || !fits {
        return Err(Errno::EFAULT);
    }
    // SAFETY: not NULL, aligned, no longer than an object can be, and it does not wrap; the caller
    // promises that the memory is there and is not used otherwise. Uninitialized memory is a valid
    // `MaybeUninit`.
    Ok(unsafe { core::slice::from_raw_parts_mut(pointer.cast(), count) })
}

/// Returns the text at `pointer`, or `None` for NULL.
///
/// # Errors
/// EINVAL if the text is not UTF-8.
///
/// # Safety
/// A pointer that is not NULL leads to a text that ends with NUL and that nothing changes during
/// `'a`.
pub unsafe fn text<'a>(pointer: *const c_char) -> Result<Option<&'a str>, Errno> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL; the caller promises the rest.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| Errno::EINVAL)
}

/// Copies as much of `text` as fits into a C buffer, with a NUL at the end.
pub fn copy_text(text: &str, buffer: &mut [MaybeUninit<c_char>]) {
    let Some(room) = buffer.len().checked_sub(1) else {
        return;
    };
    let bytes = text.bytes().take(room).chain([0]);
    for (to, byte) in buffer.iter_mut().zip(bytes) {
        to.write(byte as c_char);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_that_cannot_lead_to_an_object_are_refused() {
        let number = 7u64;
        let misaligned = (&raw const number).wrapping_byte_add(1);
        // SAFETY: a pointer to a local, or one that is refused.
        unsafe {
            assert_eq!(required(&raw const number), Ok(&7));
            assert_eq!(required::<u64>(core::ptr::null()), Err(Errno::EFAULT));
            assert_eq!(optional::<u64>(core::ptr::null()), Ok(None));
            assert_eq!(optional(misaligned), Err(Errno::EFAULT));
            assert!(place(misaligned.cast_mut()).is_err());
            assert!(place::<u64>(core::ptr::null_mut()).is_err());
        }
    }

    #[test]
    fn only_the_size_of_a_structure_with_another_size_is_read() {
        #[derive(Debug, PartialEq)]
        #[repr(C)]
        struct Two(usize, usize);
        // SAFETY: the first member is a `usize`.
        unsafe impl WithSize for Two {}
        let (short, whole) = ([8usize], Two(16, 0));
        // SAFETY: pointers to locals, and NULL.
        unsafe {
            assert_eq!(sized((&raw const short).cast::<Two>()), Err(Errno::EINVAL));
            assert_eq!(sized(&raw const whole), Ok(Some(&whole)));
            assert_eq!(sized::<Two>(core::ptr::null()), Ok(None));
        }
    }

    #[test]
    fn lengths_that_no_object_has_are_refused() {
        let mut numbers = [0u64; 2];
        let pointer = numbers.as_mut_ptr();
        // SAFETY: two elements exist, and more are refused.
        unsafe {
            assert_eq!(places(pointer, 2).map(|p| p.len()), Ok(2));
            assert!(places(pointer, usize::MAX).is_err());
            assert!(places(pointer, usize::MAX / 8).is_err());
            let last = core::ptr::without_provenance_mut::<u64>(usize::MAX - 7);
            assert!(places(last, 2).is_err(), "it wraps");
            assert_eq!(
                places::<u64>(core::ptr::null_mut(), 0).map(|p| p.len()),
                Ok(0)
            );
        }
    }

    #[test]
    fn a_text_is_cut_to_its_buffer() {
        let copied = |room: usize| {
            let mut buffer = [MaybeUninit::new(b'x' as c_char); 8];
            copy_text("linux", &mut buffer[..room]);
            // SAFETY: every element was initialized above.
            buffer.map(|c| unsafe { c.assume_init() } as u8)
        };
        assert_eq!(&copied(8), b"linux\0xx");
        assert_eq!(&copied(4), b"lin\0xxxx");
        assert_eq!(&copied(0), b"xxxxxxxx");
    }

    #[test]
    fn a_callback_fails_with_an_errno_or_with_eio() {
        assert_eq!(done(0), Ok(()));
        assert_eq!(done(-12), Err(Errno::ENOMEM));
        assert_eq!(done(12), Err(Errno::EIO));
        assert_eq!(done(c_int::MIN), Err(Errno::EIO));
    }
}
