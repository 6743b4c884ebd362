//! Names of policies on the command line, as [`Policy::parse`] reads them.

use std::fmt;
use std::str::FromStr;
use vmarea::policy::Policy;
use vmarea::policy::name::Named;

/// A policy with the name that the user gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyName(Named);

impl PolicyName {
    /// Returns the policy, whose name includes its switches.
    pub fn policy(&self) -> Policy {
        self.0.policy
    }

    /// Returns a remark for the user if the rules are not those of the requested Linux version.
    pub fn note(&self) -> Option<&str> {
        self.0.note.as_deref()
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut named = Policy::parse(text)?;
        if let Some((_, switches)) = text.split_once('+') {
            let name = format!("{}+{switches}", named.policy.name);
            // The leak is harmless: the command reads only the few policies that the user names.
            named.policy.name = Box::leak(name.into_boxed_str());
        }
        Ok(PolicyName(named))
    }
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
