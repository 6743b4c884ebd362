//! Traces and replays as Arrow tables, and as Parquet files.
//!
//! A [`Collector`] follows a replay event by event and fills the tables that are wanted
//! ([`Table`]); each batch of rows goes to its receiver as soon as it is full, so memory is bounded
//! by one batch of each table. The meaning of each column is part of its schema, as metadata of the
//! field; docs/tables.md lists all of them.
//!
//! The feature `parquet` adds [`Folder`], which writes the batches to files, and the feature
//! `explain` adds [`mappings`], the mappings of a process.
#![forbid(unsafe_code)]

mod collector;
mod column;
mod columns;
mod differences;
mod events;
#[cfg(feature = "parquet")]
mod folder;
mod lifetimes;
#[cfg(feature = "explain")]
mod mappings;
mod merges;
mod run;
mod table;
mod vmas;

pub use collector::{BATCH_ROWS, Collector};
pub use column::{DESCRIPTION, type_name};
#[cfg(feature = "parquet")]
pub use folder::{Error as FolderError, Folder};
#[cfg(feature = "explain")]
pub use mappings::{MAPPINGS, mappings, mappings_schema};
pub use run::{Error, Replayed, replay};
pub use table::Table;
