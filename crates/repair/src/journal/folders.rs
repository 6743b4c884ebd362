//! Finds a process's journal in the folder of the repairing user or of the process's owner.

use std::io::ErrorKind;
use std::path::PathBuf;

use super::{Found, Journal, State, failed};
use crate::{RepairError, proc_status};

/// The folders that may contain the journal of a process.
#[derive(Debug)]
pub(crate) struct Journals {
    pid: i32,
    folder: PathBuf,
    /// Default folder of the process's owner; `None` if the user named a folder.
    others: Option<PathBuf>,
    owner: Option<u32>,
}

impl Journals {
    /// Returns the folders for process `pid`: `folder`, or the default folders if `folder` is
    /// `None`. Removes the journals of processes that have ended.
    pub(crate) fn of(pid: i32, folder: Option<PathBuf>) -> Journals {
        let own = Journal::usual_folder(rustix::process::geteuid().as_raw());
        let owner = proc_status::rights(pid).map(|rights| rights.users[0]);
        let journals = Journals {
            pid,
            others: owner
                .filter(|_| folder.is_none())
                .map(Journal::usual_folder),
            owner,
            folder: folder.unwrap_or(own),
        };
        Journal::sweep(&journals.folder);
        journals
    }

    /// Begins a journal in the folder of the user who runs the repair.
    ///
    /// # Errors
    /// [`RepairError::AtWork`] if another run began one at the same time; errors of creating files.
    pub(crate) fn create(&self, start_time: u64) -> Result<Journal, RepairError> {
        match Journal::create(&self.folder, self.pid, start_time) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(RepairError::AtWork {
                pid: self.pid,
                by: None,
            }),
            journal => journal.map_err(failed),
        }
    }

    /// Opens the journal of an earlier run, so that its repair can be finished. Both folders are
    /// searched.
    ///
    /// # Errors
    /// [`RepairError::AtWork`], [`RepairError::Journal`], and errors from reading files.
    pub(crate) fn open(&self, start_time: u64) -> Result<Option<(Journal, State)>, RepairError> {
        for folder in [Some(&self.folder), self.others.as_ref()]
            .into_iter()
            .flatten()
        {
            match Journal::open(folder, self.owner.as_slice(), self.pid, start_time) {
                Ok(None) => {}
                Ok(Some(Found::AtWork(by))) => {
                    return Err(RepairError::AtWork { pid: self.pid, by });
                }
                Ok(Some(Found::Abandoned(journal, state))) => return Ok(Some((journal, state))),
                Err(cause) => {
                    let path = folder.join(format!("{}.journal", self.pid));
                    return Err(match cause.kind() {
                        ErrorKind::InvalidData | ErrorKind::PermissionDenied => {
                            RepairError::Journal {
                                path: path.display().to_string(),
                                why: cause.to_string(),
                            }
                        }
                        _ => failed(cause),
                    });
                }
            }
        }
        Ok(None)
    }
}
