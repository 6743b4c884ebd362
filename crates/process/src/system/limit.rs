//! The file that sets `vm.max_map_count` when the system starts.
//!
//! systemd-sysctl reads the files of several folders in the order of their names; a file hides one
//! of the same name in a folder of lower rank, and the last assignment counts. `sysctl --system`
//! reads `/etc/sysctl.conf` last.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders, lowest rank first.
const FOLDERS: [&str; 4] = [
    "usr/lib/sysctl.d",
    "usr/local/lib/sysctl.d",
    "run/sysctl.d",
    "etc/sysctl.d",
];

/// An assignment of the limit in a file.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Assignment {
    /// Path of the file.
    pub file: PathBuf,
    /// Value that the file sets.
    pub value: u64,
}

/// Assignments of the limit that a system start carries out.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitFiles {
    /// The last assignment, which counts.
    pub last: Assignment,
    /// The assignment of the largest value, if the last one lowers it.
    pub lowered: Option<Assignment>,
}

/// Reads the files below `root`; `None` if none of them sets the limit.
pub fn limit_files(root: &Path) -> Option<LimitFiles> {
    let mut files: BTreeMap<_, PathBuf> = BTreeMap::new();
    for folder in FOLDERS {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten();
        for path in entries.flatten().map(|entry| entry.path()) {
            if path
                .extension()
                .is_some_and(|extension| extension == "conf")
            {
                files.insert(path.file_name().map(ToOwned::to_owned), path);
            }
        }
    }
    let files = files.into_values().chain([root.join("etc/sysctl.conf")]);
    let assignments = files.filter_map(|file| {
        let text = fs::read_to_string(&file).ok()?;
        let value = text.lines().filter_map(assigned).next_back()?;
        Some(Assignment { file, value })
    });
    let all: Vec<_> = assignments.collect();
    let last = all.last()?.clone();
    let largest = all.into_iter().max_by_key(|one| one.value)?;
    Some(LimitFiles {
        lowered: (largest.value > last.value).then_some(largest),
        last,
    })
}

/// Returns the value that a line of a sysctl file assigns to the limit.
fn assigned(line: &str) -> Option<u64> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim().trim_start_matches('-');
    let is_limit = matches!(name, "vm.max_map_count" | "vm/max_map_count");
    is_limit.then(|| value.trim().parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_last_file_by_name_counts_and_lowering_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(limit_files(root), None);
        write(
            root,
            "usr/lib/sysctl.d/10-map-count.conf",
            "vm.max_map_count=1048576\n",
        );
        write(
            root,
            "usr/lib/sysctl.d/elasticsearch.conf",
            "# x\n-vm/max_map_count = 262144\n",
        );
        let found = limit_files(root).unwrap();
        assert!(found.last.file.ends_with("elasticsearch.conf"));
        assert_eq!(found.last.value, 262_144);
        assert_eq!(found.lowered.unwrap().value, 1_048_576);
        // A file in /etc hides the one of the same name.
        write(
            root,
            "etc/sysctl.d/elasticsearch.conf",
            "#vm.max_map_count=1\n",
        );
        let found = limit_files(root).unwrap();
        assert!(found.last.file.ends_with("10-map-count.conf"));
        assert_eq!(found.lowered, None);
        write(
            root,
            "etc/sysctl.conf",
            "vm.max_map_count = 2000000\nvm.max_map_count = x\n",
        );
        assert_eq!(limit_files(root).unwrap().last.value, 2_000_000);
    }
}
