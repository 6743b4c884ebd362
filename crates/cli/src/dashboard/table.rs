//! The table of processes: the columns that fit the width, and their cells.

use super::screen::{cell, selected, strong};
use console::Style;
use vmarea_explain::rows::printable;
use vmarea_explain::text::count;
use vmarea_explain::top::ProcessRow;
use vmarea_terminal::console::Console;

/// Number of characters in a bar.
const BAR: usize = 20;

/// A column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Pid,
    Mappings,
    Limit,
    Bar,
    PerMinute,
    ToLimit,
    Mergeable,
    Size,
    User,
    Container,
    Command,
}

/// The columns from left to right, each with its width and the width of the screen from which on it
/// is shown. The command takes the rest.
const COLUMNS: [(Column, &str, usize, usize); 11] = [
    (Column::Pid, "PID", 7, 0),
    (Column::Mappings, "MAPPINGS", 8, 0),
    (Column::Limit, "LIMIT", 6, 0),
    (Column::Bar, "", BAR, 150),
    (Column::PerMinute, "PER MIN", 8, 60),
    (Column::ToLimit, "TO LIMIT", 8, 60),
    (Column::Mergeable, "MERGEABLE", 9, 80),
    (Column::Size, "SIZE", 10, 110),
    (Column::User, "USER", 8, 70),
    (Column::Container, "CONTAINER", 12, 110),
    (Column::Command, "COMMAND", 0, 0),
];

impl Column {
    /// True if it has numbers, which end at its right side.
    fn is_of_numbers(self) -> bool {
        !matches!(
            self,
            Column::Bar | Column::User | Column::Container | Column::Command
        )
    }

    fn text(self, row: &ProcessRow, console: &Console) -> String {
        match self {
            Column::Pid => row.pid.to_string(),
            Column::Mappings => count(row.mappings),
            Column::Limit => format!("{:.1}%", row.percent_of_limit),
            Column::Bar => bar(row.percent_of_limit),
            Column::PerMinute => growth(row.per_minute),
            Column::ToLimit => time(row.minutes_to_limit),
            Column::Mergeable => row.joinable.map_or_else(|| "-".to_owned(), count),
            Column::Size => console.size(row.virtual_bytes).to_string(),
            Column::User => printable(&row.user),
            Column::Container => printable(row.container.as_deref().unwrap_or("-")),
            Column::Command => printable(command(row)),
        }
    }

    fn style(self, row: &ProcessRow) -> Style {
        let style = Style::new();
        match self {
            Column::Limit | Column::Bar => match row.percent_of_limit {
                share if share >= 70.0 => style.red(),
                share if share >= 30.0 => style.yellow(),
                _ => style.green(),
            },
            _ => style,
        }
    }
}

/// Returns the headings and some rows for a screen of this width. The row with the number `chosen`
/// is marked instead of coloured.
pub(super) fn lines<'r>(
    rows: impl Iterator<Item = &'r ProcessRow>,
    chosen: usize,
    width: usize,
    console: &Console,
) -> Vec<String> {
    let shown = || COLUMNS.iter().filter(|(.., from)| width >= *from);
    let used: usize = shown().map(|(_, _, width, _)| width + 1).sum();
    let line = |cell_of: &dyn Fn(Column, &str) -> (String, Style)| {
        let cells = shown().map(|&(column, heading, columns, _)| {
            let columns = match column {
                Column::Command => (width + 1).saturating_sub(used),
                _ => columns,
            };
            let (text, style) = cell_of(column, heading);
            let text = cell(&text, columns, column.is_of_numbers());
            style.apply_to(text).to_string()
        });
        cells.collect::<Vec<_>>().join(" ")
    };
    let headings = line(&|_, heading| (heading.to_owned(), Style::new()));
    let rows = rows.enumerate().map(|(n, row)| match n == chosen {
        true => selected(&line(&|column, _| {
            (column.text(row, console), Style::new())
        })),
        false => line(&|column, _| (column.text(row, console), column.style(row))),
    });
    std::iter::once(strong(&headings)).chain(rows).collect()
}

/// Returns the command line, or the name if the process has no arguments.
pub(super) fn command(row: &ProcessRow) -> &str {
    match row.command_line.as_str() {
        "" => &row.name,
        line => line,
    }
}

/// Formats growth in mappings per minute.
pub(super) fn growth(per_minute: Option<f64>) -> String {
    match per_minute {
        Some(change) if change.abs() >= 0.5 => {
            let sign = if change < 0.0 { '-' } else { '+' };
            format!("{sign}{}", count(change.abs().round() as u64))
        }
        Some(_) => "0".to_owned(),
        None => "-".to_owned(),
    }
}

/// Formats a time in the largest unit of which there is at least one.
pub(super) fn time(minutes: Option<f64>) -> String {
    const HOUR: f64 = 60.0;
    const DAY: f64 = 24.0 * HOUR;
    match minutes {
        None => "-".to_owned(),
        Some(minutes) if minutes < 1.0 => "< 1 min".to_owned(),
        Some(minutes) if minutes < 2.0 * HOUR => format!("{minutes:.0} min"),
        Some(minutes) if minutes < 2.0 * DAY => format!("{:.0} h", minutes / HOUR),
        Some(minutes) if minutes < 1000.0 * DAY => format!("{:.0} days", minutes / DAY),
        Some(_) => "years".to_owned(),
    }
}

/// Draws a bar for a percentage.
fn bar(percent: f64) -> String {
    let full = (percent * BAR as f64 / 100.0).round();
    let full = full.clamp(0.0, BAR as f64) as usize;
    "█".repeat(full) + &"·".repeat(BAR - full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_always_as_wide() {
        for percent in [-1.0, 0.0, 49.9, 100.0, 250.0, f64::NAN] {
            assert_eq!(bar(percent).chars().count(), BAR);
        }
    }

    #[test]
    fn growth_and_time_have_their_units() {
        assert_eq!(growth(None), "-");
        assert_eq!(growth(Some(-0.2)), "0");
        assert_eq!(growth(Some(12_345.6)), "+12,346");
        assert_eq!(growth(Some(-7.0)), "-7");
        for (minutes, expected) in [
            (0.0, "< 1 min"),
            (119.0, "119 min"),
            (180.0, "3 h"),
            (4320.0, "3 days"),
            (1e9, "years"),
        ] {
            assert_eq!(time(Some(minutes)), expected);
        }
        assert_eq!(time(None), "-");
    }

    #[test]
    fn the_command_has_room_at_every_width() {
        for width in [40, 60, 80, 110, 150, 200] {
            let shown = COLUMNS.iter().filter(|(.., from)| width >= *from);
            let used: usize = shown.map(|(_, _, width, _)| width + 1).sum();
            assert!(width - used >= 12, "{width} columns, {used} used");
        }
    }
}
