//! Names of policies on the command line: as [`Policy::parse`] reads them, or the path of a file.

use crate::own_policies::parse;
use crate::policy_file;
use std::fmt;
use std::str::FromStr;
use vmarea::policy::Policy;
use vmarea::policy::name::Named;
use vmarea::policy::setting;

/// A policy with the name that the user gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyName(Named);

impl PolicyName {
    /// Returns the policy, whose name includes its switches.
    pub fn policy(&self) -> Policy {
        self.0.policy
    }

    /// Returns this policy once for each of its switches, with that switch as in mainline, and the
    /// name of the switch.
    pub fn leave_one_out(&self) -> Vec<(&'static str, PolicyName)> {
        let mut mainline = Policy::LINUX;
        let plain: Vec<_> = setting::switches(&mut mainline)
            .iter()
            .map(|one| (one.name, one.get()))
            .collect();
        let mut all = Vec::new();
        for (switch, value) in plain {
            let mut named = self.0.clone();
            let mut settings = setting::switches(&mut named.policy);
            let changed = settings
                .iter_mut()
                .find(|one| one.name == switch && one.get() != value)
                .is_some_and(|one| one.set(&value));
            drop(settings);
            if changed {
                named.policy.name = leaked(&format!("{self}, no {switch}"));
                all.push((switch, PolicyName(named)));
            }
        }
        all
    }

    /// Returns a remark for the user if the rules are not those of the requested Linux version.
    pub fn note(&self) -> Option<&str> {
        self.0.note.as_deref()
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if policy_file::is_path(text) {
            let mut named = policy_file::read(text)?;
            named.policy.name = leaked(text);
            return Ok(PolicyName(named));
        }
        let mut named = parse(text)?;
        if let Some((_, switches)) = text.split_once('+') {
            let name = format!("{}+{switches}", named.policy.name);
            named.policy.name = leaked(&name);
        }
        Ok(PolicyName(named))
    }
}

/// Returns a name that lives as long as the process. The leak is harmless: a command reads only the
/// few policies that the user names.
fn leaked(name: &str) -> &'static str {
    Box::leak(name.to_owned().into_boxed_str())
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.policy.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_switch_is_left_out_once() {
        let named: PolicyName = "linux+collector+spread_charge".parse().unwrap();
        let without: Vec<_> = named.leave_one_out();
        let switches: Vec<_> = without.iter().map(|(switch, _)| *switch).collect();
        assert_eq!(switches, ["spread_charge", "collector"]);
        assert!(without[0].1.policy().merging.collector);
        assert!(!without[0].1.policy().merging.spread_charge);
        assert!(!without[1].1.policy().merging.collector);
        assert_eq!("linux".parse::<PolicyName>().unwrap().leave_one_out(), []);
    }

    #[test]
    fn the_name_contains_the_switches() {
        let named = |text: &str| text.parse::<PolicyName>().unwrap();
        assert_eq!(
            named("linux-6.6+collector").to_string(),
            "linux-6.1+collector"
        );
        assert_eq!(named("vmarea").to_string(), "vmarea");
        assert!(named("linux-6.6").note().is_some());
    }
}
