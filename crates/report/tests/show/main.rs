//! Output of `show`: the graph of a family of three; the anatomy of
//! this process; and drawings whose labels do not overlap.
#![forbid(unsafe_code)]

mod anatomy;
mod drawing;
mod graph;
mod many;
mod recorded;
