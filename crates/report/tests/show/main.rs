//! Output of `show`: the graph of the demonstration, in the core and in the kernel; the anatomy of
//! this process; and drawings whose labels do not overlap.
#![forbid(unsafe_code)]

mod anatomy;
mod drawing;
mod graph;
mod many;
mod recorded;
