//! What an output file contains, so that no output replaces a file that is something else.
//!
//! A mistyped option or a forgotten name must not cost the user a recording. Only the beginning of
//! an existing file is looked at. An empty file can become anything, and an output that is not a
//! regular file (a pipe, `/dev/null`) replaces nothing.

use crate::exit::{Failure, Result, Status};
use anyhow::{Context, anyhow};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Number of bytes by which a file is recognized.
const BEGINNING: u64 = 4096;

/// What an output file contains.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// What a message calls such a file.
    pub name: &'static str,
    /// Checks whether a file that is not empty begins like one of this kind.
    pub is: fn(&[u8]) -> bool,
}

impl Kind {
    /// JSON: an object or a list, or one on each line.
    pub const JSON: Kind = Kind {
        name: "JSON",
        is: |beginning| beginning.trim_ascii_start().starts_with(b"{") || is_list(beginning),
    };
    /// A page in HTML.
    pub const HTML: Kind = Kind {
        name: "an HTML page",
        is: |beginning| {
            let doctype = b"<!doctype html";
            let beginning = beginning.get(..doctype.len()).unwrap_or_default();
            beginning.eq_ignore_ascii_case(doctype)
        },
    };
    /// A drawing.
    pub const SVG: Kind = Kind {
        name: "an SVG drawing",
        is: |beginning| beginning.starts_with(b"<svg") || beginning.starts_with(b"<?xml"),
    };
    /// A graph in the language of Graphviz.
    pub const DOT: Kind = Kind {
        name: "a graph for Graphviz",
        is: |beginning| beginning.starts_with(b"digraph"),
    };
    /// Metrics for Prometheus.
    pub const OPENMETRICS: Kind = Kind {
        name: "OpenMetrics text",
        is: |beginning| beginning.starts_with(b"# HELP") || beginning.starts_with(b"# EOF"),
    };
    /// Stacks in lines, each of which ends with a number.
    pub const FOLDED: Kind = Kind {
        name: "folded stacks",
        is: |beginning| {
            let line = beginning.split(|byte| *byte == b'\n').next();
            let count = line.and_then(|line| line.rsplit(|byte| *byte == b' ').next());
            count.is_some_and(|count| !count.is_empty() && count.iter().all(u8::is_ascii_digit))
        },
    };
    /// A profile for pprof, compressed by gzip.
    pub const PPROF: Kind = Kind {
        name: "a compressed profile",
        is: |beginning| beginning.starts_with(b"\x1f\x8b"),
    };

    /// True if there is a file of this kind.
    pub fn is_of(self, path: &Path) -> bool {
        path.is_file() && beginning(path).is_ok_and(|beginning| (self.is)(&beginning))
    }

    /// Checks that an output of this kind may take the place of what is at `path`.
    ///
    /// # Errors
    /// Fails if there is a file of another kind, or one that cannot be read.
    pub(crate) fn check(self, path: &Path) -> Result<()> {
        if !path.is_file() {
            return Ok(());
        }
        let shown = path.display();
        let beginning = beginning(path)
            .with_context(|| format!("cannot see whether {shown} may be replaced"))?;
        if beginning.is_empty() || (self.is)(&beginning) {
            return Ok(());
        }
        let what = anyhow!(
            "{shown} is there and is not {}: name another file, or remove it first",
            self.name
        );
        Err(Failure::new(Status::Usage, what))
    }
}

fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    File::open(path)?
        .take(BEGINNING)
        .read_to_end(&mut beginning)?;
    Ok(beginning)
}

fn is_list(beginning: &[u8]) -> bool {
    let inside = beginning.trim_ascii_start().strip_prefix(b"[");
    inside.is_some_and(|inside| {
        let first = inside.trim_ascii_start().first();
        first.is_none_or(|byte| b"{[]\"-0123456789tfn".contains(byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Kind; 7] = [
        Kind::JSON,
        Kind::HTML,
        Kind::SVG,
        Kind::DOT,
        Kind::OPENMETRICS,
        Kind::FOLDED,
        Kind::PPROF,
    ];

    #[test]
    fn a_file_is_of_the_kind_that_it_was_written_as_and_of_no_other() {
        let files: [&[u8]; 7] = [
            b" {\"schema\":1}\n{\"schema\":1}\n",
            b"<!DOCTYPE html><html>",
            b"<svg xmlns=\"http://www.w3.org/2000/svg\">",
            b"digraph vmarea {\n",
            b"# HELP vmarea_processes Processes with mappings.\n",
            b"main;[mmap] 12\nmain 3\n",
            b"\x1f\x8b\x08\x00",
        ];
        for (at, kind) in ALL.iter().enumerate() {
            let taken = files.map(|file| (kind.is)(file));
            assert_eq!(taken, std::array::from_fn(|i| i == at), "{}", kind.name);
        }
        assert!((Kind::JSON.is)(b"[{\"ph\":\"X\"},"));
    }

    #[test]
    fn what_is_something_else_is_kept_and_what_is_nothing_yet_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.vmtrace");
        for text in ["\u{89}vmarea\n", "[section]\nkey = 1\n", "some notes\n"] {
            std::fs::write(&path, text).unwrap();
            for kind in ALL {
                let said = kind.check(&path).unwrap_err().message();
                let (path, name) = (path.display(), kind.name);
                let needed = format!(
                    "{path} is there and is not {name}: name another file, or remove it first"
                );
                assert_eq!(said, needed);
            }
        }
        std::fs::write(&path, "").unwrap();
        for kind in ALL {
            for free in [&path, Path::new("/dev/zero"), &folder.path().join("none")] {
                assert!(kind.check(free).is_ok(), "{}", free.display());
            }
        }
    }
}
