//! The file format: what is written comes back, and damage of any kind is told.

mod damage;
mod events;
mod files;
mod hostile;
mod round_trip;
