//! The policies that differ from one in a single setting.

use std::collections::BTreeSet;
use vmarea::policy::Policy;
use vmarea::policy::setting::Setting;

/// A policy that differs from another one in one setting.
pub(super) struct Other {
    /// The setting, as `name=value`.
    pub(super) setting: String,
    /// The value that the setting has in the other policy.
    pub(super) instead_of: String,
    /// The policy.
    pub(super) policy: Policy,
}

/// Returns every policy that differs from `policy` in one of the settings `of`.
pub(super) fn others(policy: Policy, of: fn(&mut Policy) -> Vec<Setting<'_>>) -> Vec<Other> {
    let mut others = Vec::new();
    for index in 0..of(&mut policy.clone()).len() {
        let mut known = policy;
        let settings = of(&mut known);
        let (name, current) = (settings[index].name, settings[index].get());
        let words = settings[index].values().into_iter().map(str::to_owned);
        // A number has the values of the known kernels.
        let mut values: BTreeSet<String> = words.collect();
        for mut preset in Policy::PRESETS {
            values.insert(of(&mut preset)[index].get());
        }
        for value in values.into_iter().filter(|value| *value != current) {
            let mut other = policy;
            if of(&mut other)[index].set(&value) {
                others.push(Other {
                    setting: format!("{name}={value}"),
                    instead_of: current.clone(),
                    policy: other,
                });
            }
        }
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea::policy::setting::rules;

    #[test]
    fn every_rule_has_another_value_and_no_policy_is_the_same() {
        let others = others(Policy::LINUX, rules);
        let names: BTreeSet<&str> = others
            .iter()
            .filter_map(|other| other.setting.split('=').next())
            .collect();
        assert_eq!(names.len(), rules(&mut Policy::LINUX.clone()).len());
        assert!(others.iter().all(|other| other.policy != Policy::LINUX));
        assert!(
            others
                .iter()
                .any(|other| other.setting == "mremap_checks=late")
        );
    }
}
