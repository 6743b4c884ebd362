//! The result of an experiment: header, tables in the paper's layout, claims, and missing parts.

use super::claim::Claim;
use super::figure::{Figure, Published};
use serde::Serialize;
use std::fs;

/// Figures in a table row that come from one source.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Line<T> {
    /// Machine, kernel or policy that the figures come from.
    pub who: String,
    /// One cell per column; `None` if the source has no figure for the column.
    pub cells: Vec<Option<T>>,
}

impl<T> Line<T> {
    /// Creates a line in which every cell has a figure.
    pub fn full(who: impl Into<String>, cells: impl IntoIterator<Item = T>) -> Self {
        Line {
            who: who.into(),
            cells: cells.into_iter().map(Some).collect(),
        }
    }
}

/// A row of a table: the paper's figures and ours.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// What the row shows.
    pub label: String,
    /// The paper's figures.
    pub paper: Vec<Line<Published>>,
    /// Our figures.
    pub ours: Vec<Line<Figure>>,
}

/// A table in the paper's layout.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Table {
    /// Title.
    pub title: String,
    /// Place of the table in the paper.
    pub source: String,
    /// Description of the measurement, the rows and the columns, one string per paragraph.
    pub about: Vec<String>,
    /// Headings of the columns.
    pub columns: Vec<String>,
    /// True to print the interval of the mean below the interval of the median, as in the thesis.
    pub with_means: bool,
    /// Rows.
    pub rows: Vec<Row>,
}

impl Table {
    /// Creates a table without rows.
    pub fn new(title: impl Into<String>, source: impl Into<String>, columns: &[&str]) -> Table {
        Table {
            title: title.into(),
            source: source.into(),
            about: Vec::new(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            with_means: false,
            rows: Vec::new(),
        }
    }

    /// Adds paragraphs that explain the table.
    pub fn explain<S: Into<String>>(&mut self, paragraphs: impl IntoIterator<Item = S>) {
        self.about.extend(paragraphs.into_iter().map(Into::into));
    }

    /// Adds a row.
    pub fn row(
        &mut self,
        label: impl Into<String>,
        paper: Vec<Line<Published>>,
        ours: Vec<Line<Figure>>,
    ) {
        self.rows.push(Row {
            label: label.into(),
            paper,
            ours,
        });
    }
}

/// The machine and the build that produced a result.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Header {
    /// Processor model, number of processors, and memory size.
    pub machine: String,
    /// Running kernel version, and distribution.
    pub kernel: String,
    /// Load average of the machine over the last minute, as in `/proc/loadavg`.
    pub load: f64,
    /// The command line.
    pub command: String,
    /// True if this program was compiled with optimisation; otherwise its times are meaningless.
    pub optimised: bool,
}

impl Header {
    /// Describes this machine and the running command.
    pub fn here() -> Header {
        let field = |path: &str, key: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(key));
            let value = line.and_then(|line| line.split_once([':', '=']));
            value.map_or_else(String::new, |(_, value)| {
                value.trim().trim_matches('"').to_owned()
            })
        };
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        let kib = field("/proc/meminfo", "MemTotal");
        let kib: u64 = kib.trim_end_matches(" kB").parse().unwrap_or(0);
        let plural = if processors == 1 { "" } else { "s" };
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split_whitespace().next().unwrap_or_default();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut command: Vec<String> = std::env::args().collect();
        if let Some(program) = command.first_mut() {
            *program = "vmarea-lab".to_owned();
        }
        Header {
            machine: format!(
                "{}, {processors} processor{plural}, {} GiB",
                field("/proc/cpuinfo", "model name"),
                kib >> 20
            ),
            kernel: format!(
                "Linux {}, {}",
                release.trim(),
                field("/etc/os-release", "PRETTY_NAME")
            ),
            load: load.parse().unwrap_or_default(),
            command: command.join(" "),
            optimised: !cfg!(debug_assertions),
        }
    }
}

/// Result of one experiment.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Name of the experiment.
    pub name: &'static str,
    /// The paper.
    pub paper: &'static str,
    /// Duration of the experiment in seconds.
    pub seconds: f64,
    /// Substitutes for what the paper used, each with the reason.
    pub substituted: Vec<String>,
    /// Work that the short form omitted, or repeated fewer times.
    pub shortened: Vec<String>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Claims.
    pub claims: Vec<Claim>,
    /// Parts that did not run, each with the reason and a remedy.
    pub missing: Vec<String>,
}

impl Report {
    /// Creates an empty report.
    pub fn new(name: &'static str, paper: &'static str) -> Report {
        Report {
            name,
            paper,
            seconds: 0.0,
            substituted: Vec::new(),
            shortened: Vec::new(),
            tables: Vec::new(),
            claims: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Adds a substitution to the report.
    pub fn substitute(&mut self, what: impl Into<String>) {
        self.substituted.push(what.into());
    }

    /// Adds to the report a piece of work that the short form omitted.
    pub fn shorten(&mut self, what: impl Into<String>) {
        self.shortened.push(what.into());
    }

    /// Returns the result of a part that ran; otherwise adds the part to
    /// [`missing`](Self::missing).
    ///
    /// The entry contains the name of the part and the reason.
    pub fn keep<T>(&mut self, part: &str, result: Result<T, String>) -> Option<T> {
        result
            .map_err(|why| {
                self.missing
                    .push(format!("{part}: {}", why.replace('\n', " ")))
            })
            .ok()
    }
}
