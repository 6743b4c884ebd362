//! The table of known causes, and its reader from TOML.
//!
//! Every key must be known, so that a misspelt one is found by the test that reads the table.

use super::entry::Entry;
use serde::Deserialize;
use std::sync::OnceLock;

/// The whole table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    cause: Vec<Entry>,
}

/// Returns all entries, in the order in which their patterns are looked for.
///
/// # Panics
/// Never: the table is part of the program, and a test reads it.
pub fn table() -> &'static [Entry] {
    static TABLE: OnceLock<Vec<Entry>> = OnceLock::new();
    TABLE.get_or_init(|| entries(include_str!("table.toml")).expect("a correct table"))
}

/// Reads all entries.
fn entries(text: &str) -> Result<Vec<Entry>, toml::de::Error> {
    toml::from_str(text).map(|table: Table| table.cause)
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Advice, Explained};
    use super::super::pattern::Matches;
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_entry_is_complete() {
        let mut names = HashSet::new();
        for entry in table() {
            let name = &entry.name;
            assert!(names.insert(name), "{name} is there twice");
            assert!(!entry.references.is_empty(), "{name}");
            for address in &entry.references {
                assert!(address.starts_with("https://"), "{name}: {address}");
            }
            assert!(!entry.patterns.is_empty(), "{name}");
            for text in [&entry.text, &entry.cause, &entry.versions, &entry.measured] {
                assert!(!text.trim().is_empty(), "{name}");
                assert!(!text.contains('\n'), "{name}: one line each");
            }
            // Something is told whatever is loaded.
            assert!(
                entry.advice.iter().any(|one| one.needs.is_empty()),
                "{name}"
            );
            for Advice { text, .. } in &entry.advice {
                assert!(!text.trim().is_empty() && !text.contains('\n'), "{name}");
            }
            let asks_need = |one: &Advice| one.text.contains("{need}");
            assert_eq!(
                entry.need.is_some(),
                entry.text.contains("{need}") || entry.advice.iter().any(asks_need),
                "{name}"
            );
            for pattern in &entry.patterns {
                assert!(!pattern.sequence.is_empty(), "{name}");
                let one = Explained::one(pattern, Matches::default());
                let cause = entry.cause(&one, |_| true);
                for text in [&cause.text, &cause.advice, &cause.evidence] {
                    assert!(!text.contains(['{', '}']), "{name}: {text}");
                }
            }
        }
    }

    #[test]
    fn the_needed_number_grows_with_the_memory() {
        let entry = table()
            .iter()
            .find(|entry| entry.name == "zgc-heap")
            .unwrap();
        let matches = Matches {
            extent: 48 << 30,
            ..Matches::default()
        };
        // The number that HotSpot itself prints for a heap of 49152 MiB.
        let one = Explained::one(&entry.patterns[0], matches);
        let advice = entry.cause(&one, |_| true).advice;
        assert!(advice.contains("88,474"), "{advice}");
    }

    #[test]
    fn a_wrong_key_or_value_is_named() {
        let of = |text: &str| {
            let error = entries(&format!("[[cause]]\n{text}")).unwrap_err();
            error.to_string()
        };
        assert!(of("name = 1").contains("invalid type: integer `1`, expected a string"));
        assert!(of("text = \"\"").contains("missing field `name`"));
        let all = "name = ''\nmeasured = ''\ntext = ''\ncause = ''\nadvice = []\nreferences = []\nversions = ''\n";
        let of_pattern = |text: &str| {
            of(&format!(
                "{all}[[cause.pattern]]\nbecause = ''\nat_least = 1\n{text}"
            ))
        };
        let one = of_pattern("sequence = [{ kib = [1] }]");
        assert!(
            one.contains("line 12") && one.contains("array of length 2"),
            "{one}"
        );
        let unknown = of_pattern("sequence = []\nfile = 2");
        assert!(
            unknown.contains("unknown field `file`, expected one of"),
            "{unknown}"
        );
    }
}
