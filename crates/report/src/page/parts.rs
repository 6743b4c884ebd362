//! Parts that every page uses: numbers with separators, tables, and lists of remarks.

use maud::{Markup, html};
pub use vmarea_explain::text::{count, plural};

/// Formats a share in percent, with a decimal below ten.
pub fn percent(part: u64, whole: u64) -> String {
    let share = 100.0 * part as f64 / whole.max(1) as f64;
    if part > 0 && share < 0.05 {
        "< 0.1 %".to_owned()
    } else if share >= 10.0 || part == 0 {
        format!("{share:.0} %")
    } else {
        format!("{share:.1} %")
    }
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub enum Cell {
    /// Text, to the left.
    Text(String),
    /// Text in the font of code.
    Code(String),
    /// A number, to the right.
    Count(u64),
    /// A number as text, to the right.
    Figure(String),
}

impl Cell {
    fn markup(&self) -> Markup {
        match self {
            Cell::Text(text) => html! { td.text { (text) } },
            Cell::Code(text) => html! { td.text { code { (text) } } },
            Cell::Count(n) => html! { td { (count(*n)) } },
            Cell::Figure(text) => html! { td { (text) } },
        }
    }
}

/// A heading of a column, and whether the column has text.
pub type Heading<'a> = (&'a str, Align);

/// Alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Returns a table that the script, if it runs, makes sortable and copyable.
pub fn table(caption: &str, headings: &[Heading<'_>], rows: &[Vec<Cell>]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table.sortable {
                caption { (caption) }
                thead {
                    tr {
                        @for (heading, align) in headings {
                            th.text[*align == Align::Left] scope="col" { (heading) }
                        }
                    }
                }
                tbody {
                    @for row in rows { tr { @for cell in row { (cell.markup()) } } }
                }
            }
        }
    }
}

/// Returns a list of remarks; nothing if there are none.
pub fn remarks(heading: &str, remarks: &[String]) -> Markup {
    html! {
        @if !remarks.is_empty() {
            section.remarks aria-label=(heading) {
                h2 { (heading) }
                ul { @for remark in remarks { li { (remark) } } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_markup_are_shown() {
        let rows = [vec![Cell::Code("<script>alert(1)</script>".to_owned())]];
        let text = table("<b>", &[("<i>", Align::Left)], &rows).into_string();
        assert!(
            text.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
            "{text}"
        );
        assert!(!text.contains("<b>") && !text.contains("<i>"), "{text}");
    }

    #[test]
    fn shares_are_short() {
        assert_eq!(percent(1, 3), "33 %");
        assert_eq!(percent(1, 300), "0.3 %");
        assert_eq!(percent(0, 0), "0 %");
        assert_eq!(percent(1, 100_000), "< 0.1 %");
    }
}
