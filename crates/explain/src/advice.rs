//! Advice: one next step with its exact command.
//!
//! Merging is advised if it removes a worthwhile part of the mappings. A higher limit is advised
//! only if nothing else helps and the process is near its limit. If a leak accounts for more
//! mappings than a repair would save, the advice is to stop the leak.

use super::estimate::Saving;
use super::findings::{Finding, Kind};
use serde::Serialize;

/// Recommended next step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Advice {
    /// Advice as a sentence.
    pub text: String,
    /// Command that carries out the advice, if there is one.
    pub command: Option<String>,
}

/// Input data on which the advice depends.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// Process ID, if there is one.
    pub pid: Option<i32>,
    /// Command line of the program, if the program was started in order to be examined.
    pub command: Option<&'a [String]>,
    /// Number of mappings of the process.
    pub mappings: u64,
    /// Maximum number of mappings that the process may have.
    pub limit: u64,
    /// Savings per remedy.
    pub savings: &'a [Saving],
    /// Conspicuous patterns found in the list of mappings.
    pub findings: &'a [Finding],
}

impl Situation<'_> {
    /// Returns the recommended next step.
    pub fn advice(&self) -> Advice {
        let joinable: u64 = self.savings.iter().map(|saving| saving.mappings).sum();
        let near = self.mappings.saturating_mul(2) >= self.limit;
        let leak = self.findings.iter().find(|f| f.kind == Kind::Leak);
        if let Some(leak) = leak.filter(|leak| leak.mappings > joinable) {
            return self.of_leak(leak, near);
        }
        // A repair is worthwhile if it saves 1,000 mappings, or 5 % when a quarter of the limit is
        // used.
        let matters = self.mappings.saturating_mul(4) >= self.limit;
        let worthwhile = joinable >= 1_000 || (matters && joinable * 20 >= self.mappings);
        if worthwhile {
            return self.join(joinable);
        }
        let little = match joinable {
            0 => "no boundary can be removed".to_owned(),
            1 => "only 1 mapping could be merged".to_owned(),
            n => format!("only {n} mappings could be merged"),
        };
        if near {
            return Advice {
                text: format!("{little}: the mappings are there for a reason; raise the limit"),
                command: Some(self.raise()),
            };
        }
        Advice {
            text: format!("nothing to do: {little}, and the limit is far away"),
            command: None,
        }
    }

    fn join(&self, joinable: u64) -> Advice {
        let text = format!(
            "merge them: {} mappings become about {}",
            self.mappings,
            self.mappings - joinable
        );
        if let Some(words) = self.command {
            return merged_from_the_start(text, words);
        }
        let pid = self.pid.map_or("PID".to_owned(), |pid| pid.to_string());
        let repairs = ["guards", "flags", "empties"];
        let fixes = repairs.into_iter();
        let fixes: Vec<_> = fixes
            .filter(|name| self.savings.iter().any(|saving| saving.fix == *name))
            .collect();
        let mut command = format!("vmarea merge -p {pid}");
        if !fixes.is_empty() {
            command += &format!(" --fix {}", fixes.join(","));
        }
        if let Some(copy) = self.savings.iter().find(|saving| saving.fix == "copy") {
            let pages = copy.bytes_at_most / vmarea::types::PAGE_SIZE;
            command += &format!(" --copy {}", pages.max(1));
        }
        Advice {
            text,
            command: Some(command + " --apply"),
        }
    }

    fn of_leak(&self, leak: &Finding, near: bool) -> Advice {
        let mut text = format!(
            "stop the leak: its {} mappings can only be unmapped by the program",
            leak.mappings
        );
        if near {
            text += "; a higher limit buys time";
        }
        Advice {
            text,
            command: Some(if near {
                self.raise()
            } else {
                "vmarea explain --stacks -- COMMAND".to_owned()
            }),
        }
    }

    /// Returns a command that sets the limit to a power of two, at least four times the present
    /// limit.
    fn raise(&self) -> String {
        let room = self.mappings.max(self.limit).saturating_mul(4);
        let number = room.checked_next_power_of_two().unwrap_or(1 << 31);
        format!("sysctl -w vm.max_map_count={}", number.min((1 << 31) - 1))
    }
}

/// Advises restarting the program with merging enabled, so that no repair is needed.
fn merged_from_the_start(text: String, words: &[String]) -> Advice {
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    Advice {
        text: format!(
            "{text}; or touch one page of each reservation first (priming), so that its pieces \
             share an anon_vma"
        ),
        command: Some(format!("vmarea run --keep-merged -- {}", words.join(" "))),
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saving(fix: &'static str, mappings: u64) -> Saving {
        Saving {
            fix,
            mappings,
            runs: 1,
            bytes_at_most: 8192,
            total_ns: 1,
            pause_ns: 1,
        }
    }

    fn advice(mappings: u64, savings: &[Saving], findings: &[Finding]) -> Advice {
        let situation = Situation {
            pid: Some(7),
            command: None,
            mappings,
            limit: 65_530,
            savings,
            findings,
        };
        situation.advice()
    }

    #[test]
    fn many_joinable_mappings_are_joined_with_the_repairs_that_save() {
        let all = [saving("merge", 5_000), saving("guards", 300)];
        let advice = advice(6_000, &all, &[]);
        let command = "vmarea merge -p 7 --fix guards --apply";
        assert_eq!(advice.command.as_deref(), Some(command));
        assert!(advice.text.contains("about 700"), "{}", advice.text);
    }

    #[test]
    fn a_command_is_started_again_merged() {
        let words = ["sh".to_owned(), "-c".to_owned(), "it's".to_owned()];
        let advice = merged_from_the_start(String::new(), &words);
        let command = "vmarea run --keep-merged -- sh -c 'it'\\''s'";
        assert_eq!(advice.command.as_deref(), Some(command));
    }

    #[test]
    fn nothing_is_advised_where_nothing_is_wrong() {
        let advice = advice(400, &[saving("merge", 3)], &[]);
        assert_eq!(advice.command, None);
        assert!(advice.text.starts_with("nothing to do"), "{}", advice.text);
    }

    #[test]
    fn the_limit_is_raised_where_nothing_else_helps() {
        let advice = advice(64_000, &[], &[]);
        let command = "sysctl -w vm.max_map_count=262144";
        assert_eq!(advice.command.as_deref(), Some(command));
    }

    #[test]
    fn a_leak_is_no_case_for_a_repair() {
        let leak = Finding {
            kind: Kind::Leak,
            mappings: 30_000,
            text: String::new(),
        };
        let advice = advice(33_000, &[saving("merge", 2_000)], &[leak]);
        assert!(advice.text.starts_with("stop the leak"), "{}", advice.text);
    }
}
