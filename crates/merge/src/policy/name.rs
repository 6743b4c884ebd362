//! Policy names: a preset or `linux-MAJOR.MINOR`, plus switches, as in `vmarea+copy_budget=64`.
//! The rules of a kernel are set in the same way. A comma separates settings as `+` does.
//!
//! ```text
//! NAME[+SETTING[=VALUE]]...     vmarea+collector+copy_budget=64     linux-6.12+sharing=truth,mseal=on
//! ```

use super::setting::{self, rules, switches};
use super::{MergePolicy, Policy, Rules};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A policy that a user selected by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// The policy. Its name is that of the preset, without the switches.
    pub policy: Policy,
    /// Remark for the user if the rules are those of another Linux version.
    pub note: Option<String>,
}

impl Policy {
    /// Returns the policy with the given name, which can include switches and rules.
    ///
    /// # Errors
    /// A message for the user: for an unknown name with the most similar one, and for a setting
    /// that has no effect because another one excludes it.
    ///
    /// ```
    /// use vmarea_merge::policy::Policy;
    ///
    /// let named = Policy::parse("linux-6.6+collector").unwrap();
    /// assert_eq!(named.policy.rules, Policy::LINUX_6_1.rules);
    /// assert!(named.policy.merging.collector && named.note.is_some());
    /// assert!(Policy::parse("vmaera").unwrap_err().contains("did you mean vmarea?"));
    /// ```
    pub fn parse(text: &str) -> Result<Named, String> {
        Policy::parse_among(text, &[])
    }

    /// Like [`parse`](Policy::parse), but also knows rules written in Rust by their names.
    ///
    /// # Errors
    /// Those of [`parse`](Policy::parse).
    ///
    /// The trait [`MergePolicy`] has an example.
    pub fn parse_among(text: &str, own: &[&'static dyn MergePolicy]) -> Result<Named, String> {
        let (base, switches) = match text.split_once('+') {
            Some((base, switches)) => (base, Some(switches)),
            None => (text, None),
        };
        let own_rule = own.iter().find(|own| own.name() == base);
        let of_own = || own_rule.map(|own| Policy::of(*own));
        let preset = Policy::by_name(base).or_else(of_own);
        let mut named = preset
            .map(|policy| Named { policy, note: None })
            .or_else(|| of_version(base))
            .ok_or_else(|| unknown_policy(base, own))?;
        let settings = || switches.iter().flat_map(|all| all.split(['+', ',']));
        for setting in settings() {
            set(&mut named.policy, setting)?;
        }
        let useless = setting::without_effect(&named.policy);
        for setting in settings() {
            let name = setting.split('=').next().unwrap_or(setting);
            if let Some((_, why)) = useless.iter().find(|(useless, _)| *useless == name) {
                return Err(format!("{name} contradicts the rest of {text}: {why}"));
            }
        }
        Ok(named)
    }
}

/// Returns the policy for a name that consists of `linux-` and a version, such as `linux-6.6`.
///
/// If the version in the name has no verified rules, returns the policy with the nearest rules and
/// a remark. Returns `None` if the name does not consist of `linux-` and a version.
fn of_version(name: &str) -> Option<Named> {
    let mut numbers = name.strip_prefix("linux-")?.split('.');
    let version = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    let rules = Rules::of(version);
    let policy = Policy {
        name: name_of(&rules),
        rules,
        ..Policy::LINUX
    };
    let note = doubt(&rules, version);
    Some(Named { policy, note })
}

/// Returns a remark if `rules` are used for a Linux version for which they are not verified.
///
/// ```
/// use vmarea_merge::policy::{Rules, name::doubt};
///
/// assert_eq!(doubt(&Rules::V6_18, (6, 18)), None);
/// let remark = "there are no verified rules for Linux 6.20: using those of Linux 6.18";
/// assert_eq!(doubt(&Rules::V6_18, (6, 20)).as_deref(), Some(remark));
/// ```
pub fn doubt(rules: &Rules, (major, minor): (u32, u32)) -> Option<String> {
    if rules.version != (major, minor) {
        let (other, sub) = rules.version;
        Some(format!(
            "there are no verified rules for Linux {major}.{minor}: using those of Linux {other}.{sub}"
        ))
    } else if !rules.are_verified() {
        Some(format!(
            "the rules of Linux {major}.{minor} are known from its sources only"
        ))
    } else {
        None
    }
}

/// Returns the name that selects the rules by their version.
fn name_of(rules: &Rules) -> &'static str {
    match rules.version {
        (7, 3) => "linux-7.3",
        (7, 2) => "linux-7.2",
        (7, 1) => "linux-7.1",
        (7, 0) => "linux-7.0",
        (6, 19) => "linux-6.19",
        (6, 18) => "linux-6.18",
        (6, 17) => "linux-6.17",
        (6, 16) => "linux-6.16",
        (6, 14) => "linux-6.14",
        (6, 13) => "linux-6.13",
        (6, 12) => "linux-6.12",
        (6, 1) => "linux-6.1",
        (5, 18) => "linux-5.18",
        _ => "linux-5.10",
    }
}

fn unknown_policy(name: &str, own: &[&'static dyn MergePolicy]) -> String {
    let presets = Policy::PRESETS.map(|preset| preset.name);
    let known: Vec<_> = presets
        .into_iter()
        .chain(own.iter().map(|own| own.name()))
        .collect();
    format!(
        "there is no policy {name}{}: use one of {}, or linux-MAJOR.MINOR",
        nearest(name, &known),
        known.join(", ")
    )
}

fn set(policy: &mut Policy, text: &str) -> Result<(), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let of = if setting::names(switches).contains(&name) {
        switches
    } else {
        rules
    };
    let mut all = of(policy);
    let found = all.iter_mut().find(|setting| setting.name == name);
    let setting = found.ok_or_else(|| unknown_switch(name))?;
    let value = value.or(setting.is_on_off().then_some("on"));
    if value.is_some_and(|value| setting.set(value)) {
        return Ok(());
    }
    let mut forms: Vec<String> = Vec::new();
    forms.extend(setting.is_on_off().then(|| name.into()));
    let values = setting.values();
    forms.extend(values.iter().map(|value| format!("{name}={value}")));
    let last = forms.pop().unwrap_or_default();
    let before = forms.join(", ");
    let or = if forms.is_empty() { "" } else { " or " };
    let what = format!("{before}{or}{last}");
    Err(format!("the policy switch {name} is given as {what}"))
}

fn unknown_switch(name: &str) -> String {
    let known = setting::names(switches);
    let all = [known.clone(), setting::names(rules)].concat();
    format!(
        "there is no policy switch {name:?}{}: use one of {}, or a rule (docs/policies.md)",
        nearest(name, &all),
        known.join(", ")
    )
}

/// Suggests the most similar known name ("did you mean …?"), or returns an empty string.
///
/// ```
/// use vmarea_merge::policy::name::nearest;
///
/// assert_eq!(nearest("linx", &["linux", "thesis"]), " (did you mean linux?)");
/// assert_eq!(nearest("windows", &["linux", "thesis"]), "");
/// ```
pub fn nearest(name: &str, known: &[&str]) -> String {
    let by_distance = known.iter().map(|known| (edits(name, known), known));
    match by_distance.min() {
        Some((distance, known)) if distance <= known.len() / 3 => {
            format!(" (did you mean {known}?)")
        }
        _ => String::new(),
    }
}

/// Returns the edit distance: number of bytes inserted, removed, replaced, or swapped with the
/// next.
fn edits(from: &str, to: &str) -> usize {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for i in 0..from.len() {
        let mut row = Vec::from([i + 1]);
        for j in 0..to.len() {
            let replaced = above[j] + usize::from(from[i] != to[j]);
            let mut least = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && from[i] == to[j - 1] && from[i - 1] == to[j] {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = core::mem::replace(&mut above, row);
    }
    above[to.len()]
}

#[cfg(test)]
mod tests {
    use super::super::{AdjustLock, Merging, SharingCheck};
    use super::*;

    fn policy(text: &str) -> Result<Policy, String> {
        Policy::parse(text).map(|named| named.policy)
    }

    #[test]
    fn a_preset_with_switches() {
        let text = "thesis+sharing=truth+copy_budget=64+collector+update_pgoff=off";
        let thesis = policy(text).unwrap();
        assert_eq!(
            policy(&text.replace('+', ",").replacen(',', "+", 1)),
            Ok(thesis)
        );
        assert_eq!(thesis.name, "thesis");
        assert_eq!(thesis.rules, Policy::THESIS.rules);
        let expected = Merging {
            sharing: SharingCheck::Truth,
            copy_budget: 64,
            collector: true,
            update_pgoff: false,
            ..Merging::THESIS
        };
        assert_eq!(thesis.merging, expected);
        let other = policy("linux-6.6+sharing=truth+adjust_lock=when_needed").unwrap();
        assert_eq!(other.name, "linux-6.1");
        assert_eq!(other.merging.sharing, SharingCheck::Truth);
        assert_eq!(other.adjust_lock, AdjustLock::WhenNeeded);
    }

    /// Each new field of the policy needs a switch, or an explanation here.
    #[test]
    fn every_switch_of_vmarea_can_be_set_on_mainline() {
        let text = "linux+sharing=truth+update_pgoff+different_anon_vmas+either_survives\
                    +renumber_in_place+remap_freely+early_anon_vma+spread_charge+collector";
        assert_eq!(policy(text).unwrap().merging, Merging::VMAREA);
    }

    #[test]
    fn a_rule_is_set_like_a_switch() {
        let named = policy("linux+advice.populate=off+one_sided=either").unwrap();
        assert!(!named.rules.advice.populate);
        assert_eq!(named.rules.one_sided, super::super::OneSided::Either);
    }

    #[test]
    fn a_policy_may_be_named_by_any_version() {
        let named = |name| {
            let Named { policy, note } = Policy::parse(name).ok()?;
            Some((policy.name, policy.rules.version, note.is_some()))
        };
        assert_eq!(named("linux-6.6"), Some(("linux-6.1", (6, 1), true)));
        assert_eq!(named("linux-6.12"), Some(("linux-6.12", (6, 12), false)));
        assert_eq!(named("linux-6.12.9"), named("linux-6.12"));
        let newest = Policy::LINUX.rules.version;
        assert_eq!(named("linux-7.3"), Some(("linux-7.3", newest, false)));
        assert_eq!(named("linux-8.0"), Some(("linux-7.3", newest, true)));
        assert_eq!(named("linux-6.17"), Some(("linux-6.17", (6, 17), true)));
        assert_eq!(named("linux-6.15"), Some(("linux-6.14", (6, 14), true)));
        assert_eq!(named("linux-4.4"), Some(("linux-5.10", (5, 10), true)));
        assert_eq!(named("linux-"), None);
    }

    #[test]
    fn all_rules_have_a_name_and_are_in_order() {
        for rules in Rules::ALL {
            let (major, minor) = rules.version;
            assert_eq!(name_of(&rules), format!("linux-{major}.{minor}"));
        }
        assert!(Rules::ALL.is_sorted_by(|newer, older| newer.version > older.version));
    }

    #[test]
    fn what_is_wrong_is_said_with_the_nearest_name() {
        let error = |text: &str| policy(text).unwrap_err();
        assert!(error("vmarea+copy_bugdet=4").contains("did you mean copy_budget?"));
        assert!(error("vmaera").contains("did you mean vmarea?"));
        assert!(!error("vmarea+xyz").contains("did you mean"));
        assert!(error("vmarea+copy_budget").contains("copy_budget=PAGES"));
        assert!(error("vmarea+copy_budget=-1").contains("copy_budget=PAGES"));
        assert!(error("linux+mremap_mny=off").contains("did you mean mremap_many?"));
        assert!(error("vmarea+collector=yes").contains("collector=off"));
        assert!(error("vmarea+").contains("no policy switch \"\""));
    }

    #[test]
    fn a_setting_without_effect_is_refused() {
        let error = |text: &str| policy(text).unwrap_err();
        let why = "copy_budget contradicts the rest of thesis+copy_budget=64: with sharing thesis, \
                   shared pages always prevent a merge";
        assert_eq!(error("thesis+copy_budget=64"), why);
        assert!(error("linux+either_survives").contains("pages change only with"));
        let off = "linux+either_survives=off+copy_budget=0";
        assert_eq!(policy(off).unwrap().merging, Merging::MAINLINE);
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("", "linux"), 5);
        assert_eq!(edits("linux", ""), 5);
        assert_eq!(edits("linux", "linux"), 0);
        assert_eq!(edits("lniux", "linux"), 1, "swapped");
        assert_eq!(edits("lnx", "linux"), 2, "inserted");
        assert_eq!(edits("thesiss", "thesis"), 1, "removed");
        assert_eq!(edits("thexis", "thesis"), 1, "replaced");
    }
}
