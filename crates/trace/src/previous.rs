//! The previous version of the format: what a reader needs to read its files.
//!
//! The next version of vmarea reads today's traces, and the one after it does not. Everything that
//! differs between the two versions is in this file; a change of the format replaces it, and with it
//! the frozen trace in `tests/format/previous.rs` (CONTRIBUTING.md).
//!
//! Version 1 differs from version 2 in the header, which did not say when the recording began.

use crate::event::{FaultSource, Header};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The version that a reader accepts besides the current one.
pub(crate) const VERSION: u32 = 1;

/// The header as version 1 wrote it.
#[derive(Deserialize)]
struct OldHeader {
    kernel_release: String,
    machine: String,
    page_size: u32,
    settings: BTreeMap<String, String>,
    command: Vec<String>,
    faults: FaultSource,
    kernel_view: bool,
    writer: String,
}

/// Decodes a header of the previous version.
pub(crate) fn header(bytes: &[u8]) -> postcard::Result<Header> {
    let old: OldHeader = postcard::from_bytes(bytes)?;
    Ok(Header {
        kernel_release: old.kernel_release,
        machine: old.machine,
        page_size: old.page_size,
        settings: old.settings,
        command: old.command,
        faults: old.faults,
        kernel_view: old.kernel_view,
        writer: old.writer,
        started_unix_ms: None,
    })
}
