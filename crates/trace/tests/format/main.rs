//! The file format: a reader returns the written events unchanged, and reports damage of any kind.

mod damage;
mod events;
mod files;
mod hostile;
mod previous;
mod round_trip;
