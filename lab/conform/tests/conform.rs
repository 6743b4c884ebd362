//! Regression sequences: steps that once differed from Linux must not differ again.
//!
//! Each file in `tests/conform` contains steps with the results of a real kernel. This test
//! executes them on the core alone, under the rules of that kernel, so it needs no permission to
//! read the running kernel's data. The files `kernels_*` contain the same steps with the results of
//! each kernel version for which the core has rules.

use std::path::Path;
use vmarea::policy::Policy;
use vmarea::policy::release::version;
use vmarea_conform::regression::Regression;

#[test]
fn kept_sequences_give_what_linux_gave() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conform");
    let mut played = 0;
    let mut failures = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let kept: Regression =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let policy = version(&kept.kernel).map_or(Policy::LINUX, Policy::for_kernel);
        if let Err(error) = kept.play(policy) {
            failures.push(format!("{}: {}\n  {error}", path.display(), kept.about));
        }
        played += 1;
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(played > 0, "no kept sequence");
}
