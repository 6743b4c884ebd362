//! Output files that are either whole or not there, and traces, which grow at their place.
//!
//! A file is written under a temporary name beside its place and renamed when it is whole. A trace
//! is renamed as soon as there is something in it ([`Draft::appear`]): it tells by itself whether it
//! is whole, and whatever ends the recording, what was written is there. What is not a regular
//! file (a pipe, `/dev/null`) has no such place and is written to as it stands.

use crate::console::Console;
use crate::exit::Result;
use anyhow::Context;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempPath;

/// A file in the making.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// Under a temporary name, until that is taken away.
    Beside(File, Option<TempPath>),
    Direct(File),
}

impl Draft {
    /// Begins the file that is to stand at `path`.
    ///
    /// # Errors
    /// Where nothing can be created there.
    pub fn create(path: &Path) -> Result<Self> {
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

    /// Publishes the file if `done` is a success. After a failure one that had appeared before
    /// stays, and this is said; any other is gone.
    ///
    /// # Errors
    /// The failure in `done`, or where the file cannot be renamed.
    pub fn keep<T>(self, console: &Console, done: Result<T>) -> Result<T> {
        match (done, &self.place) {
            (Ok(value), _) => {
                self.publish()?;
                Ok(value)
            }
            (Err(failure), Place::Beside(_, None)) => {
                let path = self.path.display();
                console.note(&format!("what there is was kept as {path}"));
                Err(failure)
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// Where it is to stand.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What to write to.
    pub fn file(&mut self) -> &mut File {
        match &mut self.place {
            Place::Beside(file, _) | Place::Direct(file) => file,
        }
    }

    /// The file stands at its place from here on, whole or not.
    ///
    /// # Errors
    /// Where it cannot be renamed; it is gone then.
    pub fn appear(&mut self) -> io::Result<()> {
        if let Place::Beside(_, name) = &mut self.place
            && let Some(name) = name.take()
        {
            name.persist(&self.path).map_err(|error| error.error)?;
        }
        Ok(())
    }

    /// The file is whole: it appears at its place.
    ///
    /// # Errors
    /// Where it cannot be renamed; it is gone then.
    pub fn publish(mut self) -> Result<()> {
        self.appear()
            .with_context(|| format!("cannot create {}", self.path.display()))?;
        Ok(())
    }
}

/// A file in `folder` that has no name of its own yet.
///
/// # Errors
/// As the kernel says it: what `tempfile` gives names the temporary path as well.
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
        std::fs::write(&path, "old").unwrap();
        let mut draft = Draft::create(&path).unwrap();
        draft.file().write_all(b"half").unwrap();
        drop(draft);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn a_draft_that_has_appeared_grows_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let mut draft = Draft::create(&path).unwrap();
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
        let mut draft = Draft::create(Path::new("/dev/null")).unwrap();
        draft.file().write_all(b"gone").unwrap();
        draft.publish().unwrap();
        let after = Path::new("/dev/null").metadata().unwrap();
        assert_eq!(before.file_type(), after.file_type());
        assert!(!after.is_file());
    }
}
