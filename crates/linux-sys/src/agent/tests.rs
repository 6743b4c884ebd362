//! Checks that the assembly code and the structures agree.

use std::mem::offset_of;

use super::*;

#[test]
fn the_agent_finds_what_it_looks_for() {
    let offsets = [
        (offset_of!(Header, free), 4),
        (offset_of!(Header, step), 8),
        (offset_of!(Header, parts), 0x10),
        (offset_of!(Header, count), 0x18),
        (offset_of!(Header, extents), 0x20),
        (offset_of!(Header, to_temporary), 0x30),
        (offset_of!(Header, to_fresh), 0x38),
        (offset_of!(Header, prepare), 0x40),
        (offset_of!(Header, join), 0x50),
        (offset_of!(Header, finish), 0x60),
        (offset_of!(Header, ended_at), 0x70),
        (offset_of!(Header, not_prepared), 0x78),
        (offset_of!(Header, out_end), 0x80),
        (offset_of!(Header, out_error), 0x88),
        (offset_of!(Header, join_error), 0x90),
        (offset_of!(Header, watch), 0x98),
        (offset_of!(Header, clone_flags), 0xa0),
        (offset_of!(Header, reader), 0xa8),
        (offset_of!(Header, reads), 0xb0),
        (offset_of!(Header, request), 0xc0),
        (offset_of!(Header, mode), 0xc8),
        (offset_of!(Header, makes_own), 0xd0),
        (offset_of!(Header, moved), 0xd8),
        (offset_of!(Header, woken), 0x100),
        (offset_of!(Header, reader_waits), 0x110),
        (size_of::<Header>(), 0x130),
        (offset_of!(Extent, error), 16),
        (offset_of!(Extent, done), 24),
    ];
    assert!(
        offsets.iter().all(|(is, wanted)| is == wanted),
        "{offsets:?}"
    );
}

#[test]
fn the_stubs_find_what_they_look_for() {
    let offsets = [
        (offset_of!(StubData, rcx), 16),
        (offset_of!(StubData, rdi), 32),
        (offset_of!(StubData, r9), 72),
        (offset_of!(StubData, flags), 80),
        (offset_of!(StubData, all_signals), 88),
        (offset_of!(StubData, mask), 96),
        (offset_of!(StubData, nr), 104),
        (offset_of!(StubData, args), 112),
        (offset_of!(StubData, child), 160),
        (offset_of!(StubData, table), 168),
        (offset_of!(StubData, selector), 176),
        (offset_of!(StubData, free), 192),
        (offset_of!(StubData, backwards), 200),
        (size_of::<StubData>(), 208),
    ];
    assert!(
        offsets.iter().all(|(is, wanted)| is == wanted),
        "{offsets:?}"
    );
    let longest = code::call_stub().len().max(code::park_stub().len());
    assert!(
        (longest + size_of::<StubData>()) as u64 <= STUB_BYTES,
        "{longest}"
    );
}

#[test]
fn instructions_for_the_agent_stand_where_it_reads_them() {
    let call = Call::plain(0, 1, &[]).then(3, OnFailure::Skip(2), 7);
    let entry = crate::inject::bytes_of(std::slice::from_ref(&call));
    let word = |at: usize| u32::from_ne_bytes(entry[at..at + 4].try_into().unwrap());
    assert_eq!([word(112), word(116), word(120)], [3, 2, 7]);
}
