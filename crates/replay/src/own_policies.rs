//! Rules written in Rust that this process knows by their names.

use std::sync::{PoisonError, RwLock};
use vmarea::policy::name::Named;
use vmarea::policy::{MergePolicy, Policy};

static OWN: RwLock<Vec<&'static dyn MergePolicy>> = RwLock::new(Vec::new());

/// Makes rules written in Rust known by their names, in this process.
///
/// A preset of the same name hides a rule.
pub fn register(own: &[&'static dyn MergePolicy]) {
    OWN.write()
        .unwrap_or_else(PoisonError::into_inner)
        .extend(own);
}

/// Reads the name of a preset, a version or a rule, with switches.
pub(crate) fn parse(text: &str) -> Result<Named, String> {
    let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
    Policy::parse_among(text, &own)
}
