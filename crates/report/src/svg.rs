//! Minimal SVG writer: a few shapes and escaped text.
//!
//! The caller places every element; the page grows with its content. The font is monospaced, so the
//! width of text is known without reading a font.

use std::fmt::{Display, Write};

/// Width of a letter relative to the font size.
const LETTER: f64 = 0.602;
const FONT: &str = "DejaVu Sans Mono, Menlo, Consolas, Liberation Mono, monospace";

/// Alignment of text relative to its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Anchor {
    /// The text begins at its position.
    Start,
    /// The text ends at its position.
    End,
}

/// Text style.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Letters {
    /// Height in pixels.
    pub size: f64,
    /// Colour.
    pub color: &'static str,
    /// `normal` or `bold`.
    pub weight: &'static str,
    /// Alignment relative to the position.
    pub anchor: Anchor,
}

impl Letters {
    /// Creates a plain, dark style.
    pub const fn plain(size: f64) -> Letters {
        Letters {
            size,
            color: "#222",
            weight: "normal",
            anchor: Anchor::Start,
        }
    }

    pub const fn bold(self) -> Letters {
        Letters {
            weight: "bold",
            ..self
        }
    }

    pub const fn color(self, color: &'static str) -> Letters {
        Letters { color, ..self }
    }

    pub const fn at_end(self) -> Letters {
        Letters {
            anchor: Anchor::End,
            ..self
        }
    }

    /// Returns the width of `text` in pixels.
    pub fn width(&self, text: &str) -> f64 {
        text.chars().count() as f64 * self.size * LETTER
    }

    /// Truncates `text` to `width` pixels and replaces the removed end by `…`.
    pub fn clip(&self, text: &str, width: f64) -> String {
        let room = self.room(width);
        if text.chars().count() <= room {
            return text.to_owned();
        }
        text.chars().take(room - 1).chain(['…']).collect()
    }

    /// Truncates `text` to `width` pixels at the front, because the end of a path is more
    /// informative.
    pub fn clip_front(&self, text: &str, width: f64) -> String {
        let (room, all) = (self.room(width), text.chars().count());
        if all <= room {
            return text.to_owned();
        }
        let rest = text.chars().skip(all - room + 1);
        std::iter::once('…').chain(rest).collect()
    }

    fn room(&self, width: f64) -> usize {
        (width / (self.size * LETTER)).max(1.0) as usize
    }
}

/// A rectangle.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// A drawing under construction.
#[derive(Debug, Default)]
pub(super) struct Svg {
    body: String,
    width: f64,
    height: f64,
}

impl Svg {
    fn reach(&mut self, x: f64, y: f64) {
        self.width = self.width.max(x);
        self.height = self.height.max(y);
    }

    fn put(&mut self, element: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "{element}");
    }

    /// Draws a box; `more` contains attributes like `rx="3"`.
    pub fn rect(&mut self, at: Rect, fill: &str, stroke: &str, more: &str) {
        let Rect {
            x,
            y,
            width,
            height,
        } = at;
        self.reach(x + width, y + height);
        self.put(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}" stroke="{stroke}" {more}/>"#
        ));
    }

    /// Draws a line through points; `more` contains attributes like `stroke-dasharray="4 3"`.
    pub fn line(&mut self, points: &[(f64, f64)], stroke: &str, more: &str) {
        let mut path = String::new();
        for (n, &(x, y)) in points.iter().enumerate() {
            self.reach(x, y);
            let verb = if n == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{verb}{x:.1} {y:.1}");
        }
        self.put(format_args!(
            r#"<path d="{path}" fill="none" stroke="{stroke}" {more}/>"#
        ));
    }

    /// Draws an arrowhead that points to the right, with its tip at the given point.
    pub fn head(&mut self, x: f64, y: f64, fill: &str) {
        let back = x - 7.0;
        let (above, below) = (y - 3.5, y + 3.5);
        self.put(format_args!(
            r#"<path d="M{back:.1} {above:.1}L{x:.1} {y:.1}L{back:.1} {below:.1}z" fill="{fill}"/>"#
        ));
    }

    /// Draws text with its baseline at `y`.
    pub fn text(&mut self, x: f64, y: f64, text: &str, letters: Letters) {
        let Letters {
            size,
            color,
            weight,
            anchor,
        } = letters;
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::End => "end",
        };
        if anchor == "start" {
            self.reach(x + letters.width(text), y + size * 0.3);
        } else {
            self.reach(x, y + size * 0.3);
        }
        self.put(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" fill="{color}" font-weight="{weight}" text-anchor="{anchor}">{}</text>"#,
            escaped(text)
        ));
    }

    /// Inserts `back` behind all elements drawn so far.
    pub fn prepend(&mut self, back: Svg) {
        self.reach(back.width, back.height);
        self.body.insert_str(0, &back.body);
    }

    /// Returns the complete SVG file.
    pub fn finish(self, title: &str) -> String {
        let (width, height) = (self.width + 16.0, self.height + 16.0);
        format!(
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" width="{w:.0}" height="{h:.0}" viewBox="0 0 {w:.0} {h:.0}" font-family="{font}" xml:space="preserve">"#,
                "\n<title>{title}</title>\n",
                r##"<rect width="100%" height="100%" fill="#fff"/>"##,
                "\n{body}</svg>\n"
            ),
            w = width,
            h = height,
            font = FONT,
            title = escaped(title),
            body = self.body
        )
    }
}

/// Escapes XML markup; characters that XML forbids become `?`.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => safe.push('?'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_element() {
        let mut svg = Svg::default();
        svg.text(0.0, 10.0, "</text><script>\u{1}&\"", Letters::plain(10.0));
        let file = svg.finish("a<b");
        assert!(
            file.contains("&lt;/text&gt;&lt;script&gt;?&amp;&quot;</text>"),
            "{file}"
        );
        assert!(file.contains("<title>a&lt;b</title>"));
    }

    #[test]
    fn text_is_cut_where_the_room_ends() {
        let letters = Letters::plain(10.0);
        assert_eq!(letters.clip("abc", 100.0), "abc");
        let cut = letters.clip("abcdefghij", 30.0);
        assert_eq!(cut, "abc…");
        assert!(letters.width(&cut) <= 30.0);
    }
}
