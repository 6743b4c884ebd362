//! The repairs that help a process, the safe ones first, each with its command and its result.
//!
//! A repair is safe if the program cannot notice it: merging by moving pages, and joining empty
//! reservations. The other repairs can change what the program does; each is predicted on the
//! mappings that the safe repairs leave. [`vmarea_process::plan`] predicts the results, as it does
//! for the dry run of `vmarea merge`.

use super::estimate::{Cost, DEFAULT_PAUSE, Work, pause_needed_ms};
use serde::Serialize;
use std::collections::HashSet;
use std::time::Duration;
use vmarea_process::pages::{LivePages, Pages, UnknownPages};
use vmarea_process::plan::{Prediction, predict};
use vmarea_process::{Boundary, Process, Remedy};

/// Repairs that the program cannot notice.
const SAFE: [Remedy; 2] = [Remedy::Empties, Remedy::Merge];
/// Repairs that can change what the program does.
const UNSAFE: [Remedy; 3] = [Remedy::Flags, Remedy::Guards, Remedy::Copy];
/// Bytes of kernel memory per mapping: `vm_area_struct` (192), `anon_vma_chain` (64) and `anon_vma`
/// (104), in Linux 6.18.
pub const KERNEL_BYTES: u64 = 192 + 64 + 104;

/// Result of a command that repairs the process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stage {
    /// Names of the repairs.
    pub fixes: Vec<&'static str>,
    /// Number of mappings of the process before the command.
    pub before: u64,
    /// Number of mappings of the process after the command.
    pub after: u64,
    /// Number of boundaries that are expected to disappear but may remain, because their state
    /// cannot be read without stopping the process.
    pub may_remain: u64,
    /// Command that makes the repairs, if they save anything.
    pub command: Option<String>,
    /// Effect that the program may notice; absent for a safe repair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<&'static str>,
    /// Estimated cost.
    #[serde(flatten)]
    pub cost: Cost,
}

impl Stage {
    /// Returns the number of mappings that the command saves.
    pub fn saved(&self) -> u64 {
        self.before.saturating_sub(self.after)
    }
}

/// A higher limit, which only buys time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stopgap {
    /// Command that sets the limit.
    pub command: String,
    /// Kernel memory that the additional mappings would use, in bytes, if all were used.
    pub kernel_bytes_at_most: u64,
}

/// The repairs of a process, and what each leaves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Plan {
    /// All repairs that the program cannot notice.
    pub safe: Stage,
    /// Further repairs, each after the safe ones; most savings first. The last one combines all of
    /// them if there are several.
    pub not_safe: Vec<Stage>,
    /// A higher limit.
    pub stopgap: Stopgap,
    /// Start addresses of the mappings that remain after all repairs together; `None` if all do.
    #[serde(skip)]
    pub(crate) left: Option<HashSet<u64>>,
}

impl Plan {
    /// Predicts the repairs of `process`, whose boundaries these are.
    pub fn of(process: &Process, boundaries: &[Boundary]) -> Plan {
        let live = process.pid.and_then(|pid| LivePages::open(pid).ok());
        let pages = live
            .as_ref()
            .map_or(&UnknownPages as &dyn Pages, |live| live);
        let planner = Planner { process, pages };
        let all = process.mappings.len();
        if boundaries.iter().all(|boundary| boundary.remedy.is_none()) {
            return Plan {
                left: None,
                safe: planner.stage(&Prediction::default(), (all, all), &SAFE, None),
                not_safe: Vec::new(),
                stopgap: Stopgap::of(process.total, process.limit_or_default()),
            };
        }
        let safe = planner.predict(&process.mappings, &SAFE);
        // Boundaries that the safe repairs leave have the remedies that they had before.
        let has = |remedy: &&Remedy| boundaries.iter().any(|b| b.remedy == Some(**remedy));
        let mut stages: Vec<_> = UNSAFE
            .iter()
            .filter(has)
            .map(|&remedy| planner.unsafe_stage(&safe, &[remedy]))
            .filter(|(stage, _)| stage.saved() > 0)
            .collect();
        stages.sort_by_key(|(stage, _)| stage.after);
        if stages.len() > 1 {
            let helps = |remedy: &&Remedy| {
                stages
                    .iter()
                    .any(|(stage, _)| stage.fixes.contains(&remedy.name()))
            };
            let all: Vec<_> = UNSAFE.iter().filter(helps).copied().collect();
            stages.push(planner.unsafe_stage(&safe, &all));
        }
        let least = stages.iter().min_by_key(|(stage, _)| stage.after);
        let left = least.map_or(&safe, |(_, then)| then).mappings.iter();
        Plan {
            left: Some(left.map(|mapping| mapping.entry.start).collect()),
            safe: planner.stage(&safe, (all, safe.mappings.len()), &SAFE, None),
            not_safe: stages.into_iter().map(|(stage, _)| stage).collect(),
            stopgap: Stopgap::of(process.total, process.limit_or_default()),
        }
    }

    /// Returns true if the repairs together remove the boundary below the mapping at `start`.
    pub(crate) fn removes(&self, start: u64) -> bool {
        let left = self.left.as_ref();
        left.is_some_and(|left| !left.contains(&start))
    }

    /// Returns the number of mappings that all repairs together save.
    pub fn saved(&self) -> u64 {
        let least = self.not_safe.iter().map(|stage| stage.after).min();
        self.safe.before - least.map_or(self.safe.after, |least| least.min(self.safe.after))
    }

    /// Returns the stages in the order in which to try them.
    pub fn stages(&self) -> impl Iterator<Item = &Stage> {
        std::iter::once(&self.safe).chain(&self.not_safe)
    }
}

impl Stopgap {
    /// Returns the limit as a power of two that is at least four times the present limit.
    pub fn of(mappings: u64, limit: u64) -> Stopgap {
        let room = mappings.max(limit).saturating_mul(4);
        let most = (1 << 31) - 1;
        let number = room.checked_next_power_of_two().unwrap_or(most).min(most);
        Stopgap {
            command: format!("sysctl -w vm.max_map_count={number}"),
            kernel_bytes_at_most: number.saturating_sub(limit) * KERNEL_BYTES,
        }
    }
}

struct Planner<'a> {
    process: &'a Process,
    pages: &'a dyn Pages,
}

impl Planner<'_> {
    /// Predicts the result of the remedies.
    fn predict(&self, mappings: &[vmarea_process::Mapping], remedies: &[Remedy]) -> Prediction {
        let copies = match remedies.contains(&Remedy::Copy) {
            true => u64::MAX,
            false => 0,
        };
        let mut steps: Vec<_> = remedies
            .iter()
            .copied()
            .filter(|r| !r.takes_pages())
            .collect();
        steps.push(Remedy::Merge);
        predict(&self.process.policy, mappings, &steps, copies, self.pages)
    }

    fn unsafe_stage(&self, safe: &Prediction, remedies: &[Remedy]) -> (Stage, Prediction) {
        let then = self.predict(&safe.mappings, remedies);
        let risk = remedies.iter().map(|&remedy| risk(remedy)).next_back();
        let risk = match remedies.len() {
            1 => risk,
            _ => Some("all of these together"),
        };
        let counts = (safe.mappings.len(), then.mappings.len());
        let stage = self.stage(&then, counts, remedies, risk);
        (stage, then)
    }

    fn stage(
        &self,
        then: &Prediction,
        (before, after): (usize, usize),
        remedies: &[Remedy],
        risk: Option<&'static str>,
    ) -> Stage {
        let looked_at = self.process.mappings.len() as u64;
        let elsewhere = self.process.total.saturating_sub(looked_at);
        let (before, after) = (before as u64 + elsewhere, after as u64 + elsewhere);
        let used = remedies
            .iter()
            .filter(|remedy| **remedy != Remedy::Empties || then.changed > 0);
        Stage {
            fixes: used.map(|remedy| remedy.name()).collect(),
            before,
            after,
            may_remain: then.may_remain,
            command: (after < before).then(|| self.command(then, remedies)),
            risk,
            cost: Cost::of(
                &Work::of(then, self.process.anonymous_bytes),
                self.threads(),
                self.pause_ms().map_or(DEFAULT_PAUSE, Duration::from_millis),
            ),
        }
    }

    fn threads(&self) -> u64 {
        self.process.threads.unwrap_or(1)
    }

    /// Returns the pause that the command must permit; `None` if the default is enough.
    fn pause_ms(&self) -> Option<u64> {
        pause_needed_ms(self.threads())
    }

    fn command(&self, then: &Prediction, remedies: &[Remedy]) -> String {
        let pid = self.process.pid;
        let pid = pid.map_or("PID".to_owned(), |pid| pid.to_string());
        let fixes: Vec<_> = remedies
            .iter()
            .filter(|remedy| !remedy.takes_pages() && then.changed > 0)
            .map(|remedy| remedy.name())
            .collect();
        let mut command = format!("vmarea merge -p {pid}");
        if !fixes.is_empty() {
            command += &format!(" --fix {}", fixes.join(","));
        }
        if then.copies > 0 {
            command += &format!(" --copy {}", then.copies);
        }
        if let Some(pause) = self.pause_ms() {
            command += &format!(" --max-pause {pause}ms");
        }
        command + " --apply"
    }
}

/// Returns what the program may notice of a remedy.
fn risk(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::Guards => "a guard that the program makes writable later still faults",
        Remedy::Flags => {
            "a fork copies memory marked MADV_DONTFORK, and a core dump contains memory marked \
             MADV_DONTDUMP"
        }
        Remedy::Copy => "pages shared since a fork or by KSM are copied and use more memory",
        Remedy::Merge | Remedy::Empties => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(lines: &[(&str, &str)]) -> Process {
        let mut text = String::new();
        for (n, (perms, letters)) in lines.iter().enumerate() {
            let start = 0x1000_0000 + n * 0x1000;
            text += &format!(
                "{start:x}-{:x} {perms} 00000000 00:00 0\nVmFlags: {letters}\n",
                start + 0x1000
            );
        }
        Process::from_text("text".to_owned(), text.as_bytes()).unwrap()
    }

    fn plan(lines: &[(&str, &str)]) -> Plan {
        let process = process(lines);
        Plan::of(&process, &process.boundaries())
    }

    const RW: (&str, &str) = ("rw-p", "rd wr mr mw me ac");
    const DONTFORK: (&str, &str) = ("rw-p", "rd wr mr mw me dc ac");
    const GUARD: (&str, &str) = ("---p", "mr mw me ac");

    #[test]
    fn safe_repairs_come_first_and_unsafe_ones_continue_from_there() {
        let plan = plan(&[RW, RW, RW, GUARD, RW, DONTFORK, RW]);
        assert_eq!((plan.safe.before, plan.safe.after), (7, 5));
        let command = "vmarea merge -p PID --apply";
        assert_eq!(plan.safe.command.as_deref(), Some(command));
        let after: Vec<_> = plan
            .not_safe
            .iter()
            .map(|s| (s.fixes.clone(), s.after))
            .collect();
        let (flags, guards) = (vec!["flags"], vec!["guards"]);
        let both = vec!["flags", "guards"];
        assert_eq!(after, [(flags, 3), (guards, 4), (both, 2)]);
        assert!(
            plan.not_safe
                .iter()
                .all(|stage| stage.before == 5 && stage.risk.is_some())
        );
        assert_eq!(plan.saved(), 5);
    }

    #[test]
    fn stacks_with_guards_between_keep_their_memory() {
        let stacks: Vec<_> = [GUARD, RW].into_iter().cycle().take(2_001).collect();
        let plan = plan(&stacks);
        let [guards] = &plan.not_safe[..] else {
            panic!("{plan:?}");
        };
        // Each guard but those at the ends joins the stack below it.
        assert_eq!((guards.before, guards.after), (2_001, 1_002));
    }

    #[test]
    fn nothing_to_repair_has_no_command() {
        let plan = plan(&[RW, ("r--p", "rd mr mw me")]);
        assert_eq!((plan.safe.command, plan.not_safe.len()), (None, 0));
    }

    #[test]
    fn a_higher_limit_has_its_price() {
        let stopgap = Stopgap::of(64_000, 65_530);
        assert_eq!(stopgap.command, "sysctl -w vm.max_map_count=262144");
        assert_eq!(stopgap.kernel_bytes_at_most, (262_144 - 65_530) * 360);
    }
}
