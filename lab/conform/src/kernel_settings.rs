//! Optional features of the machine that a run uses: swap, active `ksmd`, reserved huge pages.
//!
//! A shell script turns these features on. It restores the previous settings when its input ends,
//! which happens even if the run is killed. Unavailable features are reported and not used.
//! Settings that affect every process, such as `vm.max_map_count` or
//! `transparent_hugepage/enabled`, are deliberately not changed.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Shell script that makes and reverts the changes.
const SCRIPT: &str = include_str!("kernel_settings.sh");

/// Counters of `/proc/vmstat` that show the kernel's work on pages.
const COUNTS: [&str; 11] = [
    "pswpout",
    "pswpin",
    "cow_ksm",
    "ksm_swpin_copy",
    "thp_fault_alloc",
    "thp_split_pmd",
    "thp_zero_page_alloc",
    "thp_collapse_alloc",
    "thp_fault_fallback",
    "thp_collapse_alloc_failed",
    "thp_migration_success",
];

/// Changes to the machine. Dropping the value reverts them.
#[derive(Debug)]
pub struct Surroundings {
    guard: Option<Child>,
    said: BTreeMap<String, String>,
    begin: BTreeMap<&'static str, u64>,
}

impl Surroundings {
    /// Makes all changes that are possible.
    pub fn make() -> Surroundings {
        let (guard, said) = match start() {
            Ok((guard, said)) => (Some(guard), said),
            Err(error) => {
                let no = format!("no: cannot run sh ({error})");
                let all = ["swap", "ksm", "hugetlb"].map(|what| (what.to_owned(), no.clone()));
                (None, all.into())
            }
        };
        Surroundings {
            guard,
            said,
            begin: counts(),
        }
    }

    /// Makes no changes.
    pub fn leave() -> Surroundings {
        Surroundings {
            guard: None,
            said: BTreeMap::new(),
            begin: counts(),
        }
    }

    /// Returns why a feature is unavailable; `None` if it is available.
    pub fn missing(&self, what: &str) -> Option<&str> {
        match self.said.get(what) {
            Some(said) if said == "there" => None,
            Some(said) => Some(said.strip_prefix("no: ").unwrap_or(said)),
            None => Some("not asked for"),
        }
    }

    /// Returns counts of the background work on pages, for the whole machine since the run's start.
    pub fn work(&self) -> BTreeMap<&'static str, u64> {
        let mut work = counts();
        for (name, count) in &mut work {
            *count -= self.begin.get(name).copied().unwrap_or(0).min(*count);
        }
        work
    }
}

impl Drop for Surroundings {
    fn drop(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            // The shell ends when its input is closed.
            let _ = guard.wait();
        }
    }
}

fn start() -> io::Result<(Child, BTreeMap<String, String>)> {
    let directory = tempfile::tempdir()?;
    let mut guard = Command::new("sh")
        .args(["-c", SCRIPT, "sh"])
        .arg(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    // The script removes the directory.
    let _ = directory.keep();
    let mut said = BTreeMap::new();
    if let Some(out) = guard.stdout.take() {
        for line in BufReader::new(out).lines() {
            let line = line?;
            match line.split_once(' ') {
                _ if line == "ready" => break,
                Some((what, how)) => said.insert(what.to_owned(), how.to_owned()),
                None => None,
            };
        }
    }
    Ok((guard, said))
}

fn counts() -> BTreeMap<&'static str, u64> {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let value = |name: &str| {
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|n| n.trim().parse().ok())
    };
    COUNTS
        .into_iter()
        .filter_map(|name| Some((name, value(name)?)))
        .collect()
}
