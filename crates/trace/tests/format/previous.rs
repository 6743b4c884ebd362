//! A trace of the previous version of the format, written by the last vmarea that wrote this version:
//! a reader returns what that vmarea read.
//!
//! `version-1.txt` is what its `vmarea trace dump` printed. The two files are never changed; a change of
//! the format replaces them by files of the then previous version.

use crate::files::{file, read};
use vmarea_trace::Reader;
use vmarea_trace::dump::dump;

const TRACE: &[u8] = include_bytes!("../data/version-1.vmtrace");
const DUMP: &str = include_str!("../data/version-1.txt");

#[test]
fn a_trace_of_the_previous_version_is_read_as_it_was_then() {
    let mut text = Vec::new();
    dump(Reader::new(TRACE).unwrap(), &mut text).unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), DUMP);
}

#[test]
fn the_frozen_trace_is_one_version_older_and_can_be_written_in_the_current_one() {
    let header = Reader::new(TRACE).unwrap().header().clone();
    assert_eq!(header.started_unix_ms, None);
    let (events, error) = read(TRACE);
    assert!(error.is_none(), "{error:?}");
    let renewed = file(&header, &events, usize::MAX);
    assert_eq!(renewed[8], TRACE[8] + 1);
    let (back, error) = read(&renewed);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(back, events);
}
