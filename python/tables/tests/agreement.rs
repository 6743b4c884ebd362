//! The tables of a trace have what a replay of the trace reports, and its files are complete or absent.
#![forbid(unsafe_code)]

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fs::File;
use std::path::{Path, PathBuf};
use vmarea_replay::{Options, Report};
use vmarea_tables::{Folder, Table};
use vmarea_trace::Reader;
use vmarea_trace::event::{Event, SnapReason};

const TRACES: [&str; 4] = ["regions", "cow-children", "gcc", "shared-arena"];

fn corpus(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    root.join(format!("{name}.vmtrace"))
}

fn options() -> Options {
    let names = ["linux", "linux-5.10", "linux+different_anon_vmas"];
    Options {
        policies: names.map(|name| name.parse().unwrap()).to_vec(),
        ..Options::default()
    }
}

fn replay(name: &str, tables: &[Table]) -> (Report, BTreeMap<Table, Vec<RecordBatch>>) {
    let mut batches = BTreeMap::<_, Vec<_>>::new();
    let replayed = vmarea_tables::replay(
        &mut Reader::open(corpus(name)).unwrap(),
        &options(),
        tables,
        &mut |table, batch| {
            batches.entry(table).or_default().push(batch);
            Ok::<_, Infallible>(())
        },
        &mut |_| Ok(()),
    );
    (replayed.unwrap().report, batches)
}

/// Returns a column of strings over all batches.
fn texts(batches: &[RecordBatch], column: &str) -> Vec<Option<String>> {
    let of_batch = |batch: &RecordBatch| {
        let strings = batch.column_by_name(column).unwrap().as_string_view();
        strings
            .iter()
            .map(|text| text.map(str::to_owned))
            .collect::<Vec<_>>()
    };
    batches.iter().flat_map(of_batch).collect()
}

/// Returns a column of numbers over all batches.
fn numbers(batches: &[RecordBatch], column: &str) -> Vec<u64> {
    let of_batch = |batch: &RecordBatch| {
        let values = batch.column_by_name(column).unwrap();
        match values.as_primitive_opt::<UInt64Type>() {
            Some(values) => values.values().to_vec(),
            None => {
                let values = values.as_primitive::<UInt32Type>().values();
                values.iter().map(|&value| value.into()).collect()
            }
        }
    };
    batches.iter().flat_map(of_batch).collect()
}

fn count(texts: &[Option<String>], wanted: &str) -> u64 {
    let same = |text: &&Option<String>| text.as_deref() == Some(wanted);
    texts.iter().filter(same).count() as u64
}

#[test]
fn events_and_differences_are_those_of_the_report() {
    for name in TRACES {
        let (report, batches) = replay(name, &Table::ALL);
        let kinds = texts(&batches[&Table::Events], "kind");
        assert_eq!(kinds.len() as u64, report.events, "{name}");
        assert_eq!(count(&kinds, "call"), report.calls, "{name}");
        assert_eq!(count(&kinds, "fault"), report.faults, "{name}");
        let positions = numbers(&batches[&Table::Events], "event");
        assert!(positions.iter().copied().eq(1..=report.events), "{name}");
        let differences = batches.get(&Table::Differences);
        let rows: usize = differences.map_or(0, |all| all.iter().map(RecordBatch::num_rows).sum());
        assert_eq!(rows as u64, report.verify.differences, "{name}");
    }
}

#[test]
fn the_numbers_of_vmas_have_the_peaks_of_the_report() {
    for name in TRACES {
        let (report, batches) = replay(name, &[Table::Vmas]);
        let rows = &batches[&Table::Vmas];
        let (mms, policies) = (numbers(rows, "mm"), texts(rows, "policy"));
        let mut now: HashMap<(u64, String), u64> = HashMap::new();
        let mut peaks: BTreeMap<String, u64> = BTreeMap::new();
        for ((vmas, mm), policy) in numbers(rows, "vmas").into_iter().zip(mms).zip(policies) {
            let policy = policy.unwrap();
            let last = now.insert((mm, policy.clone()), vmas);
            assert_ne!(last, Some(vmas), "{name}: a row that changes nothing");
            let peak = peaks.entry(policy).or_default();
            *peak = vmas.max(*peak);
        }
        for (policy, of_report) in &report.policies {
            assert_eq!(
                peaks[policy], of_report.vmas_peak_single,
                "{name}, {policy}"
            );
        }
        assert!(
            now.values().all(|&vmas| vmas == 0),
            "{name}: all have ended"
        );
    }
}

/// A row of the table of lifetimes.
#[derive(Debug)]
struct Lifetime {
    policy: String,
    mm: u64,
    made: u64,
    ended: Option<u64>,
    last: (u64, u64),
}

fn lifetimes(rows: &[RecordBatch]) -> Vec<Lifetime> {
    let column = |name| numbers(rows, name).into_iter();
    let ended = rows.iter().flat_map(|batch| {
        let values = batch.column_by_name("ended").unwrap();
        values.as_primitive::<UInt64Type>().iter()
    });
    let places = column("mm").zip(column("made")).zip(ended);
    let lasts = column("last_start").zip(column("last_end"));
    let policies = texts(rows, "policy").into_iter();
    let made = policies.zip(places).zip(lasts);
    made.map(|((policy, ((mm, made), ended)), last)| Lifetime {
        policy: policy.unwrap(),
        mm,
        made,
        ended,
        last,
    })
    .collect()
}

#[test]
fn the_vmas_that_exist_are_as_many_as_the_numbers_say() {
    for name in TRACES {
        let (_, batches) = replay(name, &[Table::Vmas, Table::Lifetimes]);
        let mut changes: BTreeMap<(String, u64, u64), i64> = BTreeMap::new();
        for one in lifetimes(&batches[&Table::Lifetimes]) {
            let Lifetime {
                policy,
                mm,
                made,
                ended,
                last,
            } = one;
            assert!(
                last.0 < last.1 && ended.is_none_or(|ended| ended > made),
                "{name}"
            );
            *changes.entry((policy.clone(), mm, made)).or_default() += 1;
            let ended = ended.expect("all address spaces end in this trace");
            *changes.entry((policy, mm, ended)).or_default() -= 1;
        }
        let mut now: HashMap<(String, u64), i64> = HashMap::new();
        let mut after = BTreeMap::new();
        // By policy, address space and event: each group has its events in order.
        for ((policy, mm, event), change) in changes {
            let count = now.entry((policy.clone(), mm)).or_default();
            *count += change;
            if change != 0 {
                after.insert((policy, mm, event), *count as u64);
            }
        }
        let rows = &batches[&Table::Vmas];
        let places = texts(rows, "policy").into_iter().map(Option::unwrap);
        let places = places.zip(numbers(rows, "mm")).zip(numbers(rows, "event"));
        let counted = places.zip(numbers(rows, "vmas"));
        let counted = counted.map(|(((policy, mm), event), vmas)| ((policy, mm, event), vmas));
        assert_eq!(after, counted.collect(), "{name}");
    }
}

#[test]
fn the_vmas_at_the_end_of_a_process_are_those_that_the_kernel_lists() {
    for name in TRACES {
        let (_, batches) = replay(name, &[Table::Lifetimes]);
        let rows = lifetimes(&batches[&Table::Lifetimes]);
        let mut listed: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
        let mut compared = 0;
        for (at, event) in Reader::open(corpus(name)).unwrap().enumerate() {
            match event.unwrap() {
                Event::Snapshot(list) if list.reason == SnapReason::Exit => {
                    let ranges = list.vmas.iter().map(|vma| (vma.start, vma.end));
                    listed.insert(list.mm.0, ranges.collect());
                }
                Event::MmEnd { mm, .. } => {
                    let Some(listed) = listed.remove(&mm.0) else {
                        continue;
                    };
                    let here = |one: &&Lifetime| one.policy == "linux" && one.mm == mm.0.into();
                    let last = rows.iter().filter(here);
                    let last = last.filter(|one| one.ended == Some(at as u64 + 1));
                    let mut last: Vec<_> = last.map(|one| one.last).collect();
                    last.sort_unstable();
                    assert_eq!(last, listed, "{name}: address space {}", mm.0);
                    compared += listed.len();
                }
                _ => {}
            }
        }
        assert!(compared > 10, "{name}: the trace shows nothing");
    }
}

#[test]
fn merges_by_kind_are_those_of_the_report_under_the_recorded_rules() {
    for name in TRACES {
        let (report, batches) = replay(name, &[Table::Merges]);
        let rows = &batches[&Table::Merges];
        let (policies, kinds) = (texts(rows, "policy"), texts(rows, "merge"));
        let mut made: BTreeMap<String, u64> = BTreeMap::new();
        for (policy, kind) in policies.iter().zip(kinds) {
            if let Some(kind) = kind.filter(|_| policy.as_deref() == Some("linux")) {
                *made.entry(kind).or_default() += 1;
            }
        }
        assert_eq!(made, report.policies["linux"].merges, "{name}");
        let attempts = numbers(rows, "attempt");
        let last = attempts.iter().max().copied().unwrap_or(0);
        assert_eq!(attempts.len() as u64, 3 * last, "{name}: three policies");
        for policy in report.policies.keys() {
            assert_eq!(count(&policies, policy), last, "{name}, {policy}");
        }
    }
}

#[test]
fn what_another_policy_would_merge_is_what_the_report_counts() {
    let (report, batches) = replay("regions", &[Table::Merges]);
    let rows = &batches[&Table::Merges];
    let policies = texts(rows, "policy");
    let sides = [texts(rows, "refused_previous"), texts(rows, "refused_next")];
    let wanted = "linux+different_anon_vmas";
    let mut merged = 0;
    for attempt in policies.chunks(3).enumerate() {
        let (at, names) = (3 * attempt.0, attempt.1);
        let other = names
            .iter()
            .position(|name| name.as_deref() == Some(wanted));
        for side in &sides {
            let refused = matches!(side[at].as_deref(), Some("anon_vma" | "page offset"));
            merged += u64::from(refused && side[at + other.unwrap()].is_none());
        }
    }
    let counted = &report.counterfactual.policies[wanted];
    assert!(counted.merged > 0, "the trace shows nothing");
    // The report counts only private anonymous memory, which is all that this trace refuses.
    assert_eq!(merged, counted.merged, "{:?}", report.counterfactual);
}

fn rows_of(path: &Path) -> usize {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    reader.metadata().file_metadata().num_rows() as usize
}

#[test]
fn files_appear_together_and_replace_older_ones() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a/b");
    let mut files = Folder::create(&out, &Table::ALL).unwrap();
    let (report, batches) = replay("regions", &Table::ALL);
    for (table, batches) in &batches {
        for batch in batches {
            files.add(*table, batch).unwrap();
        }
    }
    let visible = || {
        let names = out
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        names
            .filter(|name| !name.to_string_lossy().starts_with('.'))
            .count()
    };
    assert_eq!(visible(), 0, "nothing can be read before all is written");
    files.publish().unwrap();
    assert_eq!(visible(), Table::ALL.len());
    assert_eq!(rows_of(&out.join("events.parquet")) as u64, report.events);

    Folder::create(&out, &Table::ALL)
        .unwrap()
        .publish()
        .unwrap();
    assert_eq!(
        rows_of(&out.join("events.parquet")),
        0,
        "replaced by an empty one"
    );
    drop(Folder::create(&out, &Table::ALL).unwrap());
    assert_eq!(
        out.read_dir().unwrap().count(),
        Table::ALL.len(),
        "no rests"
    );
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Folder::create(&file.join("out"), &Table::ALL)
        .err()
        .unwrap();
    let text = error.to_string();
    assert!(
        text.starts_with("cannot create ") && text.contains("Not a directory"),
        "{text}"
    );
}
