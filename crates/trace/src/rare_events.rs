//! Rare events, which are written in postcard as an enum that belongs to the file format.
//!
//! The order of the variants is part of the file format, so the enum is separate from [`Event`].
//! Frequent and large events have separate encodings, whose memory use is bounded more tightly (see
//! [`crate::record`]).

use crate::event::{Event, Inode, MmId, MmStart, Nanos, Tid};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Events encoded in postcard. A new variant must be added at the end, with a new format version.
#[derive(Serialize, Deserialize)]
pub(crate) enum Rare<'a> {
    Inode(Cow<'a, Inode>),
    MmStart(MmStart),
    MmEnd {
        mm: MmId,
        t: Nanos,
    },
    TaskStart {
        tid: Tid,
        pid: Tid,
        mm: MmId,
        t: Nanos,
    },
    TaskEnd {
        tid: Tid,
        status: i32,
        t: Nanos,
    },
    Lost {
        count: u64,
        t: Nanos,
    },
    Note(Cow<'a, str>),
    End {
        status: i32,
        t: Nanos,
    },
}

impl From<Rare<'_>> for Event {
    fn from(rare: Rare<'_>) -> Self {
        match rare {
            Rare::Inode(inode) => Self::Inode(inode.into_owned()),
            Rare::MmStart(start) => Self::MmStart(start),
            Rare::MmEnd { mm, t } => Self::MmEnd { mm, t },
            Rare::TaskStart { tid, pid, mm, t } => Self::TaskStart { tid, pid, mm, t },
            Rare::TaskEnd { tid, status, t } => Self::TaskEnd { tid, status, t },
            Rare::Lost { count, t } => Self::Lost { count, t },
            Rare::Note(text) => Self::Note(text.into_owned()),
            Rare::End { status, t } => Self::End { status, t },
        }
    }
}

/// Appends `value` in postcard.
pub(crate) fn postcard_into(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    *out = postcard::to_extend(value, std::mem::take(out))
        .expect("a vector takes all bytes, and events have only what postcard can write");
}
