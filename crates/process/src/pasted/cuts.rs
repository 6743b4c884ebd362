//! Places at which somebody cut lines out of a list, and says so, and lines that cannot be read.
//!
//! What was there is unknown: the two mappings around it may have been neighbours of others, so no
//! reason is given between them, and the number of mappings says nothing.

use crate::unseen::Unseen;

/// Number of mappings from which on a list is taken for that of a whole process.
pub(super) const WHOLE: usize = 20;
/// Maximum length of a line that says that lines were cut out.
const MARK_CHARS: usize = 100;

/// Words of which one alone says that lines were cut out.
const WORDS: [&str; 12] = [
    "snip",
    "snipped",
    "snipping",
    "truncated",
    "omitted",
    "elided",
    "skipped",
    "trimmed",
    "cut",
    "abridged",
    "shortened",
    "redacted",
];

/// Words that say it after a number.
const COUNTED: [&str; 9] = [
    "more", "lines", "mappings", "entries", "similar", "others", "regions", "rows", "times",
];

/// True for a line that stands for lines which were cut out, such as `...` or `<65,000 more>`.
pub(super) fn is_mark(line: &str) -> bool {
    let line = line.trim();
    if line.is_empty() || line.chars().take(MARK_CHARS + 1).count() > MARK_CHARS {
        return false;
    }
    if line.contains("..") || line.contains('…') {
        let dots = |c: char| !c.is_alphanumeric() && c != '/';
        if line.chars().all(dots) {
            return true;
        }
    }
    let is_part = |c: char| c.is_alphanumeric() || c == ',' || c == '\'' || c == '_';
    let words: Vec<_> = line
        .split(|c: char| !is_part(c))
        .map(|word| word.trim_matches([',', '\'', '_']).to_lowercase())
        .filter(|word| !word.is_empty())
        .collect();
    let is_number = |word: &String| {
        word.starts_with(|c: char| c.is_ascii_digit())
            && word
                .chars()
                .all(|c| c.is_ascii_digit() || ",'_k".contains(c))
    };
    words.iter().any(|word| WORDS.contains(&word.as_str()))
        || words.iter().enumerate().any(|(n, word)| {
            let next = words.iter().skip(n + 1).take(2);
            is_number(word)
                && next
                    .into_iter()
                    .any(|word| COUNTED.contains(&word.as_str()))
        })
}

/// Returns a note on lines that were left out.
pub(super) fn left_out(other: usize) -> Option<String> {
    let s = match other {
        0 => return None,
        1 => " that is",
        _ => "s that are",
    };
    Some(format!(
        "left out {other} line{s} not part of a list of mappings"
    ))
}

/// The places in one list.
#[derive(Default)]
pub(super) struct Cuts {
    /// Number of mappings so far, and the end of the last one.
    mappings: usize,
    end: Option<u64>,
    /// What stands between the last mapping and the next one.
    between: Between,
    /// True if the last line is a mapping, or a mark that follows one.
    adjoins: bool,
    /// Number of marks that count if a mapping follows.
    pending: usize,
    /// Numbers of lines that say that lines were cut out, and of damaged lines.
    cut: usize,
    damaged: usize,
    first_damaged: Option<(usize, &'static str)>,
    marks: Vec<(usize, Unseen)>,
}

/// What stands between two mappings of a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Between {
    #[default]
    Nothing,
    /// A line that is not part of the list; it may have taken the place of a mapping.
    Other,
    /// A cut, or a damaged line.
    Cut,
}

impl Cuts {
    /// Takes notice of a mapping.
    pub(super) fn mapping(&mut self, start: u64, end: u64) {
        // Nothing is missing between two mappings of which one begins where the other ends.
        if self.end.is_some_and(|end| end != start) {
            match self.between {
                Between::Nothing => {}
                Between::Other => self.marks.push((self.mappings, Unseen::GAP)),
                Between::Cut => self.marks.push((self.mappings, Unseen::CUT)),
            }
        }
        self.between = Between::Nothing;
        self.adjoins = true;
        self.cut += std::mem::take(&mut self.pending);
        self.end = Some(end);
        self.mappings += 1;
    }

    /// Takes notice of a line that is not part of the list; returns true if it says that lines were
    /// cut out. Such a line counts beside a mapping only: others are part of what somebody wrote.
    pub(super) fn other(&mut self, line: &str) -> bool {
        let is_cut = is_mark(line);
        match (is_cut, self.adjoins) {
            (true, true) => self.cut += 1,
            (true, false) => self.pending += 1,
            (false, _) => {
                self.adjoins = false;
                self.pending = 0;
                self.between = self.between.max(Between::Other);
            }
        }
        if is_cut {
            self.between = Between::Cut;
        }
        is_cut
    }

    /// Takes notice of a line, counted from 1, that is part of the list but cannot be read.
    pub(super) fn damaged(&mut self, line: usize, what: &'static str) {
        self.damaged += 1;
        self.first_damaged.get_or_insert((line, what));
        self.adjoins = true;
        self.between = Between::Cut;
    }

    /// Returns true if mappings are missing.
    pub(super) fn any(&self) -> bool {
        self.cut + self.damaged > 0
    }

    /// Returns the mappings above the places, by their place in the list, and notes on the places.
    pub(super) fn into_parts(self) -> (Vec<(usize, Unseen)>, Vec<String>) {
        let mut notes = Vec::new();
        if self.cut > 0 {
            let s = if self.cut == 1 { "" } else { "s" };
            notes.push(format!(
                "lines were cut out of the list in {} place{s}: the number of mappings is unknown",
                self.cut
            ));
        }
        if let Some((line, what)) = self.first_damaged {
            let more = match self.damaged {
                1 => String::new(),
                n => format!(", and so were {} more lines", n - 1),
            };
            notes.push(format!(
                "line {line} is damaged ({what}) and was left out{more}"
            ));
        }
        (self.marks, notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_cut_lines_are_told_from_other_lines() {
        for mark in [
            "...",
            "…",
            "[...]",
            " . . . .. ",
            "<snip, 65,000 more lines like these>",
            "[truncated]",
            "… 1200 lines omitted",
            "65,000 more",
            "--- 8< --- snip --- >8 ---",
            "[SNIP]",
            "(32,000 similar mappings)",
            "# and 60000 more like this",
            "> ...",
            "<cut>",
        ] {
            assert!(is_mark(mark), "{mark}");
        }
        for other in [
            "",
            "Hello,",
            "----------------",
            "Loading...",
            "../lib",
            "/usr/lib/..",
            "more follows",
            "host app[12]: started 3 workers",
            "Mapped address spaces:",
            "7f00",
            "2 MB",
        ] {
            assert!(!is_mark(other), "{other}");
        }
    }

    #[test]
    fn what_somebody_wrote_around_the_list_is_no_cut() {
        let mut cuts = Cuts::default();
        cuts.other("I have 65,000 more lines like these");
        cuts.other("Here is the list:");
        cuts.mapping(0x1000, 0x2000);
        cuts.other("Regards");
        cuts.other("...");
        assert!(!cuts.any());
        let mut cuts = Cuts::default();
        cuts.other("...");
        cuts.mapping(0x1000, 0x2000);
        assert!(cuts.any(), "the beginning is missing");
    }

    #[test]
    fn neighbours_that_touch_are_neighbours_whatever_stands_between() {
        let mut cuts = Cuts::default();
        cuts.mapping(0x1000, 0x2000);
        cuts.other("...");
        cuts.mapping(0x2000, 0x3000);
        cuts.other("...");
        cuts.mapping(0x8000, 0x9000);
        cuts.other("a line of a log");
        cuts.mapping(0xa000, 0xb000);
        assert!(cuts.any());
        let (marks, notes) = cuts.into_parts();
        assert_eq!(marks, [(2, Unseen::CUT), (3, Unseen::GAP)]);
        let said = "lines were cut out of the list in 2 places: the number of mappings is unknown";
        assert_eq!(notes, [said]);
    }
}
