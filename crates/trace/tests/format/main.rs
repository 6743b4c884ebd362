//! The file format: written events read back unchanged, and damage of any kind is reported.

mod damage;
mod events;
mod files;
mod hostile;
mod round_trip;
