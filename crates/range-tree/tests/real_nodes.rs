//! The tree against an ordered map, with the nodes that users get.

use vmarea_range_tree::{Entry, RangeTree};

mod compare;
#[path = "../src/reference.rs"]
mod reference;
