//! Advice: one next step with its exact command.
//!
//! Merging is advised if it removes a worthwhile part of the mappings; a repair that the program
//! could notice only if the safe repairs do not help. A higher limit is advised only if nothing else
//! helps and the process is near its limit. Where `/proc` or a list hides what decides a merge, the
//! result of a repair is not promised.

use super::causes::Cause;
use super::plan::{Plan, Stage};
use super::recorded::Recorded;
use super::text::count;
use serde::Serialize;

/// Recommended next step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Advice {
    /// Advice as a sentence.
    pub text: String,
    /// Command that carries out the advice, if there is one.
    pub command: Option<String>,
}

/// Input data on which the advice depends.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// Number of mappings of the process.
    pub mappings: u64,
    /// Maximum number of mappings that the process may have; `None` if the list does not say it, or
    /// if mappings are missing from the list.
    pub limit: Option<u64>,
    /// Repairs and what they leave.
    pub plan: &'a Plan,
    /// Causes that are known by name.
    pub causes: &'a [Cause],
    /// True if anon_vmas are hidden, so that nobody can say which mappings would merge.
    pub is_hidden: bool,
}

impl Situation<'_> {
    /// Returns the recommended next step for a process.
    pub fn advice(&self) -> Advice {
        let saved = self.plan.saved();
        if let Some(cause) = self.causes.first().filter(|cause| cause.is_of_space()) {
            return Advice {
                text: format!("{}; the number of mappings is not the reason", cause.text),
                command: None,
            };
        }
        let mut stages = self.plan.stages();
        if let Some(stage) = stages.find(|stage| self.is_worthwhile(stage.saved())) {
            return match self.is_hidden {
                true => self.not_promised(stage),
                false => of_stage(stage),
            };
        }
        let little = match saved {
            0 => "no boundary can be removed".to_owned(),
            1 => "only 1 mapping could be merged".to_owned(),
            n if self.is_hidden => format!("at most {} mappings could be merged", count(n)),
            n => format!("only {} mappings could be merged", count(n)),
        };
        if self.uses_part_of_limit(2) {
            let meanwhile = match self.causes.is_empty() {
                true => "the mappings are there for a reason; raise the limit",
                false => "only the program can help; until then, raise the limit",
            };
            return Advice {
                text: format!("{little}: {meanwhile}"),
                command: Some(self.plan.stopgap.command.clone()),
            };
        }
        if self.limit.is_none() {
            return Advice {
                text: format!("{little}; how near the limit is, the list does not say"),
                command: None,
            };
        }
        let nothing = match (self.causes.is_empty(), saved) {
            (false, _) => "not urgent",
            (true, 0) => "nothing to do",
            (true, _) => "nothing urgent",
        };
        Advice {
            text: format!("{nothing}: {little}, and less than half of the limit is used"),
            command: None,
        }
    }

    /// Returns the advice for a repair of which nobody can say what it would do.
    fn not_promised(&self, stage: &Stage) -> Advice {
        Advice {
            text: format!(
                "not known: up to {} of {} mappings might be merged ({}); which of them is hidden here: \
                 vmarea explain -p PID, as root on the machine of the process, tells",
                count(stage.saved()),
                count(stage.before),
                stage.fixes.join(", ")
            ),
            command: None,
        }
    }

    /// Returns the recommended next step for a recorded program.
    ///
    /// A change to the program is advised if a replay has checked it. The program has ended, so no
    /// repair of it can be checked, and its advice has no count.
    pub fn advice_for_command(&self, recorded: &Recorded) -> Advice {
        let checked = recorded.prevented.iter().any(|change| {
            let saved = change.after.map_or(0, |after| change.before - after);
            self.is_worthwhile(saved)
        });
        if checked {
            return Advice {
                text: "change the program; each count below is that of a replay".to_owned(),
                command: None,
            };
        }
        if !self.is_worthwhile(self.plan.safe.saved()) {
            return match self.is_worthwhile(self.plan.saved()) {
                // The prediction for a recording does not know which pages are filled.
                true => Advice {
                    text: format!(
                        "repairs that are not safe ({}) would save up to {} mappings while the \
                         program runs: vmarea explain -p PID names their commands",
                        self.unsafe_fixes(),
                        count(self.plan.saved())
                    ),
                    command: None,
                },
                false => Advice {
                    command: None,
                    ..self.advice()
                },
            };
        }
        let words: Vec<_> = recorded.command.iter().map(|word| quoted(word)).collect();
        Advice {
            text: "run it with --keep-merged, which merges while the program runs (how many \
                   mappings this leaves was not checked)"
                .to_owned(),
            command: Some(format!("vmarea run --keep-merged -- {}", words.join(" "))),
        }
    }

    /// Returns the names of all repairs that are not safe and that help.
    fn unsafe_fixes(&self) -> String {
        let all = self.plan.not_safe.last();
        all.map_or(String::new(), |stage| stage.fixes.join(", "))
    }

    /// A repair is worthwhile if it saves 1,000 mappings, or 5 % when a quarter of the limit is
    /// used.
    pub fn is_worthwhile(&self, saved: u64) -> bool {
        let matters = self.uses_part_of_limit(4);
        saved >= 1_000 || (matters && saved * 20 >= self.mappings)
    }

    /// True if the mappings are known to be at least one `part`th of the limit.
    fn uses_part_of_limit(&self, part: u64) -> bool {
        self.limit
            .is_some_and(|limit| self.mappings.saturating_mul(part) >= limit)
    }
}

fn of_stage(stage: &Stage) -> Advice {
    let mut text = match stage.risk {
        None => "safe: the program cannot notice that its mappings are merged".to_owned(),
        Some(risk) => format!("not safe ({}): {risk}", stage.fixes.join(", ")),
    };
    let (before, after) = (count(stage.before), count(stage.after));
    text += &format!("; {before} mappings become {after}");
    if stage.may_remain > 0 {
        text += &format!(", or up to {} more", count(stage.may_remain));
    }
    Advice {
        text,
        command: stage.command.clone(),
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
    use crate::estimate::Cost;
    use crate::plan::Stopgap;

    fn stage(fixes: &[&'static str], before: u64, after: u64) -> Stage {
        Stage {
            fixes: fixes.to_vec(),
            before,
            after,
            may_remain: 0,
            command: (after < before).then(|| fixes.join(",")),
            risk: (fixes != ["merge"]).then_some("it matters"),
            cost: Cost::default(),
        }
    }

    fn advice(stages: &[Stage], is_hidden: bool) -> Advice {
        let mappings = stages[0].before;
        let plan = Plan {
            safe: stages[0].clone(),
            not_safe: stages[1..].to_vec(),
            stopgap: Stopgap::of(mappings, 65_530),
            left: None,
        };
        let situation = Situation {
            mappings,
            limit: Some(65_530),
            plan: &plan,
            causes: &[],
            is_hidden,
        };
        situation.advice()
    }

    #[test]
    fn safe_repairs_are_advised_before_unsafe_ones_that_save_more() {
        let stages = [
            stage(&["merge"], 6_000, 4_000),
            stage(&["guards"], 4_000, 10),
        ];
        let advice = advice(&stages, false);
        assert_eq!(advice.command.as_deref(), Some("merge"));
        assert!(advice.text.starts_with("safe"), "{}", advice.text);
    }

    #[test]
    fn an_unsafe_repair_is_advised_with_its_risk_if_nothing_else_helps() {
        let stages = [
            stage(&["merge"], 6_000, 5_990),
            stage(&["guards"], 5_990, 10),
        ];
        let advice = advice(&stages, false);
        assert_eq!(advice.command.as_deref(), Some("guards"));
        let text = "not safe (guards): it matters; 5,990 mappings become 10";
        assert_eq!(advice.text, text);
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("a-b/c"), "a-b/c");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn nothing_is_advised_where_nothing_is_wrong() {
        let advice = advice(&[stage(&["merge"], 400, 397)], false);
        assert_eq!(advice.command, None);
        assert!(advice.text.starts_with("nothing urgent"), "{}", advice.text);
    }

    #[test]
    fn the_limit_is_raised_where_nothing_else_helps() {
        let advice = advice(&[stage(&["merge"], 64_000, 64_000)], false);
        let command = "sysctl -w vm.max_map_count=262144";
        assert_eq!(advice.command.as_deref(), Some(command));
    }

    #[test]
    fn nothing_is_promised_where_anon_vmas_are_hidden() {
        let stages = [
            stage(&["merge"], 6_000, 5_990),
            stage(&["guards"], 5_990, 10),
        ];
        let advice = advice(&stages, true);
        assert_eq!(advice.command, None);
        let text = "not known: up to 5,980 of 5,990 mappings might be merged (guards)";
        assert!(advice.text.starts_with(text), "{}", advice.text);
    }
}
