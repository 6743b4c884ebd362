//! Comparison of the tree with an ordered map, with nodes of their real size.

use vmarea_range_tree::{Entry, RangeTree};

mod compare;
#[path = "../src/reference.rs"]
mod reference;
