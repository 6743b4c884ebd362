//! Code that vmarea runs in a stopped process: two stubs, and the agent.
//!
//! A *stub* is executed by a thread of the program. It blocks all signals, does one thing, and
//! restores the thread's signal mask and registers by itself: setting the instruction pointer to
//! the stub is the only step that counts, so nothing remains to be done if the tracer is killed
//! afterwards. The *call stub* makes one system call, for example the `clone` that starts the agent.
//! The *park stub* waits until the agent has finished, so that no thread of the program runs while
//! pages are out, even if the tracer dies.
//!
//! The *agent* is a thread of its own, with all signals blocked. It executes a [`Header`] without
//! help from outside: a killed tracer leaves an agent that finishes its piece alone.
//!
//! # Picture
//! ```text
//! prepare   list of calls: own descriptor table, userfaultfds, the piece is registered
//! out       each part         ──DONTUNMAP──▶ temporary range      the emptied mapping stays, watched
//! join      list of calls: the piece is registered in another mode, and the kernel joins its mappings;
//!           or, if page offsets do not follow from addresses:
//!           each emptied part ──DONTUNMAP──▶ fresh range          offsets follow here, so the kernel
//!                                                                 joins the copies;
//!           list of calls: the fresh range is moved, which fails unless it is one mapping now,
//!           registered with a second userfaultfd, which follows a move, and moved over the piece
//!           (a second thread, the reader, reads the event)
//! back      each extent       ◀──MOVE or COPY── temporary range   refused: mremap of the rest, as it was
//! finish    list of calls: the watch ends, the temporary ranges are unmapped
//!           parked threads may go
//! ```
//!
//! # Linux
//! `mremap(2)`: `MREMAP_DONTUNMAP` (5.7); `close_range(2)`: `CLOSE_RANGE_UNSHARE` (5.9);
//! `mm/userfaultfd.c`. x86-64.

#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::slice;

use super::calls::{Call, ENTRY_BYTES};
use super::inject::Registers;

/// True if the agent exists for this architecture.
pub const IS_SUPPORTED: bool = cfg!(target_arch = "x86_64");

/// Maximum size of a stub with its data, in bytes.
pub const STUB_BYTES: u64 = 512;

/// Value of [`Header::go`] that lets the agent begin.
pub const GO: u32 = 1;
/// Descriptor of the userfaultfd that watches the piece, in the agent's own table.
pub const WATCH: i32 = 0;
/// Descriptor of the userfaultfd that watches the fresh range and continues to do so when that range
/// is moved.
pub const FOLLOW: i32 = 1;

/// Flags of the `clone` that starts the agent or its reader: a thread that shares all but the stack.
pub const CLONE_FLAGS: u64 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM) as u64;

/// A part of a piece that is moved out, or an extent of pages that is moved back.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Result of the call that was refused last, `-errno`; 0 if none was.
    pub error: i64,
    /// Number of bytes that were moved or copied back; less than `len` if the rest went back as it
    /// was.
    pub done: u64,
}

/// Size of an [`Extent`] in bytes, hard-coded in the agent's assembly code.
pub const EXTENT_BYTES: u64 = 32;

/// A piece as the agent executes it. Ranges of lists are addresses in the process.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// [`GO`] once all threads are parked.
    pub go: u32,
    /// Set by the agent when parked threads may go.
    pub free: u32,
    /// Set by the agent: 1 the piece is watched, 2 all pages are out, 3 pages return, 4 all are at their
    /// addresses, 5 the watch has ended.
    pub step: u32,
    unused: u32,
    /// Address of the parts.
    pub parts: u64,
    /// Number of parts; 0 to make the calls of `prepare` and `finish` only.
    pub count: u64,
    /// Start and end of the list of extents.
    pub extents: [u64; 2],
    /// Distance from a part to its place in the temporary range.
    pub to_temporary: u64,
    /// Distance from a part to its place in the fresh range; 0 if the piece is joined in place.
    pub to_fresh: u64,
    /// Start and end of a list of calls.
    pub prepare: [u64; 2],
    /// Start and end of a list of calls.
    pub join: [u64; 2],
    /// Start and end of a list of calls.
    pub finish: [u64; 2],
    ended_at: u64,
    /// Set by the agent: the call of `prepare` that ended the list early; 0 if none did.
    pub not_prepared: u64,
    /// End of the parts that are out; initially the start of the piece.
    pub out_end: u64,
    /// Set by the agent: why a part could not be moved out, `-errno`.
    pub out_error: i64,
    /// Set by the agent: why the emptied mappings were not joined, `-errno`.
    pub join_error: i64,
    /// Descriptor that watches the piece: [`WATCH`], or [`FOLLOW`] after the fresh range was moved over
    /// the piece.
    pub watch: u64,
    /// Flags of the `clone` that starts the reader.
    pub clone_flags: u64,
    /// Set by the agent: id of the reader, or `-errno`.
    pub reader: i64,
    reads: u64,
    unused_too: u64,
    /// Request that brings pages back: `UFFDIO_MOVE` or `UFFDIO_COPY`.
    pub request: u64,
    /// Mode of the request.
    pub mode: u64,
    /// 1 to make pages the process's own by a write fault if the kernel refuses to move them.
    pub makes_own: u64,
    moved: [u64; 5],
    woken: [u64; 2],
    /// Time for which the reader waits before it looks again, then the message that it has read.
    pub reader_waits: [u64; 4],
}

/// Size of a [`Header`] in bytes.
pub const HEADER_BYTES: u64 = size_of::<Header>() as u64;

impl Header {
    /// True if the emptied mappings are one mapping.
    pub fn is_joined(&self) -> bool {
        let is_moved = self.to_fresh == 0 || self.watch == FOLLOW as u64;
        is_moved && self.join_error == 0 && self.out_error == 0
    }
}

/// How a list continues after a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnFailure {
    /// With the next call.
    #[default]
    Continue,
    /// After this number of further calls.
    Skip(u32),
    /// Not at all.
    EndList,
}

const END_LIST: u32 = 0xffff;

impl Call {
    /// Returns the call with instructions for the agent: how many calls to skip if it succeeds, what
    /// to do if it fails, and how often to try it before it counts as failed.
    #[must_use]
    pub fn then(mut self, skip: u32, on_failure: OnFailure, tries: u32) -> Call {
        let failed = match on_failure {
            OnFailure::Continue => 0,
            OnFailure::Skip(calls) => calls,
            OnFailure::EndList => END_LIST,
        };
        self.for_agent = [u64::from(failed) << 32 | u64::from(skip), u64::from(tries)];
        self
    }

    /// Returns the call as one without which the rest of the list makes no sense.
    #[must_use]
    pub fn must(self) -> Call {
        self.then(0, OnFailure::EndList, 1)
    }
}

/// What a stub needs to know, stored directly after its code.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StubData {
    pc: u64,
    rax: u64,
    rcx: u64,
    r11: u64,
    rdi: u64,
    rsi: u64,
    rdx: u64,
    r10: u64,
    r8: u64,
    r9: u64,
    /// The arithmetic flags: overflow in the first byte, the others in the second.
    flags: u64,
    all_signals: u64,
    mask: u64,
    nr: i64,
    args: [u64; 6],
    child: u64,
    table: u64,
    /// Address of the selector of Syscall User Dispatch, or 0, and its value.
    selector: [u64; 2],
    free: u64,
    backwards: u64,
}

/// The state that a stub restores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restored {
    /// The thread's registers at its stop.
    pub registers: Registers,
    /// The thread's signal mask.
    pub mask: u64,
    /// Address and value of the byte that decides whether the thread's calls are dispatched to the
    /// program (Syscall User Dispatch).
    pub selector: Option<(u64, u8)>,
}

/// Returns the call stub: it makes call `nr`. In the child of a `clone`, it continues at `child`, if
/// that is not 0, with the address of the [`Header`] `table`.
pub fn call_stub(restored: &Restored, nr: i64, args: [u64; 6], child: u64, table: u64) -> Vec<u8> {
    let data = StubData {
        nr,
        args,
        child,
        table,
        ..StubData::of(restored)
    };
    stub(code::call_stub(), &data)
}

/// Returns the park stub: it waits until the word at `free` is not 0.
pub fn park_stub(restored: &Restored, free: u64) -> Vec<u8> {
    let data = StubData {
        free,
        ..StubData::of(restored)
    };
    stub(code::park_stub(), &data)
}

/// Returns the agent's machine code. It begins with the agent's first instruction.
pub fn agent() -> &'static [u8] {
    code::agent()
}

fn stub(code: &[u8], data: &StubData) -> Vec<u8> {
    let mut bytes = code.to_vec();
    bytes.extend_from_slice(words_of(data));
    assert!(bytes.len() as u64 <= STUB_BYTES, "a stub is too long");
    bytes
}

impl StubData {
    fn of(restored: &Restored) -> StubData {
        let r = restored.registers.as_resumed();
        let [pc, flags] = [r.pc(), r.flags()];
        let [rdi, rsi, rdx, r10, r8, r9] = r.arguments();
        let [rax, rcx, r11] = r.changed_by_calls();
        StubData {
            pc,
            rax,
            rcx,
            r11,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            flags: flags >> 11 & 1 | (flags & 0xff) << 8,
            all_signals: u64::MAX,
            mask: restored.mask,
            selector: restored
                .selector
                .map_or([0; 2], |(at, value)| [at, value.into()]),
            backwards: flags >> 10 & 1,
            ..StubData::default()
        }
    }
}

/// Types that consist of numbers only, without padding.
///
/// # Safety
/// Any bytes must be a valid value, and no byte may be padding.
unsafe trait Numbers: Copy {}

// SAFETY: numbers only, in this order without padding, as the test of the offsets shows.
unsafe impl Numbers for StubData {}
// SAFETY: as above.
unsafe impl Numbers for Header {}
// SAFETY: as above.
unsafe impl Numbers for Extent {}

fn words_of<T: Numbers>(value: &T) -> &[u8] {
    // SAFETY: the type consists of numbers without padding.
    unsafe { slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

impl Header {
    /// Returns the header as it is stored in the process.
    pub fn bytes(&self) -> &[u8] {
        words_of(self)
    }

    /// Returns the header as mutable bytes, so that it can be read from the process.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the type consists of numbers without padding; any bytes are a valid value.
        unsafe { slice::from_raw_parts_mut(std::ptr::from_mut(self).cast(), size_of::<Header>()) }
    }
}

/// Returns extents as bytes, so that they can be written to the process.
pub fn bytes_of(extents: &[Extent]) -> &[u8] {
    // SAFETY: the type consists of numbers without padding.
    unsafe { slice::from_raw_parts(extents.as_ptr().cast(), size_of_val(extents)) }
}

/// Returns extents as mutable bytes, so that they can be read from the process.
pub fn bytes_of_mut(extents: &mut [Extent]) -> &mut [u8] {
    // SAFETY: the type consists of numbers without padding; any bytes are a valid value.
    unsafe { slice::from_raw_parts_mut(extents.as_mut_ptr().cast(), size_of_val(extents)) }
}

const _: () = assert!(size_of::<Extent>() as u64 == EXTENT_BYTES && ENTRY_BYTES == 128);

#[cfg(target_arch = "x86_64")]
mod code {
    use std::slice;

    unsafe extern "C" {
        static vmarea_call_stub_begin: u8;
        static vmarea_call_stub_end: u8;
        static vmarea_park_stub_begin: u8;
        static vmarea_park_stub_end: u8;
        static vmarea_agent_begin: u8;
        static vmarea_agent_end: u8;
    }

    fn between(begin: *const u8, end: *const u8) -> &'static [u8] {
        // SAFETY: callers pass two labels of one section, in this order, with code between them.
        unsafe { slice::from_raw_parts(begin, end.offset_from(begin) as usize) }
    }

    pub(super) fn call_stub() -> &'static [u8] {
        between(
            &raw const vmarea_call_stub_begin,
            &raw const vmarea_call_stub_end,
        )
    }

    pub(super) fn park_stub() -> &'static [u8] {
        between(
            &raw const vmarea_park_stub_begin,
            &raw const vmarea_park_stub_end,
        )
    }

    pub(super) fn agent() -> &'static [u8] {
        between(&raw const vmarea_agent_begin, &raw const vmarea_agent_end)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod code {
    pub(super) fn call_stub() -> &'static [u8] {
        &[]
    }

    pub(super) fn park_stub() -> &'static [u8] {
        &[]
    }

    pub(super) fn agent() -> &'static [u8] {
        &[]
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
