//! The table of the mappings of a process, each with the reason why it is separate.

use crate::column::{Column, schema};
use crate::columns::{batch, strings};
use arrow_array::RecordBatch;
use arrow_array::builder::{BooleanBuilder, StringViewBuilder, UInt64Builder};
use arrow_schema::{DataType, SchemaRef};
use vmarea_explain::rows::MappingRow;
use vmarea_process::Certainty;

/// What a row of the table is.
pub const MAPPINGS: &str = "One row for each mapping of a process, ordered by address: what \
    `vmarea.explain(..., all=True)` returns.";

const COLUMNS: [Column; 12] = [
    Column::always("start", DataType::UInt64, "Address of the first byte."),
    Column::always("end", DataType::UInt64, "Address after the last byte."),
    Column::sometimes(
        "rss",
        DataType::UInt64,
        "Resident bytes, if they were read.",
    ),
    Column::always(
        "perm",
        DataType::Utf8View,
        "Permissions as in `/proc/PID/maps`, for example `rw-p`.",
    ),
    Column::always(
        "offset",
        DataType::UInt64,
        "Offset in the file in bytes; for anonymous mappings the page offset in bytes, if it is \
         known.",
    ),
    Column::always(
        "inode",
        DataType::UInt64,
        "Inode number; 0 if no file is mapped.",
    ),
    Column::sometimes(
        "flags",
        DataType::Utf8View,
        "Flags as the two-letter codes of `smaps`, if they are known.",
    ),
    Column::always(
        "name",
        DataType::Utf8View,
        "The last column of `/proc/PID/maps`.",
    ),
    Column::sometimes(
        "reason",
        DataType::Utf8View,
        "Reason why the mapping is separate from the one below; null for the first one.",
    ),
    Column::sometimes(
        "certain",
        DataType::Boolean,
        "Whether the reason is certain; otherwise it is only likely.",
    ),
    Column::sometimes(
        "candidates",
        DataType::Utf8View,
        "Names of all rules that may be the reason, separated by commas, if it is only likely.",
    ),
    Column::sometimes(
        "fix",
        DataType::Utf8View,
        "What would merge the mapping with the one below; null if nothing would.",
    ),
];

/// Returns the schema of the table.
pub fn mappings_schema() -> SchemaRef {
    schema(&COLUMNS)
}

/// Returns the mappings of a process as a table.
///
/// # Panics
/// Panics if an address is not hexadecimal, which [`MappingRow`] rules out.
pub fn mappings(rows: &[MappingRow]) -> RecordBatch {
    let [mut start, mut end, mut rss, mut offset, mut inode] =
        std::array::from_fn(|_| UInt64Builder::new());
    let mut certain = BooleanBuilder::new();
    let mut texts: [StringViewBuilder; 6] = std::array::from_fn(|_| strings());
    for row in rows {
        let address = u64::from_str_radix(&row.address, 16).expect("an address is hexadecimal");
        start.append_value(address);
        end.append_value(address + row.size);
        rss.append_option(row.rss);
        offset.append_value(row.offset);
        inode.append_value(row.inode);
        certain.append_option(row.certainty.map(|one| one == Certainty::Certain));
        let candidates = (!row.candidates.is_empty()).then(|| row.candidates.join(","));
        let all = [
            Some(row.perm.as_str()),
            row.flags.as_deref(),
            Some(row.mapping.as_str()),
            row.reason,
            candidates.as_deref(),
            row.fix,
        ];
        for (column, text) in texts.iter_mut().zip(all) {
            column.append_option(text);
        }
    }
    let [perm, flags, name, reason, candidates, fix] = &mut texts;
    batch(
        &mappings_schema(),
        &mut [
            &mut start,
            &mut end,
            &mut rss,
            perm,
            &mut offset,
            &mut inode,
            flags,
            name,
            reason,
            &mut certain,
            candidates,
            fix,
        ],
    )
}
