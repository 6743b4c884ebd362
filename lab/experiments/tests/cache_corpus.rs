//! The lookup caches on the recorded programs of the corpus, by counts.
//!
//! On each trace, vmarea's cache must answer at least as many lookups as `vmacache`, which has as
//! many entries per thread, and as the cache of the last-used VMA. The table in
//! `docs/benchmarks.md` must show the counts of now; after a change that is right, renew it:
//! `VMAREA_RENEW=1 cargo test --manifest-path lab/Cargo.toml -p vmarea-experiments --test cache_corpus`.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use vmarea_experiments::cache::{Counted, count};
use vmarea_trace::Reader;

const RENEW: &str = "VMAREA_RENEW=1 cargo test --manifest-path lab/Cargo.toml -p vmarea-experiments \
    --test cache_corpus";
const BEGIN: &str = "<!-- corpus: written by its test, lab/experiments/tests/cache_corpus.rs -->\n";
const END: &str = "<!-- end of the corpus -->";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Counts the lookups of every trace, on all processors, the largest trace first.
fn count_all() -> BTreeMap<String, Counted> {
    let folder = root().join("corpus").read_dir().unwrap();
    let paths = folder.map(|entry| entry.unwrap().path());
    let is_trace = |path: &PathBuf| path.extension().is_some_and(|found| found == "vmtrace");
    let mut queue: Vec<PathBuf> = paths.filter(is_trace).collect();
    queue.sort_by_key(|path| std::cmp::Reverse(path.metadata().unwrap().len()));
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        // ORDERING: Relaxed: the counter only gives each trace to one thread.
        while let Some(path) = queue.get(next.fetch_add(1, Ordering::Relaxed)) {
            let counted = count(Reader::open(path).unwrap());
            let counted = counted.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            done.lock().unwrap().insert(name, counted);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    done.into_inner().unwrap()
}

fn hits(counted: &Counted, cache: &str) -> u64 {
    let counter = counted
        .counters
        .iter()
        .find(|counter| counter.name == cache);
    counter
        .unwrap_or_else(|| panic!("no cache is called {cache}"))
        .hits
}

const CACHES: [&str; 4] = ["last used", "last used, largest", "vmacache", "vmarea"];

fn table(all: &BTreeMap<String, Counted>) -> String {
    let mut text =
        "\n| trace | lookups | last used | + largest | `vmacache` | ours | optimum | bound |\n\
        |---|--:|--:|--:|--:|--:|--:|--:|\n"
            .to_owned();
    for (name, counted) in all {
        let lookups = counted.by_faults + counted.by_calls;
        let rate = |hits: u64| format!("{:.2}", 100.0 * hits as f64 / lookups as f64);
        let caches = CACHES.map(|cache| hits(counted, cache));
        let rates = caches
            .into_iter()
            .chain([counted.optimum, counted.bound])
            .map(rate);
        let cells = rates.collect::<Vec<_>>().join(" | ");
        text += &format!("| `{name}` | {lookups} | {cells} |\n");
    }
    text + "\n"
}

#[test]
fn ours_answers_as_many_lookups_as_the_others_on_each_trace() {
    let all = count_all();
    assert!(all.len() >= 15, "{} traces", all.len());
    for (name, counted) in &all {
        let [last_used, _, vmacache, ours] = CACHES.map(|cache| hits(counted, cache));
        assert!(
            ours >= vmacache,
            "{name}: {ours} hits, vmacache has {vmacache}"
        );
        assert!(
            ours >= last_used,
            "{name}: {ours} hits, last used has {last_used}"
        );
        assert!(
            ours <= counted.optimum,
            "{name}: {ours} hits, not even the future has them"
        );
        assert!(counted.optimum <= counted.bound, "{name}");
        // Reading a VMA is the largest part of a lookup's instructions.
        let reads = |cache| {
            let counter = counted
                .counters
                .iter()
                .find(|counter| counter.name == cache);
            counter.map(|counter| counter.reads)
        };
        assert!(
            reads("vmarea") <= reads("vmacache"),
            "{name} reads more VMAs"
        );
    }
    let page = root().join("docs/benchmarks.md");
    let text = fs::read_to_string(&page).unwrap();
    let (head, rest) = text.split_once(BEGIN).expect("the table begins");
    let (old, tail) = rest.split_once(END).expect("the table ends");
    let new = table(&all);
    if std::env::var_os("VMAREA_RENEW").is_some_and(|value| value == "1") {
        fs::write(&page, format!("{head}{BEGIN}{new}{END}{tail}")).unwrap();
    } else {
        assert!(
            old == new,
            "the table in {} is not of now: {RENEW}",
            page.display()
        );
    }
}
