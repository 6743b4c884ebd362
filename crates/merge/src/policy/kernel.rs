//! The rules of one kernel: those of its version, corrected by what was found out on the kernel.
//!
//! A vendor's kernel keeps its version number and contains fixes and features of later versions, so
//! the number alone may be wrong. Answers to experiments on the kernel (the crate `process` makes
//! them) take precedence over it. What was not found out on a kernel without verified rules is in
//! doubt.

use super::name::doubt;
use super::setting::{Setting, names, rules};
use super::{Policy, release};
use crate::Refusal;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The rules of one kernel, and what they rest on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelRules {
    /// The rules, without any switch.
    pub policy: Policy,
    /// Major and minor version of the kernel; `None` if its release string is unusual.
    pub version: Option<(u32, u32)>,
    /// Names of the rules that were found out on the kernel itself.
    pub probed: Vec<&'static str>,
    /// Those of them that are not as the version says.
    pub differing: Vec<&'static str>,
}

impl KernelRules {
    /// Returns the rules of the kernel with this release string: those of its version with the fixes
    /// of its stable update, or the newest ones if the version is unknown, and then `answers`.
    ///
    /// The answers are rules with their values, as in the name of a policy: `mseal=on,mdwe=off`.
    /// An unknown name or value is ignored.
    ///
    /// ```
    /// use vmarea_merge::policy::kernel::KernelRules;
    ///
    /// let kernel = KernelRules::of("5.14.0-vendor", "mseal=on,mdwe=off");
    /// assert!(kernel.policy.rules.mseal && !kernel.are_verified());
    /// assert_eq!(kernel.probed, ["mseal", "mdwe"]);
    /// assert_eq!(kernel.differing, ["mseal"]);
    /// ```
    pub fn of(release: &str, answers: &str) -> KernelRules {
        let version = release::version(release);
        let mut policy = version.map_or(Policy::LINUX, Policy::for_kernel);
        policy.rules = policy.rules.repaired(release);
        let (mut probed, mut differing) = (Vec::new(), Vec::new());
        for_each_answer(&mut policy, answers, |name, changed| {
            probed.push(name);
            differing.extend(changed.then_some(name));
        });
        KernelRules {
            policy,
            version,
            probed,
            differing,
        }
    }

    /// True if the rules are verified for this version, and nothing that was found out contradicts
    /// them.
    ///
    /// ```
    /// use vmarea_merge::policy::kernel::KernelRules;
    ///
    /// assert!(KernelRules::of("6.18.2", "mseal=on").are_verified());
    /// assert!(!KernelRules::of("6.15.0", "").are_verified());
    /// ```
    pub fn are_verified(&self) -> bool {
        let rules = &self.policy.rules;
        self.version == Some(rules.version) && rules.are_verified() && self.differing.is_empty()
    }

    /// Returns a remark for the user if the rules are not verified: why, and what they rest on.
    ///
    /// ```
    /// use vmarea_merge::policy::kernel::KernelRules;
    ///
    /// assert_eq!(KernelRules::of("6.18.2", "").remark(), None);
    /// let remark = KernelRules::of("6.15.0", "").remark().expect("not verified");
    /// assert!(remark.ends_with("using those of Linux 6.14, by the version number alone"));
    /// ```
    pub fn remark(&self) -> Option<String> {
        if self.are_verified() {
            return None;
        }
        let rules = &self.policy.rules;
        let (major, minor) = rules.version;
        let doubt = match self.version {
            None => Some(format!(
                "the version of the kernel is unknown: using the rules of Linux {major}.{minor}"
            )),
            Some(version) => doubt(rules, version),
        };
        let doubt = doubt.unwrap_or_else(|| {
            format!("the kernel does not keep to the rules of its version, Linux {major}.{minor}")
        });
        Some(format!("{doubt}{}", self.basis()))
    }

    /// Says how many rules were probed, and which of them are not as the version says.
    fn basis(&self) -> String {
        /// Names of rules in one line.
        const MOST: usize = 4;
        if self.probed.is_empty() {
            let known = self.version.is_some();
            return String::from(if known {
                ", by the version number alone"
            } else {
                ""
            });
        }
        let (probed, all) = (self.probed.len(), names(rules).len());
        let differ = match self.differing.as_slice() {
            [] => String::from("as the version says"),
            names => {
                let more = names.len().saturating_sub(MOST);
                let listed = names[..names.len() - more].join(", ");
                let more = match more {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!("{} differ: {listed}{more}", names.len())
            }
        };
        format!(
            "; of {all} rules, {probed} were probed ({differ}), the others come from the version number"
        )
    }

    /// True if it is not known whether the kernel refuses a merge for this reason under the conditions
    /// of these rules: versions differ in them, those of this kernel are not verified, and the rule
    /// was not probed.
    ///
    /// ```
    /// use vmarea_merge::Refusal;
    /// use vmarea_merge::policy::kernel::KernelRules;
    ///
    /// let kernel = KernelRules::of("6.15.0", "close_hook=may_not_disappear");
    /// assert!(kernel.is_in_doubt(Refusal::AnonVma));
    /// assert!(!kernel.is_in_doubt(Refusal::CloseHook), "probed");
    /// assert!(!kernel.is_in_doubt(Refusal::Flags), "the same in all versions");
    /// assert!(!KernelRules::of("6.18.2", "").is_in_doubt(Refusal::AnonVma), "verified");
    /// ```
    pub fn is_in_doubt(&self, refusal: Refusal) -> bool {
        let rule = match refusal {
            Refusal::AnonVma => "one_sided",
            Refusal::PageOffset => "anon_pgoff_of_files",
            Refusal::CloseHook => "close_hook",
            _ => return false,
        };
        !self.are_verified() && !self.probed.contains(&rule)
    }
}

/// Sets the rules in `answers`, and calls `each` with the name of the rule and whether its value is
/// a new one.
fn for_each_answer(policy: &mut Policy, answers: &str, mut each: impl FnMut(&'static str, bool)) {
    let mut all = rules(policy);
    let pairs = answers
        .split(',')
        .filter_map(|answer| answer.split_once('='));
    for (name, value) in pairs {
        let is_wanted = |setting: &&mut Setting<'_>| setting.name == name;
        let Some(setting) = all.iter_mut().find(is_wanted) else {
            continue;
        };
        let before = setting.get();
        if setting.set(value) {
            each(setting.name, setting.get() != before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{OneSided, Rules};

    #[test]
    fn answers_take_precedence_over_the_version() {
        let kernel = KernelRules::of(
            "6.12.107",
            "one_sided=holder_singular,mseal=on,what=on,mdwe=?",
        );
        assert_eq!(kernel.policy.rules.one_sided, OneSided::HolderSingular);
        assert_eq!(kernel.probed, ["one_sided", "mseal"]);
        assert_eq!(kernel.differing, ["one_sided"]);
        assert!(!kernel.are_verified());
        let remark = kernel.remark().unwrap();
        assert!(
            remark.starts_with(
                "the kernel does not keep to the rules of its version, Linux 6.12; of "
            ),
            "{remark}"
        );
        assert!(
            remark.contains("2 were probed (1 differ: one_sided)"),
            "{remark}"
        );
    }

    #[test]
    fn fixes_of_stable_updates_are_no_difference() {
        let answers = "dontunmap.resets_pgoff=on";
        assert!(KernelRules::of("6.12.117", answers).are_verified());
        assert!(!KernelRules::of("6.12.107", answers).are_verified());
        // The rules of 6.15 are those of 6.14, whose updates are others.
        let next = KernelRules::of("6.15.200", "");
        assert_eq!(next.policy.rules, Rules::V6_14);
    }

    #[test]
    fn a_version_that_is_unknown_has_the_newest_rules() {
        let kernel = KernelRules::of("weird", "");
        assert_eq!(kernel.policy, Policy::LINUX);
        let remark = "the version of the kernel is unknown: using the rules of Linux 7.3";
        assert_eq!(kernel.remark().as_deref(), Some(remark));
    }
}
