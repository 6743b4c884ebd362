//! Comparison of the tree with an ordered map, with full-size nodes.

use vmarea_range_tree::{Entry, RangeTree, Writer};

mod compare;
#[path = "../src/reference.rs"]
mod reference;
