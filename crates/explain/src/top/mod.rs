//! Repeated samples of the number of mappings of each process, at low cost.
//!
//! A sample reads the `stat` of each process, and never walks page tables. The mappings are listed
//! if the size of the address space has changed, and otherwise from time to time: after [`TRUST`]
//! if the process has run since, and after [`TRUST_IDLE`] if it has only slept. Labels such as the
//! command line are read together with the list. The number of joinable mappings is what
//! [`explain`](crate) says. Where the kernel view cannot be read, a list hides what decides it: then
//! it is known only if there is nothing to repair.
//!
//! [`Sampler::pause`] keeps the samples below a share of one core, however many processes there are.

mod growth;
pub mod openmetrics;

use super::plan::Plan;
use growth::{Growth, minutes_to_limit};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};
use vmarea::policy::Policy;
use vmarea_process::Process;
use vmarea_process::identity::{Identity, Users, identity};
use vmarea_process::kernel::{self, RulesBasis};
use vmarea_process::mappings::{Mappings, Smaps};
use vmarea_process::processes::{self, Stat};
use vmarea_process::view::KernelView;

/// Age after which the mappings of a process that has run are listed again.
///
/// Mappings can be split or merged while the size of the process stays the same.
const TRUST: Duration = Duration::from_secs(10);
/// Age after which the mappings of a process that has only slept are listed again.
///
/// Its processor time is known in units of 10 ms, in which it can split some mappings.
const TRUST_IDLE: Duration = Duration::from_secs(60);
/// Seconds over which the lists of idle processes are spread, so that not all are due at once.
const SPREAD: u64 = 30;
/// The part of one core's time that samples may take: 4 %. With drawing, `top` stays below 5 %.
const SHARE: u32 = 25;

/// A process and its number of mappings.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessRow {
    /// Process ID.
    pub pid: i32,
    /// Name of the first thread.
    pub name: String,
    /// Command line with spaces between the arguments, at most 4 KiB; may be empty.
    pub command_line: String,
    /// Name of the effective user in `/etc/passwd`, or the user ID.
    pub user: String,
    /// Name or abbreviated ID of the container, as far as the control group's path contains it.
    pub container: Option<String>,
    /// Path of the control group; empty if not known.
    pub cgroup: String,
    /// Number of mappings.
    pub mappings: u64,
    /// Number of mappings in percent of the limit.
    pub percent_of_limit: f64,
    /// Growth in mappings per minute, averaged over at most the last minute; `None` in the first
    /// sample.
    pub per_minute: Option<f64>,
    /// Minutes until the limit is reached if the growth continues; `None` without growth.
    pub minutes_to_limit: Option<f64>,
    /// Number of mappings that all repairs together would save, as `explain` counts them; `None` if
    /// the kernel's own data cannot be read and the list of mappings does not show it.
    pub joinable: Option<u64>,
    /// Size of the address space in bytes.
    pub virtual_bytes: u64,
}

/// One sample of all processes.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Look {
    /// Version of this structure.
    pub schema: u32,
    /// Maximum number of mappings per process.
    pub limit: u64,
    /// What the rules of the kernel rest on.
    pub rules: RulesBasis,
    /// Number of processes that have mappings.
    pub processes: u64,
    /// Number of processes that the caller is not permitted to inspect.
    pub unreadable: u64,
    /// Duration of the sample in nanoseconds.
    pub took_ns: u64,
    /// Processes, ordered by number of mappings, largest first.
    pub rows: Vec<ProcessRow>,
}

/// Data about a process that is kept for the next sample.
#[derive(Clone, Debug)]
struct Last {
    started: u64,
    virtual_bytes: u64,
    work: u64,
    listed: Instant,
    mappings: u64,
    joinable: Option<u64>,
    growth: Growth,
    identity: Identity,
}

impl Last {
    /// True if the list of mappings need not be read again.
    fn is_current(&self, pid: i32, stat: &Stat, now: Instant) -> bool {
        let trust = if self.work == stat.work {
            TRUST_IDLE + Duration::from_secs(pid.unsigned_abs() as u64 % SPREAD)
        } else {
            TRUST
        };
        self.virtual_bytes == stat.virtual_bytes && now.duration_since(self.listed) < trust
    }
}

/// Samples all processes repeatedly.
#[derive(Debug)]
pub struct Sampler {
    policy: Policy,
    /// `None` if it may not be read.
    view: Option<KernelView>,
    users: Users,
    last: HashMap<i32, Last>,
    /// Processor time of the last sample; `None` before the second one.
    cost: Option<Duration>,
    is_first: bool,
}

impl Default for Sampler {
    fn default() -> Self {
        Sampler {
            policy: kernel::rules().policy,
            // The iterator counts processes as this process's pid namespace does.
            view: (processes::numbers_are_ours())
                .then(KernelView::open)
                .and_then(Result::ok),
            users: Users::read(),
            last: HashMap::new(),
            cost: None,
            is_first: true,
        }
    }
}

impl Sampler {
    /// Samples every process except kernel threads and processes that exit during the sample.
    ///
    /// # Errors
    /// Any error from listing `/proc`.
    pub fn look(&mut self) -> io::Result<Look> {
        let (began, cpu) = (Instant::now(), processor_time());
        let mut look = Look {
            schema: 2,
            limit: processes::max_map_count(),
            rules: RulesBasis::from(kernel::rules()),
            processes: 0,
            unreadable: 0,
            took_ns: 0,
            rows: Vec::new(),
        };
        let mut before = std::mem::take(&mut self.last);
        for pid in processes::list()? {
            let Ok(stat) = processes::stat(pid) else {
                continue;
            };
            if stat.virtual_bytes == 0 {
                continue;
            }
            let known = before
                .remove(&pid)
                .filter(|last| last.started == stat.started);
            match self.measure(pid, &stat, known, began) {
                Ok(Some(now)) => {
                    look.rows.push(self.row(pid, stat, &now, look.limit, began));
                    self.last.insert(pid, now);
                    look.processes += 1;
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    look.processes += 1;
                    look.unreadable += 1;
                }
                // The process has exited since it was listed.
                Err(_) => {}
            }
        }
        look.rows
            .sort_unstable_by_key(|row| (std::cmp::Reverse(row.mappings), row.pid));
        look.took_ns = began.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
        // The first sample lists every process, and is not repeated.
        self.cost = (!self.is_first).then(|| processor_time().saturating_sub(cpu));
        self.is_first = false;
        Ok(look)
    }

    /// Returns the time to wait before the next sample: `interval`, or longer if the samples would
    /// otherwise take more than 4 % of one core.
    pub fn pause(&self, interval: Duration) -> Duration {
        interval.max(self.cost.unwrap_or_default() * (SHARE - 1))
    }

    /// Counts the mappings of one process; returns `None` if it no longer has any.
    fn measure(
        &self,
        pid: i32,
        stat: &Stat,
        known: Option<Last>,
        now: Instant,
    ) -> io::Result<Option<Last>> {
        let growth = match known {
            Some(mut last) if last.is_current(pid, stat, now) => {
                last.growth.continue_to(now, last.mappings);
                return Ok(Some(last));
            }
            known => known.map(|last| last.growth),
        };
        let mappings = Mappings::read(pid, self.view.as_ref(), Smaps::Never)?;
        if mappings.list.is_empty() {
            return Ok(None);
        }
        let process = Process {
            pid: Some(pid),
            policy: self.policy,
            ..Process::of(stat.name.clone(), mappings)
        };
        let count = process.total;
        let mut growth = growth.unwrap_or_else(|| Growth::begin(now, count));
        growth.continue_to(now, count);
        Ok(Some(Last {
            started: stat.started,
            virtual_bytes: stat.virtual_bytes,
            work: stat.work,
            listed: now,
            mappings: count,
            joinable: joinable(&process),
            growth,
            identity: identity(pid)?,
        }))
    }

    fn row(&self, pid: i32, stat: Stat, last: &Last, limit: u64, now: Instant) -> ProcessRow {
        let per_minute = last.growth.per_minute(now, last.mappings);
        ProcessRow {
            pid,
            name: stat.name,
            command_line: last.identity.command_line.clone(),
            user: self.users.name(last.identity.uid),
            container: last.identity.container.clone(),
            cgroup: last.identity.cgroup.clone(),
            mappings: last.mappings,
            percent_of_limit: last.mappings as f64 * 100.0 / limit.max(1) as f64,
            per_minute,
            minutes_to_limit: minutes_to_limit(last.mappings, limit, per_minute),
            joinable: last.joinable,
            virtual_bytes: stat.virtual_bytes,
        }
    }
}

/// Returns how many mappings all repairs together would save, if that is known.
fn joinable(process: &Process) -> Option<u64> {
    let boundaries = process.boundaries();
    let is_known = !process.source.hides_anon_vmas()
        || boundaries.iter().all(|boundary| boundary.remedy.is_none());
    is_known.then(|| Plan::of(process, &boundaries).saved())
}

/// Returns the processor time that this thread has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_process::maps;

    #[test]
    fn this_process_is_counted_as_its_own_list_says() {
        let mut sampler = Sampler::default();
        let look = sampler.look().unwrap();
        let own = std::process::id() as i32;
        let row = look.rows.iter().find(|row| row.pid == own).unwrap();
        // Other tests map and unmap memory concurrently.
        let lines = maps::read(own).unwrap().len() as u64;
        assert!(
            row.mappings.abs_diff(lines) < 100,
            "{} {lines}",
            row.mappings
        );
        assert_eq!(row.per_minute, None, "one look shows no trend");
        assert!(look.rows.is_sorted_by(|a, b| a.mappings >= b.mappings));
        let again = sampler.look().unwrap();
        let row = again.rows.iter().find(|row| row.pid == own).unwrap();
        assert!(row.per_minute.is_some());
        let first = std::env::args().next().unwrap();
        assert!(row.command_line.starts_with(&first), "{row:?}");
    }

    #[test]
    fn samples_pause_so_long_that_they_take_a_small_share_of_a_core() {
        let interval = Duration::from_secs(2);
        let mut sampler = Sampler::default();
        sampler.look().unwrap();
        assert_eq!(
            sampler.pause(interval),
            interval,
            "the first is not counted"
        );
        sampler.cost = Some(Duration::from_millis(50));
        assert_eq!(sampler.pause(interval), interval);
        sampler.cost = Some(Duration::from_millis(200));
        let pause = sampler.pause(interval);
        assert_eq!(pause, Duration::from_millis(4800));
    }

    #[test]
    fn a_list_is_trusted_longer_if_its_process_sleeps() {
        let listed = Instant::now();
        let stat = |work| Stat {
            name: String::new(),
            flags: 0,
            started: 1,
            virtual_bytes: 4096,
            work,
        };
        let last = Last {
            started: 1,
            virtual_bytes: 4096,
            work: 7,
            listed,
            mappings: 1,
            joinable: None,
            growth: Growth::begin(listed, 1),
            identity: Identity::default(),
        };
        let current = |work, seconds| {
            let now = listed + Duration::from_secs(seconds);
            last.is_current(60, &stat(work), now)
        };
        assert!(current(7, 59) && !current(7, 60));
        assert!(current(8, 9) && !current(8, 10));
        let mut grown = stat(7);
        grown.virtual_bytes += 4096;
        assert!(!last.is_current(60, &grown, listed));
    }
}
