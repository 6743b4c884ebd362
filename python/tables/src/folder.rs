//! A folder of Parquet files, one for each table, which appear only when all are complete.
//!
//! The files are written under temporary names in the folder. A row group is written as soon as it
//! is full, so memory is bounded by one row group of each table.

use crate::table::Table;
use arrow_array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempPath};

/// Number of rows of a row group.
const ROW_GROUP_ROWS: usize = 1 << 17;

/// Why a folder cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder or a file in it could not be created.
    #[error("cannot create {}: {source}", path.display())]
    Create {
        /// The folder or file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file could not be written, for example because the file system is full.
    #[error("cannot write {}: {what}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        what: String,
    },
}

/// A table that is being written.
struct Draft {
    table: Table,
    path: PathBuf,
    name: TempPath,
    writer: ArrowWriter<fs::File>,
}

/// A folder whose files are being written. Without [`Folder::publish`], nothing remains of them.
pub struct Folder(Vec<Draft>);

impl Folder {
    /// Creates the folder, if it does not exist, and a file with a temporary name for each table.
    ///
    /// # Errors
    /// [`Error::Create`], [`Error::Write`].
    pub fn create(folder: &Path, tables: &[Table]) -> Result<Self, Error> {
        let cannot = |path: &Path, source| Error::Create {
            path: path.to_owned(),
            source,
        };
        fs::create_dir_all(folder).map_err(|source| cannot(folder, source))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(Default::default()))
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .build();
        let draft = |table: &Table| {
            let path = folder.join(format!("{table}.parquet"));
            let made = beside(folder).map_err(|source| cannot(&path, source))?;
            let (file, name) = made.into_parts();
            let writer = ArrowWriter::try_new(file, table.schema(), Some(properties.clone()))
                .map_err(|error| unwritten(&path, error))?;
            Ok(Draft {
                table: *table,
                path,
                name,
                writer,
            })
        };
        Ok(Self(tables.iter().map(draft).collect::<Result<_, _>>()?))
    }

    /// Adds rows to a table.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn add(&mut self, table: Table, batch: &RecordBatch) -> Result<(), Error> {
        let mut drafts = self.0.iter_mut();
        match drafts.find(|draft| draft.table == table) {
            None => Ok(()),
            Some(draft) => draft
                .writer
                .write(batch)
                .map_err(|error| unwritten(&draft.path, error)),
        }
    }

    /// Completes all files, then gives them their final names; returns their size in bytes.
    ///
    /// # Errors
    /// [`Error::Write`], [`Error::Create`].
    pub fn publish(self) -> Result<u64, Error> {
        let (mut complete, mut bytes) = (Vec::new(), 0);
        for draft in self.0 {
            let closed = draft.writer.into_inner();
            let file = closed.map_err(|error| unwritten(&draft.path, error))?;
            let synced = file.sync_all().and_then(|()| file.metadata());
            bytes += synced
                .map_err(|error| Error::Write {
                    path: draft.path.clone(),
                    what: error.to_string(),
                })?
                .len();
            complete.push((draft.path, draft.name));
        }
        for (path, name) in complete {
            name.persist(&path).map_err(|error| Error::Create {
                path,
                source: error.error,
            })?;
        }
        Ok(bytes)
    }
}

/// Creates a file with a temporary name, which has the permissions of any new file.
///
/// # Errors
/// Returns the kernel's own error; that of `tempfile` would name the temporary path.
fn beside(folder: &Path) -> io::Result<NamedTempFile> {
    let mut said = None;
    let create = |path: &Path| {
        let created = fs::File::create_new(path);
        said = created.as_ref().err().and_then(io::Error::raw_os_error);
        created
    };
    let made = tempfile::Builder::new()
        .prefix(".vmarea-")
        .make_in(folder, create);
    made.map_err(|error| said.map_or(error, io::Error::from_raw_os_error))
}

/// Returns the failure to write a file, with the system's own words.
fn unwritten(path: &Path, error: ParquetError) -> Error {
    let what = match error {
        ParquetError::External(error) => error.to_string(),
        error => error.to_string(),
    };
    Error::Write {
        path: path.to_owned(),
        what,
    }
}
