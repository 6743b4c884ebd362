//! Control characters of names, written as escapes.
//!
//! A name is what a program chose. A browser would show nothing for most control characters, and a
//! terminal that prints the file would obey them.

use maud::{Markup, PreEscaped};

/// Escapes the control characters of a part of the page as `\u{1b}`.
pub(super) fn in_markup(part: &Markup) -> Markup {
    PreEscaped(in_text(&part.0))
}

/// Escapes the control characters of a text as `\u{1b}`.
pub(super) fn in_text(text: &str) -> String {
    escaped(text, |c| c.escape_unicode().to_string())
}

/// Escapes the control characters that JSON leaves as they are.
pub(super) fn in_json(text: &str) -> String {
    escaped(text, |c| format!("\\u{:04x}", u32::from(c)))
}

/// Replaces all control characters except line feeds and tabs, which are space in a page.
fn escaped(text: &str, escape: impl Fn(char) -> String) -> String {
    let mut rest = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => rest.push(c),
            c if c.is_control() => rest.push_str(&escape(c)),
            c => rest.push(c),
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Pictures, document};
    use maud::html;

    #[test]
    fn a_page_has_no_control_character_of_a_name() {
        let name = "a\u{1b}[2J\u{0}\r\u{7f}\u{9b}31mb\nc";
        let data = in_json(&serde_json::to_string(&[name]).unwrap());
        let back: Vec<String> = serde_json::from_str(&data).unwrap();
        assert_eq!(back, [name], "the data is not what it was");
        let page = document(name, &html! { p { (name) } }, Some(&Pictures { data }));
        let bad = |c: &char| c.is_control() && !matches!(c, '\n' | '\t');
        assert_eq!(page.chars().find(bad), None);
        let shown = "a\\u{1b}[2J\\u{0}\\u{d}\\u{7f}\\u{9b}31mb\nc";
        assert_eq!(
            page.matches(shown).count(),
            2,
            "title and body: {}",
            &page[..400]
        );
    }
}
