//! Output files that are either complete or absent, and traces, which grow in place.
//!
//! A file is written under a temporary name in its folder and renamed when it is complete. A trace
//! is renamed as soon as it has content ([`Draft::appear`]): its format shows whether it is
//! complete, so the trace of an interrupted recording can be kept. An output that is not a regular
//! file (a pipe, `/dev/null`) is written directly.

use crate::console::Console;
use crate::exit::Result;
use crate::kind::Kind;
use anyhow::Context;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempPath;

/// An output file that is not complete yet.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// A file with a temporary name, until it is renamed to its final path.
    Beside(File, Option<TempPath>),
    Direct(File),
}

impl Draft {
    /// Creates the file that will be published at `path`.
    ///
    /// # Errors
    /// Fails if there is a file of another kind, or if the file cannot be created.
    pub fn create(path: &Path, kind: Kind) -> Result<Self> {
        kind.check(path)?;
        let cannot = || format!("cannot create {}", path.display());
        let place = match path.metadata() {
            Ok(found) if !found.is_file() => Place::Direct(
                OpenOptions::new()
                    .write(true)
                    .open(path)
                    .with_context(cannot)?,
            ),
            _ => {
                let folder = match path.parent() {
                    Some(parent) if parent != Path::new("") => parent,
                    _ => Path::new("."),
                };
                let (file, name) = beside(folder).with_context(cannot)?.into_parts();
                Place::Beside(file, Some(name))
            }
        };
        Ok(Self {
            path: path.to_owned(),
            place,
        })
    }

    /// Renames the file to its final path if `done` is `Ok`.
    ///
    /// After a failure, a file that already has its final name is kept, and a note says so; any
    /// other file is removed.
    ///
    /// # Errors
    /// Returns the failure in `done`, or fails if the file cannot be renamed.
    pub fn keep<T>(self, console: &Console, done: Result<T>) -> Result<T> {
        match (done, &self.place) {
            (Ok(value), _) => {
                self.publish()?;
                Ok(value)
            }
            (Err(failure), Place::Beside(_, None)) => {
                let path = self.path.display();
                console.note(&format!("the incomplete file was kept as {path}"));
                Err(failure)
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// Returns the final path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file to write to.
    pub fn file(&mut self) -> &mut File {
        match &mut self.place {
            Place::Beside(file, _) | Place::Direct(file) => file,
        }
    }

    /// Renames the file to its final path, complete or not.
    ///
    /// # Errors
    /// Fails if the file cannot be renamed; it is then removed.
    pub fn appear(&mut self) -> io::Result<()> {
        if let Place::Beside(_, name) = &mut self.place
            && let Some(name) = name.take()
        {
            name.persist(&self.path).map_err(|error| error.error)?;
        }
        Ok(())
    }

    /// Renames a complete file to its final path.
    ///
    /// # Errors
    /// Fails if the file cannot be renamed; it is then removed.
    pub fn publish(mut self) -> Result<()> {
        self.appear()
            .with_context(|| format!("cannot create {}", self.path.display()))?;
        Ok(())
    }
}

/// Creates a file with a temporary name in `folder`.
///
/// # Errors
/// Returns the kernel's own error; that of `tempfile` would name the temporary path.
fn beside(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut said = None;
    let create = |path: &Path| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o666);
        let created = options.open(path);
        said = created.as_ref().err().and_then(io::Error::raw_os_error);
        created
    };
    let made = tempfile::Builder::new()
        .prefix(".vmarea-")
        .make_in(folder, create);
    made.map_err(|error| said.map_or(error, io::Error::from_raw_os_error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_draft_that_is_dropped_leaves_nothing_and_the_old_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        std::fs::write(&path, "{}").unwrap();
        let mut draft = Draft::create(&path, Kind::JSON).unwrap();
        draft.file().write_all(b"half").unwrap();
        drop(draft);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn a_draft_that_has_appeared_grows_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let mut draft = Draft::create(&path, Kind::JSON).unwrap();
        draft.file().write_all(b"one ").unwrap();
        draft.appear().unwrap();
        draft.file().write_all(b"two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one two");
        drop(draft);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one two");
    }

    #[test]
    fn a_device_is_written_to_and_never_replaced() {
        let before = Path::new("/dev/null").metadata().unwrap();
        let mut draft = Draft::create(Path::new("/dev/null"), Kind::JSON).unwrap();
        draft.file().write_all(b"gone").unwrap();
        draft.publish().unwrap();
        let after = Path::new("/dev/null").metadata().unwrap();
        assert_eq!(before.file_type(), after.file_type());
        assert!(!after.is_file());
    }
}
