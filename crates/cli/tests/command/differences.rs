//! Checks that the comparison detects differences.
//!
//! If one value in the recording of a real program is changed, the replay no longer agrees with the
//! kernel, and the reported difference is that change.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use vmarea_trace::event::{Event, KernelVma, SnapReason, SnapVma};
use vmarea_trace::{Reader, Writer};

const MMAP: u32 = 9;
const PAGE: u64 = 4096;

/// A recording of a program, and a folder for a changed copy.
struct Recording {
    folder: TempDir,
}

impl Recording {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let recording = Self { folder };
        let status = Command::new(env!("CARGO_BIN_EXE_vmarea"))
            .args(["record", "-o"])
            .arg(recording.path("true"))
            .args(["--", "/bin/true"])
            .status()
            .unwrap();
        assert!(status.success());
        recording
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn has_kernel_view(&self) -> bool {
        Reader::open(self.path("true"))
            .unwrap()
            .header()
            .kernel_view
    }

    /// Passes every event to `change`, and replays the changed recording.
    fn replay_changed(&self, mut change: impl FnMut(&mut Event)) -> (Option<i32>, Value) {
        let reader = Reader::open(self.path("true")).unwrap();
        let changed = self.path("changed");
        let mut writer = Writer::create(&changed, reader.header()).unwrap();
        for event in reader {
            let mut event = event.unwrap();
            change(&mut event);
            writer.write(&event).unwrap();
        }
        writer.finish().unwrap();
        replay(&changed)
    }
}

/// Replays a trace; returns the exit status and the report.
fn replay(trace: &Path) -> (Option<i32>, Value) {
    replay_with(&[], trace)
}

/// Like [`replay`], with options.
fn replay_with(options: &[&str], trace: &Path) -> (Option<i32>, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_vmarea"))
        .args(["replay", "--json"])
        .args(options)
        .arg(trace)
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout).expect("JSON alone");
    (output.status.code(), report)
}

#[test]
fn unchanged_it_is_equal() {
    let (status, report) = Recording::new().replay_changed(|_| ());
    assert_eq!(report["verify"]["differences"], 0, "{report:#}");
    assert_eq!(status, Some(0));
}

#[test]
fn a_changed_result_is_the_difference_that_is_shown() {
    let mut placed = 0;
    let mut changed = None;
    let (status, report) = Recording::new().replay_changed(|event| {
        if let Event::Call(call) = event
            && call.nr == MMAP
            && call.args[0] == 0
            && changed.is_none()
        {
            // In an ordinary user's recording, the first mapping only shows where the search
            // begins.
            placed += 1;
            if placed == 1 {
                return;
            }
            call.ret -= PAGE as i64;
            changed = Some(call.ret);
        }
    });
    assert_eq!(status, Some(3));
    assert!(report["verify"]["differences"].as_u64() > Some(0));
    let kernel = report["first_difference"]["kernel"].as_str().unwrap();
    let address = format!("{:#x}", changed.expect("the loader maps something"));
    assert!(kernel.contains(&address), "{address} is not in {kernel}");
}

#[test]
fn a_changed_mapping_at_exit_is_a_difference() {
    let recording = Recording::new();
    type Change = fn(&mut Vec<SnapVma>);
    let changes: [(&str, Change); 4] = [
        ("longer", |vmas| vmas[0].end += PAGE),
        ("other access", |vmas| {
            vmas[0].perms.write = !vmas[0].perms.write
        }),
        ("missing", |vmas| drop(vmas.remove(1))),
        ("cut in two", |vmas| {
            let is_code =
                |vma: &SnapVma| vma.perms.exec && vma.inode.is_some() && vma.end - vma.start > PAGE;
            let at = vmas
                .iter()
                .position(is_code)
                .expect("the program's own code");
            let mut upper = vmas[at].clone();
            vmas[at].end = vmas[at].start + PAGE;
            upper.start += PAGE;
            upper.offset += PAGE;
            vmas.insert(at + 1, upper);
        }),
    ];
    for (what, change) in changes {
        let (status, report) = recording.replay_changed(|event| {
            if let Event::Snapshot(snapshot) = event
                && snapshot.reason == SnapReason::Exit
            {
                change(&mut snapshot.vmas);
            }
        });
        let verify = &report["verify"];
        if !recording.has_kernel_view() && verify["undecided"].as_u64() > Some(1) {
            continue; // an ordinary user's recording lacks page faults on which a boundary may depend
        }
        assert_eq!(status, Some(3), "{what}: {report:#}");
        assert!(report["first_difference"].is_object(), "{what}");
    }
}

#[test]
fn a_changed_page_offset_or_anon_vma_is_a_difference() {
    let recording = Recording::new();
    if !Reader::open(recording.path("true"))
        .unwrap()
        .header()
        .kernel_view
    {
        return; // an ordinary user's recording does not contain these fields
    }
    type Change = fn(&mut KernelVma);
    let changes: [(&str, Change); 2] = [
        ("page offset", |kernel| kernel.pgoff += 1),
        ("no anon_vma", |kernel| {
            (kernel.anon_vma, kernel.root) = (0, 0)
        }),
    ];
    for (what, change) in changes {
        let (status, report) = recording.replay_changed(|event| {
            if let Event::Snapshot(snapshot) = event
                && snapshot.reason == SnapReason::Exit
            {
                let faulted =
                    |vma: &&mut SnapVma| vma.kernel.is_some_and(|kernel| kernel.anon_vma != 0);
                let vma = snapshot
                    .vmas
                    .iter_mut()
                    .find(faulted)
                    .expect("a page was written");
                change(vma.kernel.as_mut().expect("it was just seen"));
            }
        });
        assert_eq!(status, Some(3), "{what}: {report:#}");
    }
}

/// Returns the groups of a report: cause, count, and number of differences shown.
fn groups(report: &Value) -> Vec<(String, u64, usize)> {
    let groups = report["differences"].as_array().unwrap().iter();
    let one = |group: &Value| {
        let shown = group["shown"].as_array().unwrap().len();
        let cause = group["cause"].as_str().unwrap().to_owned();
        (cause, group["count"].as_u64().unwrap(), shown)
    };
    groups.map(one).collect()
}

#[test]
fn all_differences_are_shown_on_demand_by_their_causes_with_the_call_before() {
    const MPROTECT: u32 = 10;
    let recording = Recording::new();
    let mut changed = 0;
    let (_, first) = recording.replay_changed(|event| {
        if let Event::Call(call) = event
            && call.nr == MPROTECT
            && call.ret == 0
        {
            call.ret = -12;
            changed += 1;
        }
    });
    assert!(changed > 1, "the loader protects what it has relocated");
    let cause = "mprotect: ENOMEM in the kernel, success in vmarea".to_owned();
    assert_eq!(groups(&first), [(cause.clone(), changed, 1)]);
    let shown = &first["differences"][0]["shown"][0];
    assert_eq!(*shown, first["first_difference"]);
    assert!(
        shown["call"].as_str().unwrap().starts_with("mprotect("),
        "{shown}"
    );
    assert!(
        shown["call_before"].as_str().unwrap().contains(") = "),
        "{shown}"
    );
    assert!(shown["event"].as_u64() > Some(1), "{shown}");

    let trace = recording.path("changed");
    let (_, all) = replay_with(&["--differences", "all"], &trace);
    assert_eq!(groups(&all), [(cause.clone(), changed, changed as usize)]);
    let (_, none) = replay_with(&["--differences", "0"], &trace);
    assert_eq!(groups(&none), [(cause.clone(), changed, 0)]);

    let text = Command::new(env!("CARGO_BIN_EXE_vmarea"))
        .args(["replay", "--differences", "all"])
        .arg(&trace)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains(&format!("{changed} × {cause}")), "{text}");
    assert_eq!(
        text.matches("  call     mprotect(").count(),
        changed as usize,
        "{text}"
    );
    assert!(text.contains("before   "), "{text}");
}

#[test]
fn a_list_that_differs_blames_no_call() {
    let (_, report) = Recording::new().replay_changed(|event| {
        if let Event::Snapshot(snapshot) = event
            && snapshot.reason == SnapReason::Exit
        {
            snapshot.vmas[0].perms.write = !snapshot.vmas[0].perms.write;
        }
    });
    let first = &report["first_difference"];
    assert_eq!(first["cause"], "permissions differ", "{first}");
    assert!(first["call"].is_null(), "{first}");
    assert!(
        first["list_read_after"].as_str().unwrap().contains('('),
        "{first}"
    );
}
