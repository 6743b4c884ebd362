//! The table of known causes, and its reader from TOML.
//!
//! `serde` would read the same text with 0.1 MB of code. Every key must be known, so that a misspelt one
//! is found by the test that reads the table.

use super::entry::{Entry, Need};
use super::pattern::{Member, Pattern};
use std::sync::OnceLock;
use toml::de::{DeTable, DeValue};

/// What is wrong with the table.
type Read<T> = Result<T, String>;

/// Returns all entries, in the order in which their patterns are looked for.
///
/// # Panics
/// Never: the table is part of the program, and a test reads it.
pub fn table() -> &'static [Entry] {
    static TABLE: OnceLock<Vec<Entry>> = OnceLock::new();
    TABLE.get_or_init(|| entries(include_str!("table.toml")).expect("a correct table"))
}

/// Reads all entries.
fn entries(text: &str) -> Read<Vec<Entry>> {
    let table = DeTable::parse(text).map_err(|error| error.to_string())?;
    let mut keys = Keys(table.into_inner());
    let entries = keys.required("cause")?;
    keys.end(entries)
}

/// The keys of a table that are still to be read.
struct Keys<'a>(DeTable<'a>);

impl Keys<'_> {
    fn optional<T: FromToml>(&mut self, key: &str) -> Read<Option<T>> {
        let Some(value) = self.0.remove(key) else {
            return Ok(None);
        };
        let value = T::from_toml(value.into_inner());
        value.map(Some).map_err(|what| format!("{key}: {what}"))
    }

    fn required<T: FromToml>(&mut self, key: &str) -> Read<T> {
        self.optional(key)?
            .ok_or_else(|| format!("{key} is missing"))
    }

    fn or_default<T: FromToml + Default>(&mut self, key: &str) -> Read<T> {
        Ok(self.optional(key)?.unwrap_or_default())
    }

    /// Returns `read` if nothing is left.
    fn end<T>(self, read: T) -> Read<T> {
        match self.0.keys().next() {
            Some(key) => Err(format!("{} is not known", key.get_ref())),
            None => Ok(read),
        }
    }
}

/// A type of which there are values in the table.
trait FromToml: Sized {
    fn from_toml(value: DeValue<'_>) -> Read<Self>;
}

fn keys(value: DeValue<'_>) -> Read<Keys<'_>> {
    match value {
        DeValue::Table(table) => Ok(Keys(table)),
        other => Err(format!("a table is needed, not {}", other.type_str())),
    }
}

impl FromToml for String {
    fn from_toml(value: DeValue<'_>) -> Read<Self> {
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| format!("a text is needed, not {}", value.type_str()))
    }
}

impl FromToml for bool {
    fn from_toml(value: DeValue<'_>) -> Read<Self> {
        let what = || format!("true or false is needed, not {}", value.type_str());
        value.as_bool().ok_or_else(what)
    }
}

impl FromToml for u64 {
    fn from_toml(value: DeValue<'_>) -> Read<Self> {
        let number = value.as_integer().and_then(|n| n.as_str().parse().ok());
        number.ok_or_else(|| format!("a whole number is needed, not {}", value.type_str()))
    }
}

impl FromToml for f64 {
    fn from_toml(value: DeValue<'_>) -> Read<Self> {
        let number = value.as_float().and_then(|n| n.as_str().parse().ok());
        number.ok_or_else(|| format!("a fraction is needed, not {}", value.type_str()))
    }
}

impl<T: FromToml> FromToml for Vec<T> {
    fn from_toml(value: DeValue<'_>) -> Read<Self> {
        match value {
            DeValue::Array(array) => array
                .into_iter()
                .map(|value| T::from_toml(value.into_inner()))
                .collect(),
            other => Err(format!("a list is needed, not {}", other.type_str())),
        }
    }
}

impl FromToml for [u64; 2] {
    fn from_toml(value: DeValue<'_>) -> Read<Self> {
        let pair: Result<[u64; 2], _> = Vec::from_toml(value)?.try_into();
        pair.map_err(|list| format!("two numbers are needed, not {}", list.len()))
    }
}

impl FromToml for Entry {
    fn from_toml(value: DeValue<'_>) -> Read<Self> {
        let mut keys = keys(value)?;
        let entry = Entry {
            name: keys.required("name")?,
            text: keys.required("text")?,
            cause: keys.required("cause")?,
            advice: keys.required("advice")?,
            references: keys.required("references")?,
            versions: keys.required("versions")?,
            need: keys.optional("need")?,
            pattern: keys.required("pattern")?,
        };
        keys.end(entry)
    }
}

impl FromToml for Need {
    fn from_toml(value: DeValue<'_>) -> Read<Self> {
        let mut keys = keys(value)?;
        let need = Need {
            kib: keys.required("kib")?,
            mappings: keys.required("mappings")?,
        };
        keys.end(need)
    }
}

impl FromToml for Pattern {
    fn from_toml(value: DeValue<'_>) -> Read<Self> {
        let mut keys = keys(value)?;
        let pattern = Pattern {
            sequence: keys.required("sequence")?,
            at_least: keys.required("at_least")?,
            files: keys.or_default("files")?,
            equal_sizes: keys.or_default("equal_sizes")?,
            needs: keys.or_default("needs")?,
        };
        keys.end(pattern)
    }
}

impl FromToml for Member {
    fn from_toml(value: DeValue<'_>) -> Read<Self> {
        let mut keys = keys(value)?;
        let member = Member {
            names: keys.or_default("names")?,
            perms: keys.or_default("perms")?,
            kib: keys.optional("kib")?,
            flag: keys.optional("flag")?,
            reasons: keys.or_default("reasons")?,
        };
        keys.end(member)
    }
}

#[cfg(test)]
mod tests {
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
            assert!(!entry.pattern.sequence.is_empty(), "{name}");
            assert!(entry.pattern.at_least >= 100, "{name}");
            for text in [&entry.text, &entry.cause, &entry.advice, &entry.versions] {
                assert!(!text.trim().is_empty(), "{name}");
                assert!(!text.contains('\n'), "{name}: one line each");
            }
            assert_eq!(
                entry.need.is_some(),
                entry.text.contains("{need}") || entry.advice.contains("{need}"),
                "{name}"
            );
            let cause = entry.cause(&Matches::default());
            for text in [&cause.text, &cause.advice] {
                assert!(!text.contains(['{', '}']), "{name}: {text}");
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
        let advice = entry.cause(&matches).advice;
        assert!(advice.contains("88,474"), "{advice}");
    }

    #[test]
    fn a_wrong_key_or_value_is_named() {
        let of = |text: &str| entries(&format!("[[cause]]\n{text}")).unwrap_err();
        assert_eq!(of("name = 1"), "cause: name: a text is needed, not integer");
        assert_eq!(of("text = \"\""), "cause: name is missing");
        let all = "name = ''\ntext = ''\ncause = ''\nadvice = ''\nreferences = []\nversions = ''\n";
        let of_pattern = |text: &str| of(&format!("{all}[cause.pattern]\nat_least = 1\n{text}"));
        assert_eq!(
            of_pattern("sequence = [{ kib = [1] }]"),
            "cause: pattern: sequence: kib: two numbers are needed, not 1"
        );
        assert_eq!(
            of_pattern("sequence = []\nfile = 2"),
            "cause: pattern: file is not known"
        );
    }
}
