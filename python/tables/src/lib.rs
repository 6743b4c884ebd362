//! Traces and replays as Arrow tables, and as Parquet files.
//!
//! A [`Collector`] follows a replay event by event and fills the tables that are wanted
//! ([`Table`]); each batch of rows goes to its receiver as soon as it is full, so memory is bounded
//! by one batch of each table. `parquet`, which the feature of the same name adds, writes the
//! batches to files. The meaning of each column is part of its schema, as metadata of the field.
#![forbid(unsafe_code)]

mod collector;
mod column;
mod columns;
mod differences;
mod events;
#[cfg(feature = "parquet")]
mod folder;
mod merges;
mod run;
mod table;
mod vmas;

pub use collector::{BATCH_ROWS, Collector};
#[cfg(feature = "parquet")]
pub use folder::{Error as FolderError, Folder};
pub use run::{Error, Replayed, replay};
pub use table::{DESCRIPTION, Table};
