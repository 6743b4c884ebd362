//! The commands under answers of a probe that contradict the version of the kernel.
//!
//! The answers are those that an ordinary user keeps: the test changes one of them in the user's
//! file.

use crate::support::leash;
use crate::support::{Idle, Nobody, text};
use serde_json::Value;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Output;

const NOBODY: u32 = 65534;

/// An ordinary user with a folder for the time of the session.
struct Session {
    nobody: Nobody,
    folder: tempfile::TempDir,
}

impl Session {
    fn new() -> Option<Session> {
        let nobody = Nobody::new()?;
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        chown(folder.path(), Some(NOBODY), None).unwrap();
        Some(Session { nobody, folder })
    }

    fn vmarea(&self, arguments: &[&str]) -> Output {
        let mut command = self.nobody.command("env");
        let runtime = format!("XDG_RUNTIME_DIR={}", self.folder.path().display());
        command
            .arg(runtime)
            .arg(self.nobody.binary())
            .args(arguments);
        leash::output(&mut command).unwrap()
    }

    /// The file with the answers.
    fn kept(&self) -> PathBuf {
        self.folder.path().join("vmarea/rules")
    }

    /// Returns what a command says of its rules: on standard error, and in its JSON.
    fn said(&self, arguments: &[&str]) -> (String, Value) {
        let output = self.vmarea(arguments);
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"));
        (text(&output.stderr), report)
    }
}

/// Replaces an answer by its opposite, in place, so that the file keeps its owner.
fn contradict(session: &Session, rule: &str) {
    let text = std::fs::read_to_string(session.kept()).unwrap();
    let [on, off] = ["on", "off"].map(|value| format!("\n{rule}={value}\n"));
    let other = match text.contains(&on) {
        true => text.replace(&on, &off),
        false => text.replace(&off, &on),
    };
    assert_ne!(other, text, "{rule} was not probed: {text}");
    std::fs::write(session.kept(), other).unwrap();
}

#[test]
fn answers_that_contradict_the_version_are_used_and_named() {
    const RULE: &str = "mremap_many";
    const REMARK: &str = "1 differ: mremap_many";
    let Some(session) = Session::new() else {
        return;
    };
    let cat = Idle::start(&mut session.nobody.command("cat"));
    let pid = cat.pid();
    let once = ["top", "--once", "--json"];
    let explain = ["explain", "-p", &pid, "--json"];
    let merge = ["merge", "-p", &pid, "--json"];
    let before = session.said(&once);
    assert!(
        before.1["rules"]["probed"].as_u64() > Some(30),
        "{before:?}"
    );
    assert!(!before.0.contains(REMARK), "{before:?}");

    contradict(&session, RULE);
    for arguments in [&once[..], &explain, &merge] {
        let (said, report) = session.said(arguments);
        assert!(said.contains(REMARK), "{arguments:?}: {said}");
        let rules = &report["rules"];
        assert_eq!(rules["verified"], false, "{arguments:?}: {rules}");
        assert_eq!(
            rules["differing"],
            serde_json::json!([RULE]),
            "{arguments:?}"
        );
    }
    // A run records the answers, and its replay says what it replays under.
    let run = session.vmarea(&["run", "--", "true"]);
    assert!(text(&run.stderr).contains(REMARK), "{run:?}");
}

#[test]
fn answers_of_another_user_are_not_believed() {
    let Some(session) = Session::new() else {
        return;
    };
    let once = ["top", "--once", "--json"];
    let before = session.said(&once).1["rules"].clone();
    contradict(&session, "mremap_many");
    assert_ne!(session.said(&once).1["rules"], before);
    chown(session.kept(), Some(0), None).unwrap();
    assert_eq!(session.said(&once).1["rules"], before);
}

#[test]
fn help_needs_no_rules() {
    let Some(session) = Session::new() else {
        return;
    };
    let help = session.vmarea(&["explain", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(!session.kept().exists(), "it has probed");
}
