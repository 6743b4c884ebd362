//! Names of policies: presets, and `linux-MAJOR.MINOR` for the rules of a kernel version.

use crate::machine;
use std::fmt;
use std::str::FromStr;
use vmarea::policy::Policy;

/// The name of a preset policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyName(pub String);

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let name_of = PolicyName(name.to_owned());
        if name_of.policy().is_some() {
            return Ok(name_of);
        }
        let known: Vec<_> = Policy::PRESETS.iter().map(|p| p.name).collect();
        Err(format!(
            "there is no policy {name}: use one of {}, or linux-MAJOR.MINOR",
            known.join(", ")
        ))
    }
}

impl PolicyName {
    /// Returns the policy with this name, with a remark if its rules are those of another Linux
    /// version.
    pub(crate) fn policy(&self) -> Option<(Policy, Option<String>)> {
        let preset = Policy::by_name(&self.0).map(|policy| (policy, None));
        preset.or_else(|| machine::policy_of_version(&self.0))
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
