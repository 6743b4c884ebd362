//! Damaged, truncated and foreign files: the reader returns every event before the damage, then one
//! error.

use crate::events::{headers, traces};
use crate::files::{file, read, walk};
use proptest::prelude::*;
use vmarea_trace::Error;
use vmarea_trace::event::Header;

proptest! {
    #[test]
    fn any_truncation_gives_a_prefix_and_an_error(
        header in headers(), events in traces(30), per_block in 1usize..20, place: prop::sample::Index,
    ) {
        let file = file(&header, &events, per_block);
        let cut = place.index(file.len());
        let (back, error) = read(&file[..cut]);
        prop_assert!(events.starts_with(&back));
        prop_assert!(back.len() < events.len());
        match error {
            Some(Error::CutOff { offset, .. }) => prop_assert_eq!(offset, cut as u64),
            Some(Error::NotATrace) => prop_assert!(cut < 8),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn any_changed_byte_gives_a_prefix_and_an_error(
        header in headers(), events in traces(30), per_block in 1usize..20,
        place: prop::sample::Index, change in 1u8..,
    ) {
        let mut file = file(&header, &events, per_block);
        let at = place.index(file.len());
        file[at] ^= change;
        let (back, error) = read(&file);
        prop_assert!(events.starts_with(&back));
        prop_assert!(back.len() < events.len());
        prop_assert!(error.is_some());
    }

    #[test]
    fn any_insertion_or_removal_is_noticed(
        header in headers(), events in traces(30), per_block in 1usize..20,
        place: prop::sample::Index, insert in prop::collection::vec(any::<u8>(), 0..60), remove in 0usize..60,
    ) {
        let original = file(&header, &events, per_block);
        let at = place.index(original.len() + 1);
        let mut file = original.clone();
        let end = (at + remove).min(file.len());
        file.splice(at..end, insert);
        let (back, error) = read(&file);
        prop_assert!(events.starts_with(&back));
        prop_assert_eq!(error.is_none(), file == original);
    }

    #[test]
    fn random_bytes_are_no_trace(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(matches!(read(&bytes), (_, Some(Error::NotATrace))));
    }
}

#[test]
fn blocks_that_change_places_are_noticed() {
    let events = walk(2);
    let header = Header::default();
    let file_of = |n| file(&header, &events[..n], 1);
    let (zero, one, two, three) = (file_of(0), file_of(1), file_of(2), file_of(3));
    let first = &one[zero.len()..];
    let second = &two[one.len()..];
    let third = &three[two.len()..];
    assert!(
        read(&[&zero[..], first, second, third].concat())
            .1
            .is_none()
    );
    for (order, block) in [
        ([second, first, third], 1),
        ([first, first, third], 2),
        ([first, third, &[]], 2),
    ] {
        let (back, error) = read(&[&zero, order.concat().as_slice()].concat());
        assert!(events.starts_with(&back));
        assert!(
            matches!(error, Some(Error::Damaged { block: b, .. }) if b == block),
            "{error:?}"
        );
    }
    let (back, error) = read(&[&three[..], third].concat());
    assert_eq!(back, events);
    assert!(
        matches!(error, Some(Error::Damaged { block: 4, .. })),
        "{error:?}"
    );
}

#[test]
fn the_message_names_block_and_byte() {
    let mut bytes = file(&Header::default(), &walk(9), 4);
    let first = file(&Header::default(), &walk(9)[..4], 4).len();
    bytes[first + 30] ^= 1;
    let (back, error) = read(&bytes);
    assert_eq!(back.len(), 4);
    assert_eq!(
        error.unwrap().to_string(),
        format!(
            "the trace is damaged in block 2 at byte {first} (its checksum does not fit): \
             only the events before it are usable"
        )
    );
}

#[test]
fn a_newer_version_is_told_before_anything_else_is_looked_at() {
    let mut bytes = file(&Header::default(), &walk(1), 1);
    bytes[8] = 9;
    let (_, error) = read(&bytes[..13]);
    assert_eq!(
        error.unwrap().to_string(),
        "the trace has format version 9, this program reads up to 2: use a newer vmarea"
    );
    bytes[8] = 0;
    assert_eq!(
        read(&bytes[..13]).1.unwrap().to_string(),
        "the trace has format version 0, this program reads 1 and 2: record it again, or read it with the vmarea \
         that wrote it"
    );
}
