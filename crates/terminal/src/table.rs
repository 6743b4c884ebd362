//! Tables in text output: a rule below the headings, numbers right-aligned.

use crate::fit;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// Creates an empty table whose columns are right-aligned from index `numbers` on.
///
/// Headings may have several lines.
pub fn ruled<const N: usize>(headings: [&str; N], numbers: usize) -> Table {
    ruled_columns(&headings, numbers)
}

/// Creates a table like [`ruled`] whose number of columns is not known beforehand.
pub fn ruled_columns(headings: &[impl ToString], numbers: usize) -> Table {
    let headings = headings.iter().map(ToString::to_string);
    let mut table = Table::new();
    table
        .load_preset(UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(headings);
    if let Some(width) = fit::width(&std::io::stdout()) {
        let width = u16::try_from(width).unwrap_or(u16::MAX);
        table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width);
    }
    for column in table.column_iter_mut().skip(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
