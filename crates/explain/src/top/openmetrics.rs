//! A sample as OpenMetrics text, for the textfile collector of Prometheus' node exporter.

use super::Look;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::fmt;

type Labels = [(&'static str, String); 2];

/// Writes the sample as text.
///
/// # Errors
/// Any error from writing to `out`.
pub fn write(look: &Look, out: &mut impl fmt::Write) -> fmt::Result {
    let mut registry = Registry::with_prefix("vmarea");
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    for (name, help, value) in [
        (
            "max_map_count",
            "Mappings that a process may have",
            look.limit,
        ),
        ("processes", "Processes with mappings", look.processes),
        (
            "processes_unreadable",
            "Processes that may not be looked into",
            look.unreadable,
        ),
    ] {
        let gauge: Gauge = Gauge::default();
        gauge.set(number(value));
        registry.register(name, help, gauge);
    }
    let mappings: Family<Labels, Gauge> = Family::default();
    let joinable: Family<Labels, Gauge> = Family::default();
    for row in &look.rows {
        let labels = [("pid", row.pid.to_string()), ("name", escaped(&row.name))];
        mappings.get_or_create(&labels).set(number(row.mappings));
        if let Some(known) = row.joinable {
            joinable.get_or_create(&labels).set(number(known));
        }
    }
    registry.register("process_mappings", "Mappings of a process", mappings);
    registry.register(
        "process_mappings_joinable",
        "Mappings of a process that could be merged, if known",
        joinable,
    );
    encode(out, &registry)
}

/// Escapes a label value, which the OpenMetrics library does not do itself. Control characters are
/// written as `\u{1b}`, so that a terminal on which the file is printed does not obey them.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            // The backslash of the escape is escaped itself.
            control if control.is_control() => {
                text.push('\\');
                text.extend(control.escape_unicode());
            }
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::ProcessRow;
    use super::*;
    use vmarea::policy::kernel::KernelRules;
    use vmarea_process::kernel::RulesBasis;

    #[test]
    fn names_are_escaped_and_the_end_is_marked() {
        let look = Look {
            rules: RulesBasis::from(&KernelRules::of("6.18.0", "")),
            schema: 2,
            limit: 65_530,
            processes: 1,
            unreadable: 0,
            took_ns: 1,
            rows: vec![ProcessRow {
                pid: 7,
                name: "a\"b\\c\nd\u{1b}[2J\r\u{9b}".to_owned(),
                command_line: String::new(),
                user: "root".to_owned(),
                container: None,
                cgroup: String::new(),
                mappings: 12,
                percent_of_limit: 0.1,
                per_minute: None,
                minutes_to_limit: None,
                joinable: Some(3),
                virtual_bytes: 4096,
            }],
        };
        let mut text = String::new();
        write(&look, &mut text).unwrap();
        let name = r#"a\"b\\c\nd\\u{1b}[2J\\u{d}\\u{9b}"#;
        let line = format!("vmarea_process_mappings{{pid=\"7\",name=\"{name}\"}} 12\n");
        assert!(text.contains(&line), "{text}");
        let controls = text.chars().filter(|c| c.is_control() && *c != '\n');
        assert_eq!(controls.count(), 0, "{text:?}");
        assert!(text.contains("vmarea_max_map_count 65530\n"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
