//! What `show` draws: the graph of the demonstration as it has to be, in the kernel as well; the
//! anatomy of this very process; and drawings in which no label lies on another.
#![forbid(unsafe_code)]

mod anatomy;
mod drawing;
mod graph;
mod recorded;
