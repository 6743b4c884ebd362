//! Names of policies: a preset or `linux-MAJOR.MINOR`, with switches: `vmarea+copy_budget=64`.
//!
//! ```text
//! NAME[+SWITCH[=VALUE]]...      thesis+collector+copy_budget=64      vmarea+either_survives=off
//! ```

use crate::machine;
use std::fmt;
use std::str::FromStr;
use vmarea::policy::{AdjustLock, Merging, Policy, SharingCheck};

/// A policy with the name that the user gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyName {
    policy: Policy,
    /// Remark for the user if the rules are those of another Linux version.
    note: Option<String>,
}

impl PolicyName {
    /// Returns the policy. Its name contains the switches.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns a remark for the user if the rules are those of another Linux version.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (base, switches) = text.split_once('+').unwrap_or((text, ""));
        let preset = Policy::by_name(base).map(|policy| (policy, None));
        let (mut policy, note) = preset
            .or_else(|| machine::policy_of_version(base))
            .ok_or_else(|| unknown_policy(base))?;
        if text.contains('+') {
            for switch in switches.split('+') {
                set(&mut policy, switch)?;
            }
            // The leak is harmless: a policy lives as long as the program, and there are only a
            // few.
            policy.name = Box::leak(format!("{}+{switches}", policy.name).into_boxed_str());
        }
        Ok(PolicyName { policy, note })
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.policy.name)
    }
}

fn unknown_policy(name: &str) -> String {
    let presets = Policy::PRESETS.map(|preset| preset.name);
    format!(
        "there is no policy {name}{}: use one of {}, or linux-MAJOR.MINOR",
        nearest(name, &presets),
        presets.join(", ")
    )
}

/// The part of a policy that a switch sets.
#[derive(Clone, Copy)]
enum Switch {
    OnOff(fn(&mut Merging) -> &mut bool),
    Pages(fn(&mut Merging) -> &mut u64),
    Sharing,
    AdjustLock,
}

/// All switches, with the names of the fields of [`Merging`] and [`Policy`].
const SWITCHES: [(&str, Switch); 12] = [
    ("update_pgoff", Switch::OnOff(|m| &mut m.update_pgoff)),
    (
        "different_anon_vmas",
        Switch::OnOff(|m| &mut m.different_anon_vmas),
    ),
    ("either_survives", Switch::OnOff(|m| &mut m.either_survives)),
    (
        "renumber_in_place",
        Switch::OnOff(|m| &mut m.renumber_in_place),
    ),
    ("copy_budget", Switch::Pages(|m| &mut m.copy_budget)),
    ("remap_freely", Switch::OnOff(|m| &mut m.remap_freely)),
    ("early_anon_vma", Switch::OnOff(|m| &mut m.early_anon_vma)),
    ("spread_charge", Switch::OnOff(|m| &mut m.spread_charge)),
    ("collector", Switch::OnOff(|m| &mut m.collector)),
    ("splits_huge", Switch::OnOff(|m| &mut m.splits_huge)),
    ("sharing", Switch::Sharing),
    ("adjust_lock", Switch::AdjustLock),
];

fn set(policy: &mut Policy, text: &str) -> Result<(), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let found = SWITCHES.iter().find(|(known, _)| *known == name);
    let &(_, switch) = found.ok_or_else(|| unknown_switch(name))?;
    let wrong = |values: &str| Err(format!("the policy switch {name} is given as {values}"));
    match (switch, value) {
        (Switch::OnOff(field), None | Some("on")) => *field(&mut policy.merging) = true,
        (Switch::OnOff(field), Some("off")) => *field(&mut policy.merging) = false,
        (Switch::OnOff(_), Some(_)) => return wrong(&format!("{name}, {name}=on or {name}=off")),
        (Switch::Pages(field), value) => match value.and_then(|v| v.parse().ok()) {
            Some(pages) => *field(&mut policy.merging) = pages,
            None => return wrong(&format!("{name}=PAGES")),
        },
        (Switch::Sharing, Some("thesis")) => policy.merging.sharing = SharingCheck::Thesis,
        (Switch::Sharing, Some("truth")) => policy.merging.sharing = SharingCheck::Truth,
        (Switch::Sharing, _) => return wrong("sharing=thesis or sharing=truth"),
        (Switch::AdjustLock, Some("always")) => policy.adjust_lock = AdjustLock::Always,
        (Switch::AdjustLock, Some("when_needed")) => policy.adjust_lock = AdjustLock::WhenNeeded,
        (Switch::AdjustLock, _) => {
            return wrong("adjust_lock=always or adjust_lock=when_needed");
        }
    }
    Ok(())
}

fn unknown_switch(name: &str) -> String {
    let known = SWITCHES.map(|(known, _)| known);
    format!(
        "there is no policy switch {name:?}{}: use one of {}",
        nearest(name, &known),
        known.join(", ")
    )
}

/// Returns a question about the most similar name, if one is similar.
fn nearest(name: &str, known: &[&str]) -> String {
    let by_distance = known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(name, known), known));
    match by_distance.min() {
        Some((distance, known)) if distance <= known.len() / 3 => {
            format!(" (did you mean {known}?)")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Result<Policy, String> {
        text.parse().map(|name: PolicyName| name.policy())
    }

    #[test]
    fn a_preset_with_switches() {
        let policy = named("thesis+copy_budget=64+collector+update_pgoff=off").unwrap();
        assert_eq!(
            policy.name,
            "thesis+copy_budget=64+collector+update_pgoff=off"
        );
        assert_eq!(policy.rules, Policy::THESIS.rules);
        let expected = Merging {
            copy_budget: 64,
            collector: true,
            update_pgoff: false,
            ..Merging::THESIS
        };
        assert_eq!(policy.merging, expected);
        let policy = named("linux-6.6+sharing=truth+adjust_lock=when_needed").unwrap();
        assert_eq!(
            policy.name,
            "linux-6.1+sharing=truth+adjust_lock=when_needed"
        );
        assert_eq!(policy.merging.sharing, SharingCheck::Truth);
        assert_eq!(policy.adjust_lock, AdjustLock::WhenNeeded);
    }

    /// Each new field of the policy needs a switch, or an explanation here.
    #[test]
    fn every_switch_of_vmarea_can_be_set_on_mainline() {
        let text = "linux+sharing=truth+update_pgoff+different_anon_vmas+either_survives\
                    +renumber_in_place+remap_freely+early_anon_vma+spread_charge+collector";
        assert_eq!(named(text).unwrap().merging, Merging::VMAREA);
    }

    #[test]
    fn what_is_wrong_is_said_with_the_nearest_name() {
        let error = |text: &str| named(text).unwrap_err();
        assert!(error("vmarea+copy_bugdet=4").contains("did you mean copy_budget?"));
        assert!(error("vmaera").contains("did you mean vmarea?"));
        assert!(!error("vmarea+xyz").contains("did you mean"));
        assert!(error("vmarea+copy_budget").contains("copy_budget=PAGES"));
        assert!(error("vmarea+copy_budget=-1").contains("copy_budget=PAGES"));
        assert!(error("vmarea+collector=yes").contains("collector=off"));
        assert!(error("vmarea+").contains("no policy switch \"\""));
    }
}
