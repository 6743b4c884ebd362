//! The rules of the running kernel, and what they rest on.

use crate::{probed, system};
use serde::Serialize;
use std::sync::OnceLock;
use vmarea_merge::policy::kernel::KernelRules;

/// Returns the running kernel's rules: those of its version with the fixes of its stable update,
/// corrected by a probe ([`probed`]).
///
/// The first call may fork a child, which makes the experiments.
pub fn rules() -> &'static KernelRules {
    static RULES: OnceLock<KernelRules> = OnceLock::new();
    RULES.get_or_init(|| KernelRules::of(&system::build(), probed::answers()))
}

/// Returns the running kernel's rules by its version alone. This is for a library in a program that
/// must not fork.
pub fn rules_by_version() -> KernelRules {
    KernelRules::of(&system::build(), "")
}

/// What the rules of a kernel rest on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RulesBasis {
    /// Version of Linux whose rules are used, such as `6.18`.
    pub linux: String,
    /// True if these rules are verified for the kernel, so that what depends on them is certain.
    pub verified: bool,
    /// Number of rules that were found out on the kernel itself; the others come from its version.
    pub probed: u64,
    /// Names of the rules that were found to differ from those of the version.
    pub differing: Vec<&'static str>,
    /// The same in words, if the rules are not verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

impl From<&KernelRules> for RulesBasis {
    fn from(kernel: &KernelRules) -> RulesBasis {
        let (major, minor) = kernel.policy.rules.version;
        RulesBasis {
            linux: format!("{major}.{minor}"),
            verified: kernel.are_verified(),
            probed: kernel.probed.len() as u64,
            differing: kernel.differing.clone(),
            remark: kernel.remark(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_linux_sys::probe;
    use vmarea_merge::policy::{Rules, setting};

    #[test]
    fn a_probe_finds_the_rules_of_this_version() {
        // Not the kept answers, which another build may have found.
        let kernel = KernelRules::of(&system::build(), &probed::probe());
        let version = kernel.version.expect("a usual version");
        let by_version = Rules::of(version).repaired(&system::build());
        assert!(kernel.probed.contains(&"one_sided"), "{kernel:?}");
        assert_eq!(kernel.policy.rules, by_version, "{:?}", kernel.differing);
        assert_eq!(rules_by_version().policy, kernel.policy);
    }

    #[test]
    fn every_rule_is_probed_or_documented() {
        let probed: Vec<_> = probe::names().collect();
        let rules = setting::names(setting::rules);
        assert!(probed.iter().all(|name| rules.contains(name)), "{probed:?}");
        let others: Vec<_> = rules.iter().filter(|name| !probed.contains(name)).collect();
        let kept = include_str!("../../../docs/kernels.md");
        let table = kept
            .split("These four come from the version")
            .nth(1)
            .unwrap();
        let table = table.split("Some experiments").next().unwrap();
        assert_eq!(others.len(), 4, "{others:?}");
        for name in others {
            assert!(table.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn the_basis_names_what_differs() {
        let basis = RulesBasis::from(&KernelRules::of("6.12.0", "mremap_many=on,mseal=on"));
        assert_eq!((basis.linux.as_str(), basis.verified), ("6.12", false));
        assert_eq!((basis.probed, basis.differing), (2, vec!["mremap_many"]));
        assert!(basis.remark.is_some());
        let verified = RulesBasis::from(&KernelRules::of("6.12.0", "mseal=on"));
        assert!(verified.verified && verified.remark.is_none());
    }
}
