//! Policies in files: a preset, and the rules and switches that differ from it, in TOML.
//!
//! ```toml
//! base = "linux"                 # a preset, or linux-MAJOR.MINOR
//! [switches]
//! different_anon_vmas = true
//! sharing = "truth"
//! [rules]
//! brk_joins_next = true
//! advice.populate = false
//! ```
//! The names are those of [`setting`]. Every error has a line and a column. A setting that has no
//! effect, because another one excludes it, is an error: its author expects an effect.

use crate::own_policies;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use vmarea::policy::Policy;
use vmarea::policy::name::{Named, nearest};
use vmarea::policy::setting::{self, Setting};

/// Size of the largest file that is read. A file that sets everything has about 2 KiB.
const MOST_BYTES: u64 = 64 << 10;

/// Returns the settings of one group: [`setting::switches`] or [`setting::rules`].
type Group = fn(&mut Policy) -> Vec<Setting<'_>>;

/// True if the name of a policy is the path of a file.
pub(crate) fn is_path(text: &str) -> bool {
    text.ends_with(".toml") || text.contains('/')
}

/// Reads a policy from the file at `path`.
///
/// # Errors
/// One line with the path, and with line and column if the contents are wrong.
pub(crate) fn read(path: &str) -> Result<Named, String> {
    let cannot = |error: std::io::Error| format!("cannot read the policy {path}: {error}");
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    let mut file = file.take(MOST_BYTES + 1);
    file.read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MOST_BYTES {
        let most = MOST_BYTES >> 10;
        return Err(format!("{path} is no policy: it has more than {most} KiB"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("{path} is no policy: byte {} is not UTF-8", at + 1)
    })?;
    parse(&text).map_err(|Wrong { at, what }| {
        let (line, column) = position(&text, at);
        format!("{path}:{line}:{column}: {what}")
    })
}

/// An error at a position of the text.
#[derive(Debug)]
struct Wrong {
    at: usize,
    what: String,
}

fn wrong<T>(span: Range<usize>, what: impl Into<String>) -> Result<T, Wrong> {
    let what = what.into();
    Err(Wrong {
        at: span.start,
        what,
    })
}

/// Returns the line and column of a byte of the text, both counted from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    (line, before[start..].chars().count() + 1)
}

/// Names that a file has set, with their places.
type Set = Vec<(String, Range<usize>)>;

fn parse(text: &str) -> Result<Named, Wrong> {
    let document = DeTable::parse(text).map_err(|error| Wrong {
        at: error.span().map_or(0, |span| span.start),
        what: error.message().replace('\n', ", "),
    })?;
    let document = document.get_ref();
    for key in document.keys() {
        let known = ["base", "switches", "rules"];
        if !known.contains(&&**key.get_ref()) {
            return wrong(key.span(), elsewhere(key.get_ref(), &known));
        }
    }
    let Some(base) = document.get("base") else {
        let what = "the policy has no base: begin with a line such as base = \"linux\"";
        return wrong(0..0, what);
    };
    let mut named = preset(base)?;
    let mut set = Set::new();
    for (name, of) in [
        ("switches", setting::switches as Group),
        ("rules", setting::rules),
    ] {
        let Some(value) = document.get(name) else {
            continue;
        };
        let Some(table) = value.get_ref().as_table() else {
            return wrong(value.span(), format!("{name} must be a table: [{name}]"));
        };
        apply(table, "", of(&mut named.policy), &mut set)?;
    }
    let useless = setting::without_effect(&named.policy);
    for (name, span) in set {
        if let Some((_, why)) = useless.iter().find(|(useless, _)| *useless == name) {
            return wrong(span, format!("{name} contradicts the rest: {why}"));
        }
    }
    Ok(named)
}

/// Returns what is wrong with a name at the top of a file.
fn elsewhere(name: &str, known: &[&str]) -> String {
    for (place, of) in [
        ("switches", setting::switches as Group),
        ("rules", setting::rules),
    ] {
        if setting::names(of).contains(&name) {
            return format!("{name} belongs below [{place}]");
        }
    }
    let known_names = known.join(", ");
    let close = nearest(name, known);
    format!("there is no {name:?} in a policy{close}: use {known_names}")
}

fn preset(base: &Spanned<DeValue<'_>>) -> Result<Named, Wrong> {
    let Some(name) = base.get_ref().as_str() else {
        return wrong(
            base.span(),
            "base is the name of a preset, such as \"linux\"",
        );
    };
    if is_path(name) {
        let what = "the base of a policy is a preset, not another file";
        return wrong(base.span(), what);
    }
    if name.contains('+') {
        let what = "the base is a preset without switches: set them below [switches]";
        return wrong(base.span(), what);
    }
    own_policies::parse(name).or_else(|what| wrong(base.span(), what))
}

/// Sets everything in a table. A table within it is a group, whose name precedes those in it.
fn apply(
    table: &DeTable<'_>,
    group: &str,
    mut settings: Vec<Setting<'_>>,
    set: &mut Set,
) -> Result<(), Wrong> {
    let mut tables = vec![(group.to_owned(), table)];
    while let Some((group, table)) = tables.pop() {
        for (key, value) in table {
            let name = format!("{group}{}", key.get_ref());
            let in_group = format!("{name}.");
            let is_group = settings.iter().any(|one| one.name.starts_with(&in_group));
            if let Some(inner) = value.get_ref().as_table().filter(|_| is_group) {
                tables.push((in_group, inner));
                continue;
            }
            let known: Vec<_> = settings.iter().map(|one| one.name).collect();
            let Some(one) = settings.iter_mut().find(|one| one.name == name) else {
                let known_names = known.join(", ");
                let close = nearest(&name, &known);
                let what = format!("{name:?} is not known here{close}: use one of {known_names}");
                return wrong(key.span(), what);
            };
            if !word(value.get_ref()).is_some_and(|word| one.set(&word)) {
                return wrong(value.span(), format!("{name} takes {}", values(one)));
            }
            set.push((name, key.span()));
        }
    }
    Ok(())
}

/// Returns a value as the command line would give it.
fn word(value: &DeValue<'_>) -> Option<String> {
    if let Some(on) = value.as_bool() {
        return Some(if on { "on" } else { "off" }.to_owned());
    }
    if let Some(number) = value.as_integer() {
        return Some(number.as_str().replace('_', "")).filter(|_| number.radix() == 10);
    }
    value.as_str().map(str::to_owned)
}

/// Names the values that a setting takes in a file.
fn values(setting: &Setting<'_>) -> String {
    if setting.is_on_off() {
        return "true or false".to_owned();
    }
    let values = setting.values();
    match values[..] {
        ["PAGES"] => "a number of pages".to_owned(),
        ["NUMBER"] => "a number".to_owned(),
        _ => format!("\"{}\"", values.join("\" or \"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let Wrong { at, what } = parse(text).expect_err("an error");
        let (line, column) = position(text, at);
        format!("{line}:{column}: {what}")
    }

    #[test]
    fn every_setting_means_the_same_in_a_file_and_on_the_command_line() {
        for (place, of) in [
            ("switches", setting::switches as Group),
            ("rules", setting::rules),
        ] {
            for name in setting::names(of) {
                let mut vmarea = Policy::VMAREA;
                let values = of(&mut vmarea)
                    .iter()
                    .find(|one| one.name == name)
                    .map(|one| one.values())
                    .unwrap();
                for value in values {
                    let (shell, toml) = match value {
                        "on" => ("on", "true".to_owned()),
                        "off" => ("off", "false".to_owned()),
                        "PAGES" | "NUMBER" => ("64", "64".to_owned()),
                        word => (word, format!("\"{word}\"")),
                    };
                    // An option that excludes the other is an error in a file only.
                    let text = format!("base = \"vmarea\"\n[{place}]\n{name} = {toml}\n");
                    let Ok(from_file) = parse(&text) else {
                        assert!(error(&text).contains("contradicts"), "{text}");
                        continue;
                    };
                    let named = Policy::parse(&format!("vmarea+{name}={shell}")).unwrap();
                    assert_eq!(from_file, named, "{text}");
                }
            }
        }
    }

    #[test]
    fn groups_can_be_tables_or_dotted_names() {
        let dotted = parse("base = \"linux-6.12\"\n[rules]\nadvice.populate = false\n");
        let table = parse("base = \"linux-6.12\"\n[rules.advice]\npopulate = false\n");
        let (dotted, table) = (dotted.ok().unwrap(), table.ok().unwrap());
        assert_eq!(dotted, table);
        assert!(!table.policy.rules.advice.populate);
    }

    #[test]
    fn errors_have_a_line_a_column_and_the_nearest_name() {
        for (text, expected) in [
            (
                "base = \"lniux\"",
                "1:8: there is no policy lniux (did you mean linux?)",
            ),
            ("", "1:1: the policy has no base"),
            (
                "bsae = \"linux\"",
                "1:1: there is no \"bsae\" in a policy (did you mean base?)",
            ),
            (
                "base = \"linux\"\ncollector = true",
                "2:1: collector belongs below [switches]",
            ),
            ("base = 5", "1:8: base is the name"),
            ("base = \"linux\"\nrules = 1", "2:9: rules must be a table"),
            (
                "base = \"linux\"\n[rules]\n  brk_joins_nxt = true",
                "3:3: \"brk_joins_nxt\" is not known here (did you mean brk_joins_next?)",
            ),
            (
                "base = \"linux\"\n[rules.advice]\npopulte = true",
                "3:1: \"advice.populte\" is not known here (did you mean advice.populate?)",
            ),
            (
                "base = \"linux\"\n[switches]\ncollector = \"yes\"",
                "3:13: collector takes true or false",
            ),
            (
                "base = \"linux\"\n[switches]\ncopy_budget = -1",
                "3:15: copy_budget takes a number of pages",
            ),
            (
                "base = \"linux\"\n[switches]\nsharing = \"turth\"",
                "3:11: sharing takes \"thesis\" or \"truth\"",
            ),
        ] {
            let error = error(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        assert!(error("base = = 5").starts_with("1:8"));
        assert!(error("base = \"linux\"\nbase = \"vmarea\"").starts_with("2:1: duplicate key"));
    }

    #[test]
    fn a_base_of_a_base_is_refused() {
        assert!(error("base = \"other.toml\"").contains("not another file"));
        assert!(error("base = \"vmarea+collector\"").contains("below [switches]"));
    }

    #[test]
    fn a_setting_that_another_one_excludes_is_refused_where_it_is_set() {
        for (body, at) in [
            (
                "[switches]\neither_survives = true",
                "3:1: either_survives contradicts",
            ),
            (
                "[switches]\ndifferent_anon_vmas = true\ncopy_budget = 4",
                "4:1: copy_budget contradicts the rest: with sharing thesis",
            ),
            (
                "[rules]\nmseal = false\nseal_guards_dev_zero = true",
                "4:1: seal_guards_dev_zero contradicts the rest: mseal is off",
            ),
            (
                "[rules.advice]\nguard_flag = true\nguard_regions = false",
                "3:1: advice.guard_flag contradicts",
            ),
        ] {
            let error = error(&format!("base = \"linux\"\n{body}"));
            assert!(error.starts_with(at), "{body}: {error}");
        }
        // What only the base contains is not the author's.
        assert!(parse("base = \"linux\"\n[rules]\nmseal = false").is_ok());
    }

    #[test]
    fn what_is_no_policy_is_refused_by_its_path() {
        let folder = std::env::temp_dir().join(format!("policies-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let huge = folder.join("huge.toml");
        std::fs::write(&huge, vec![b'#'; 70_000]).unwrap();
        let binary = folder.join("binary.toml");
        std::fs::write(&binary, [b'#', 0xff]).unwrap();
        for (path, expected) in [
            (huge, "more than 64 KiB"),
            (binary, "byte 2 is not UTF-8"),
            (folder.join("absent.toml"), "cannot read the policy"),
            (folder.clone(), "cannot read the policy"),
            ("/dev/zero".into(), "more than 64 KiB"),
        ] {
            let path = path.to_str().unwrap();
            let error = read(path).unwrap_err();
            assert!(error.contains(expected) && error.contains(path), "{error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
