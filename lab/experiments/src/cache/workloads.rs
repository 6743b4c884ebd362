//! Small programs for `bench cache`, of the kinds used in the published measurements.
//!
//! The programs are written or compiled to a temporary directory, which is removed on drop. A
//! program whose requirements are not available is omitted, and the reason is reported.

use serde::Serialize;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Published results for a workload (80 cores, Linux 3.14 and 3.15).
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Text {
    /// Name of the program used in the published measurement.
    pub program: &'static str,
    /// Hit rate of a cache of the last-used VMA, in per cent.
    pub last_used: f64,
    /// Hit rate of `vmacache`, in per cent.
    pub vmacache: f64,
}

/// Program to record.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    /// Name of the workload in tables.
    pub name: String,
    /// Command line.
    pub command: Vec<OsString>,
    /// Published results for programs of this kind.
    pub text: Option<Text>,
}

/// The prepared programs, and the directory that contains them.
#[derive(Debug)]
pub struct Workloads {
    /// Workloads that can run on this machine.
    pub all: Vec<Workload>,
    /// Names of unavailable workloads, with the reasons.
    pub missing: Vec<String>,
    /// Directory that is removed on drop.
    _folder: TempDir,
}

const BOOT: Text = Text {
    program: "system boot",
    last_used: 50.61,
    vmacache: 73.45,
};
const BUILD: Text = Text {
    program: "kernel build",
    last_used: 75.28,
    vmacache: 88.09,
};
const MINING: Text = Text {
    program: "Oracle 11g data mining",
    last_used: 70.66,
    vmacache: 91.15,
};
const EBIZZY: Text = Text {
    program: "ebizzy, 80 threads",
    last_used: 1.06,
    vmacache: 99.97,
};

/// Runs of the search program: number of threads, and number of allocations per thread.
pub(crate) const SEARCHERS: [(u32, u32); 4] = [(1, 1000), (8, 120), (32, 40), (80, 20)];

const BOOT_SCRIPT: &str = r#"
n=0
while [ $n -lt 12 ]; do
    n=$((n + 1))
    uname -a; id; date; ls -l /etc; cat /proc/self/status; env; stat /; df; ps
    grep root /etc/passwd; sed -n 1,5p /etc/passwd; sort /etc/passwd | uniq -c | head -3
    awk -F: '{ n += $3 } END { print n }' /etc/passwd; find /etc -maxdepth 1 | wc -l
done >/dev/null 2>&1
"#;

const MINING_SCRIPT: &str = r#"
import random, sqlite3
random.seed(7)
db = sqlite3.connect(":memory:")
db.execute("create table sale (item integer, shop integer, day integer, price real)")
db.execute("create table item (id integer primary key, kind text)")
db.executemany("insert into item values (?, ?)",
               ((n, "kind %d" % (n % 97)) for n in range(5000)))
db.executemany("insert into sale values (?, ?, ?, ?)",
               ((random.randrange(5000), random.randrange(200), n % 365, random.random() * 100)
                for n in range(150000)))
db.execute("create index by_item on sale (item, day)")
rows = db.execute("""select kind, shop, count(*), avg(price), max(day) from sale
    join item on item.id = sale.item group by kind, shop having count(*) > 2 order by 4 desc""").fetchall()
by_day = {}
for day, price in db.execute("select day, price from sale"):
    by_day.setdefault(day, []).append(price)
print(len(rows), sum(sorted(prices)[len(prices) // 2] for prices in by_day.values()) > 0)
"#;

macro_rules! project {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../../tests/programs/project/", $name)))),*]
    };
}

/// Files of the small C project that a workload builds.
const PROJECT: [(&str, &str); 10] = project![
    "Makefile", "hash.c", "heap.c", "main.c", "number.c", "report.c", "sort.c", "table.c",
    "text.c", "words.h",
];

impl Workloads {
    /// Prepares the programs.
    ///
    /// # Errors
    /// If the temporary directory is not writable.
    pub fn prepare() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("vmarea-bench-").tempdir()?;
        let mut all = Vec::new();
        let mut missing = Vec::new();
        all.push(Workload::shell("short programs", BOOT_SCRIPT, BOOT));
        match build(folder.path()) {
            Ok(build) => all.push(build),
            Err(why) => missing.push(format!("make -j2: {why}")),
        }
        if is_there("python3", &["-c", "import sqlite3"]) {
            let quiet = format!("exec python3 -c '{MINING_SCRIPT}' >/dev/null");
            all.push(Workload::shell("analytical query", &quiet, MINING));
        } else {
            missing.push(
                "analytical query: there is no python3 with sqlite3: apt-get install python3"
                    .to_owned(),
            );
        }
        match searchers(folder.path()) {
            Ok(searchers) => all.extend(searchers),
            Err(why) => missing.push(format!("searcher: {why}")),
        }
        Ok(Workloads {
            all,
            missing,
            _folder: folder,
        })
    }
}

impl Workload {
    fn shell(name: &str, script: &str, text: Text) -> Self {
        Workload {
            name: name.to_owned(),
            command: ["sh", "-c", script].map(OsString::from).into(),
            text: Some(text),
        }
    }
}

pub(crate) fn is_there(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn build(folder: &Path) -> Result<Workload, String> {
    if !is_there("make", &["--version"]) || !is_there("cc", &["--version"]) {
        return Err("make or cc is missing: apt-get install make gcc libc6-dev".to_owned());
    }
    let project = folder.join("project");
    let written = fs::create_dir(&project).and_then(|()| {
        PROJECT
            .iter()
            .try_for_each(|(name, text)| fs::write(project.join(name), text))
    });
    written.map_err(|error| format!("cannot write the project: {error}"))?;
    let script = format!("exec make -s -j2 -C '{}' >/dev/null", project.display());
    Ok(Workload::shell("make -j2", &script, BUILD))
}

pub(crate) fn searchers(folder: &Path) -> Result<Vec<Workload>, String> {
    let (source, program) = (folder.join("searcher.c"), folder.join("searcher"));
    fs::write(&source, include_str!("searcher.c"))
        .map_err(|error| format!("cannot write it: {error}"))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-pthread", "-o"]);
    compiler.args([&program, &source]).stdin(Stdio::null());
    let output = compiler
        .output()
        .map_err(|_| "cc is missing: apt-get install gcc libc6-dev".to_owned())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().next().unwrap_or_default().to_owned();
        return Err(format!("cc cannot compile it: {first}"));
    }
    let searcher = |(threads, copies): (u32, u32)| {
        let program = program.display();
        let script = format!("exec '{program}' {threads} {copies} >/dev/null");
        let plural = if threads == 1 { "" } else { "s" };
        let text = (threads == 80).then_some(EBIZZY);
        Workload {
            text,
            ..Workload::shell(
                &format!("searcher, {threads} thread{plural}"),
                &script,
                EBIZZY,
            )
        }
    };
    Ok(SEARCHERS.map(searcher).into())
}
