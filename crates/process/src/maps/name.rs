//! The last column of `/proc/PID/maps`.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use vmarea_trace::event::SnapKind;

const DELETED: &[u8] = b" (deleted)";

/// Name of a mapping.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum MapName {
    /// No name: anonymous memory.
    #[default]
    None,
    /// File path as the kernel prints it, including ` (deleted)`, and with `\012` for a line feed.
    ///
    /// Also used for files without a path, such as `anon_inode:[perf_event]`. Neighbouring mappings
    /// with the same path share its text.
    Path(Arc<OsStr>),
    /// `[heap]`
    Heap,
    /// `[stack]`
    Stack,
    /// `[anon:NAME]` or `[anon_shmem:NAME]`, including the brackets; the program set the name.
    Named(String),
    /// Any other name in brackets, including the brackets, such as `[vdso]` or `[vvar]`.
    Special(String),
}

impl MapName {
    /// Parses the text of the column. If the text equals `before`, the name of the previous
    /// mapping, the result shares the text of that name.
    pub(crate) fn parse(text: &[u8], before: Option<&MapName>) -> MapName {
        let lossy = || String::from_utf8_lossy(text).into_owned();
        match text {
            b"" => MapName::None,
            b"[heap]" => MapName::Heap,
            b"[stack]" => MapName::Stack,
            [b'[', ..] if text.starts_with(b"[anon:") || text.starts_with(b"[anon_shmem:") => {
                MapName::Named(lossy())
            }
            [b'[', ..] => MapName::Special(lossy()),
            _ => match before {
                Some(MapName::Path(path)) if path.as_bytes() == text => {
                    MapName::Path(Arc::clone(path))
                }
                _ => MapName::Path(OsString::from_vec(text.to_vec()).into()),
            },
        }
    }

    /// Returns true for a deleted file, or for a file whose own name ends in ` (deleted)`.
    pub fn is_deleted(&self) -> bool {
        matches!(self, MapName::Path(path) if path.as_bytes().ends_with(DELETED))
    }

    /// Returns the unescaped path relative to the process's root; `None` if the file is deleted.
    pub fn path(&self) -> Option<OsString> {
        let MapName::Path(path) = self else {
            return None;
        };
        if self.is_deleted() || !path.as_bytes().starts_with(b"/") {
            return None;
        }
        Some(OsString::from_vec(unescape(path.as_bytes())))
    }

    /// Returns the text of the column, with invalid UTF-8 replaced.
    pub fn text(&self) -> String {
        self.as_text().into_owned()
    }

    /// Returns the text of the column, as [`MapName::text`] does, without a copy if possible.
    pub fn as_text(&self) -> Cow<'_, str> {
        match self {
            MapName::None => Cow::Borrowed(""),
            MapName::Path(path) => path.to_string_lossy(),
            MapName::Heap => Cow::Borrowed("[heap]"),
            MapName::Stack => Cow::Borrowed("[stack]"),
            MapName::Named(name) | MapName::Special(name) => Cow::Borrowed(name),
        }
    }

    /// Converts the name to the kind that is recorded in a trace.
    pub fn kind(&self) -> SnapKind {
        match self {
            MapName::None | MapName::Path(_) => SnapKind::Plain,
            MapName::Heap => SnapKind::Heap,
            MapName::Stack => SnapKind::Stack,
            MapName::Named(name) => SnapKind::Named(name.clone()),
            MapName::Special(name) => SnapKind::Special(name.clone()),
        }
    }
}

/// Replaces `\012`, the only escape sequence that the kernel uses here, with a line feed.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"\\012") {
            plain.push(b'\n');
            rest = after;
        } else {
            plain.push(byte);
            rest = after;
        }
    }
    plain
}
