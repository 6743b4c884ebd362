//! Experiments that reproduce tables and figures of the papers, with the papers' figures beside
//! ours.
//!
//! An experiment fills a [`Report`] with tables in the paper's layout, with claims that are decided
//! with the confidence intervals of our figures, and with a list of substitutes for unavailable
//! machines, kernels and data. If a part cannot run, the report gives the reason; the other parts
//! still run.

mod anon_vma_lock;
pub mod claim;
pub mod coherence;
pub mod figure;
mod idle;
mod instructions;
mod jemalloc;
mod kcbench;
mod merges;
mod redis;
pub mod report;
mod scaling;
mod source;
mod spacing;
pub mod vma_lock;
mod vmacache;

use report::{Header, Report};
use serde::Serialize;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;
use vmarea_replay::PolicyName;

/// Services that the caller provides to an experiment.
pub trait Host {
    /// Reports progress to the user.
    fn note(&self, text: &str);
    /// Runs a shell script to completion and records it.
    ///
    /// # Errors
    /// One line that says why the script was not recorded, and what to do about it.
    fn record(&self, script: &str) -> Result<Recorded, String>;
}

/// A recorded script.
#[derive(Debug)]
pub struct Recorded {
    /// The trace, rewound to its start.
    pub trace: File,
    /// Wall-clock time of the script, including the recording.
    pub seconds: f64,
}

/// Settings and services with which an experiment runs.
#[derive(Clone)]
pub struct Context<'a> {
    /// True to run the short form of the experiment.
    pub quick: bool,
    /// Number of times to run each recorded workload of the thesis.
    pub runs: usize,
    /// Policies under which recorded workloads are replayed, in addition to those of the paper.
    pub policies: Vec<PolicyName>,
    /// Directory for sources and builds, outside the user's project.
    pub cache: PathBuf,
    /// Path of this program, whose option `--work` calls [`work`].
    pub program: PathBuf,
    /// Services of the caller.
    pub host: &'a dyn Host,
}

impl Context<'_> {
    /// Records a script and redirects its output to a file in the cache directory.
    fn record(&self, name: &str, script: &str) -> Result<Recorded, String> {
        source::memory()?;
        source::room(self, 1)?;
        self.host.note(&format!("recording {name}"));
        let log = self.cache.join("output.log");
        // The script creates the file when it starts; output of an earlier script must not be
        // mistaken for its own.
        let _ = std::fs::remove_file(&log);
        let shown = log.display();
        let recorded = self.host.record(&format!("exec >'{shown}' 2>&1\n{script}"));
        recorded.map_err(|why| {
            let said = std::fs::read(&log).unwrap_or_default();
            let missing = source::absent(&String::from_utf8_lossy(&said));
            match (missing, said.is_empty()) {
                (Some(missing), _) => format!("{missing} ({why}; its output is in {shown})"),
                (None, false) => format!("{why}; its output is in {shown}"),
                (None, true) => why,
            }
        })
    }
}

/// One experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// Author, title and year of the paper.
    pub paper: &'static str,
    /// Tables and figures that the experiment reproduces.
    pub what: &'static str,
    /// Programs that the experiment needs, each with its Debian package.
    pub needs: &'static [(&'static str, &'static str)],
    run: fn(&Context<'_>, &mut Report),
}

const THESIS: &str = "Jakub Matěna, VMA merging in Linux, master's thesis, Prague, 2022";

/// All experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "vma-lock",
        paper: "Suren Baghdasaryan, move per-vma lock into vm_area_struct, version 1, 2024",
        what: "slab figures, listing of the structure, page faults, cache lines",
        needs: &[],
        run: vma_lock::run,
    },
    Experiment {
        name: "vmacache",
        paper: "Davidlohr Bueso, mm: per-thread vma caching, Linux 3.15, 2014",
        what: "the four tables: hit rates and cycles of boot, build, mining and ebizzy",
        needs: &[
            ("linux-source", "linux-source"),
            ("make", "make"),
            ("gcc", "gcc"),
            ("mmdebstrap", "mmdebstrap"),
            ("sqlite3", "sqlite3"),
            ("valgrind", "valgrind"),
        ],
        run: vmacache::run,
    },
    Experiment {
        name: "anon-vma-lock",
        paper: "Lee Schermerhorn, avoid unnecessary anon_vma lock acquisition in vma_adjust(), 2009",
        what: "locks, traffic and throughput of brk in a family of tasks",
        needs: &[],
        run: anon_vma_lock::run,
    },
    Experiment {
        name: "spacing",
        paper: THESIS,
        what: "tables 4.2 and 4.3: mappings that are moved together",
        needs: &[],
        run: spacing::run,
    },
    Experiment {
        name: "scaling",
        paper: "Clements et al., RadixVM, EuroSys 2013; CortenMM and IntervalVM, SOSP 2025",
        what: "two writers of one address space against one; more in a simulation",
        needs: &[],
        run: scaling::run,
    },
    Experiment {
        name: "kcbench",
        paper: THESIS,
        what: "tables 4.8 to 4.11: building Linux",
        needs: &[
            ("linux-source", "linux-source"),
            ("make", "make"),
            ("gcc", "gcc"),
            ("valgrind", "valgrind"),
        ],
        run: kcbench::run,
    },
    Experiment {
        name: "jemalloc",
        paper: THESIS,
        what: "tables 4.4 and 4.5: jemalloc's own tests",
        needs: &[
            ("dpkg-source", "dpkg-dev"),
            ("make", "make"),
            ("valgrind", "valgrind"),
        ],
        run: jemalloc::run,
    },
    Experiment {
        name: "redis",
        paper: THESIS,
        what: "tables 4.6 and 4.7: Redis's own test suite, and its benchmark with saves",
        needs: &[
            ("dpkg-source", "dpkg-dev"),
            ("redis-server", "redis-server"),
            ("tclsh", "tcl"),
        ],
        run: redis::run,
    },
];

/// Results of the requested experiments.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Document {
    /// Version of this structure.
    pub schema: u32,
    /// Machine, kernel and command line.
    pub header: Header,
    /// True if the experiments ran in their short form.
    pub quick: bool,
    /// One report per experiment.
    pub experiments: Vec<Report>,
}

impl Document {
    /// Returns true if every part of every experiment ran.
    pub fn is_complete(&self) -> bool {
        self.experiments.iter().all(|one| one.missing.is_empty())
    }
}

/// Runs the experiments with these names, in the order of [`EXPERIMENTS`].
pub fn run(context: &Context<'_>, wanted: impl Fn(&str) -> bool) -> Document {
    let header = Header::here();
    let mut experiments = Vec::new();
    for experiment in EXPERIMENTS.iter().filter(|one| wanted(one.name)) {
        context
            .host
            .note(&format!("experiment {}", experiment.name));
        let begun = Instant::now();
        let mut report = Report::new(experiment.name, experiment.paper);
        (experiment.run)(context, &mut report);
        report.seconds = begun.elapsed().as_secs_f64();
        experiments.push(report);
    }
    Document {
        schema: 1,
        header,
        quick: context.quick,
        experiments,
    }
}

/// Does the work named by `arguments` in this process, so that a tool can count its instructions.
///
/// # Errors
/// One line that says what is wrong with the arguments or with a file that they name.
pub fn work(arguments: &[OsString]) -> Result<(), String> {
    match arguments.split_first() {
        Some((what, rest)) if what == "lookups" => vmacache::work(rest),
        Some((what, rest)) if what == "replay" => merges::work(rest),
        _ => Err(format!("there is no such work: {arguments:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::claim::{Claim, Decision};
    use super::*;
    use serde_json::Value;
    use std::collections::HashSet;
    use std::path::Path;

    /// Host that records nothing.
    struct Mute;

    impl Host for Mute {
        fn note(&self, _: &str) {}

        fn record(&self, _: &str) -> Result<Recorded, String> {
            Err("nothing is recorded\nhere".to_owned())
        }
    }

    /// Claims of each experiment, decided by figures that contradict them.
    fn refuted() -> Vec<Claim> {
        let builds = [1, 2, 4].map(kcbench::build);
        let redis = redis::WORKLOADS.map(|name| format!("Redis, {name}"));
        let mut all: Vec<Claim> = (builds.iter().chain(&redis))
            .map(String::as_str)
            .chain(["jemalloc"])
            .flat_map(merges::refuted)
            .collect();
        all.extend(merges::refuted_costs("jemalloc"));
        all.extend(merges::refuted_costs(&builds[1]));
        all.extend(anon_vma_lock::refuted());
        all.extend(scaling::refuted());
        all.extend(spacing::refuted());
        all.extend(vma_lock::refuted());
        all.extend(vmacache::refuted());
        all
    }

    #[test]
    fn figures_can_contradict_each_claim_that_figures_decide() {
        let refuted = refuted();
        for claim in &refuted {
            assert_eq!(claim.decision, Decision::DoesNotHold, "{claim:?}");
            let by = claim.refuted_by.as_ref().expect("not withdrawn");
            assert!(!by.is_empty(), "{claim:?}");
        }
        let texts: HashSet<&str> = refuted.iter().map(|claim| claim.text.as_str()).collect();
        // No claim of the stored results is decided without being among them.
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiments");
        let mut decided = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let document = std::fs::read_to_string(&path).unwrap();
            let document: Value = serde_json::from_str(&document).unwrap();
            for report in document["experiments"].as_array().unwrap() {
                for claim in report["claims"].as_array().unwrap() {
                    let text = claim["text"].as_str().unwrap();
                    let decision = claim["decision"].as_str().unwrap();
                    if ["holds", "does_not_hold"].contains(&decision) {
                        decided += 1;
                        assert!(texts.contains(text), "{}: {text}", path.display());
                    }
                }
            }
        }
        assert!(decided > 50, "{decided} decided claims");
    }

    #[test]
    fn names_are_unique_and_an_unknown_work_is_refused() {
        let mut names: Vec<_> = EXPERIMENTS.iter().map(|one| one.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), EXPERIMENTS.len());
        assert!(!names.contains(&"all"), "this name stands for all of them");
        assert!(work(&["nonsense".into()]).unwrap_err().contains("nonsense"));
        assert!(work(&["lookups".into()]).is_err() && work(&["replay".into()]).is_err());
    }

    #[test]
    fn a_part_that_cannot_run_is_left_out_with_its_reason_and_the_rest_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let unwritable = folder.path().join("file");
        std::fs::write(&unwritable, "").unwrap();
        let context = Context {
            quick: true,
            runs: 1,
            policies: Vec::new(),
            cache: unwritable,
            program: PathBuf::from("/nonexistent"),
            host: &Mute,
        };
        let document = run(&context, |name| ["jemalloc", "redis"].contains(&name));
        assert!(!document.is_complete());
        let names: Vec<_> = document.experiments.iter().map(|one| one.name).collect();
        assert_eq!(names, ["jemalloc", "redis"]);
        for report in &document.experiments {
            assert!(!report.missing.is_empty(), "{}", report.name);
            assert!(report.missing.iter().all(|why| !why.contains('\n')));
            assert!(!report.shortened.is_empty(), "{}", report.name);
            assert!(report.tables.iter().all(|table| !table.about.is_empty()));
            // The paper's figures are shown even if nothing was measured.
            let mut rows = report.tables.iter().flat_map(|table| &table.rows);
            assert!(rows.any(|row| !row.paper.is_empty()));
        }
    }
}
