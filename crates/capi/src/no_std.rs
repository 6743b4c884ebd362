//! What the embedder provides without std: memory allocation and the handling of a panic.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_char, c_void};
use core::fmt::Write;
use core::panic::PanicInfo;

// The header declares these by hand, because they are not part of the library.
#[expect(unused_doc_comments, reason = "cbindgen reads it")]
/// cbindgen:ignore
unsafe extern "C" {
    fn vmarea_alloc(size: usize, align: usize) -> *mut c_void;
    fn vmarea_dealloc(memory: *mut c_void, size: usize, align: usize);
    fn vmarea_panic(message: *const c_char, length: usize);
}

struct Embedder;

// SAFETY: the header demands of `vmarea_alloc` and `vmarea_dealloc` what `GlobalAlloc` demands.
unsafe impl GlobalAlloc for Embedder {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the embedder defines the function, for any size and alignment.
        unsafe { vmarea_alloc(layout.size(), layout.align()).cast() }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller passes what `alloc` returned, with the same layout.
        unsafe { vmarea_dealloc(memory.cast(), layout.size(), layout.align()) }
    }
}

#[global_allocator]
static ALLOCATOR: Embedder = Embedder;

/// A message of limited length, because there may be no memory for a longer one.
struct Message {
    bytes: [u8; 256],
    length: usize,
}

impl Write for Message {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for (to, byte) in self.bytes[self.length..].iter_mut().zip(text.bytes()) {
            *to = byte;
            self.length += 1;
        }
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let mut message = Message {
        bytes: [0; 256],
        length: 0,
    };
    // A message that is too long is cut, which is no error.
    let _ = write!(message, "{info}");
    // SAFETY: the message has so many bytes.
    unsafe { vmarea_panic(message.bytes.as_ptr().cast(), message.length) };
    loop {
        core::hint::spin_loop();
    }
}
