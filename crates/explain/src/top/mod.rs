//! Repeated samples of the number of mappings of each process, at low cost.
//!
//! Sampling a process reads its `stat` and its list of mappings, and never walks its page tables.
//! As long as the size of a process is unchanged, its mappings are listed again only after some
//! time. The number of joinable mappings is an estimate, because only [`explain`](crate), which
//! examines a single process, reads the kernel view.

pub mod openmetrics;

use serde::Serialize;
use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};
use vmarea::policy::Policy;
use vmarea_process::boundaries;
use vmarea_process::mappings::{Mappings, Smaps};
use vmarea_process::processes::{self, Stat};

/// Age after which a list of mappings is read again even if the process's size is unchanged.
///
/// Mappings can be split or merged while the size of the process stays the same.
const TRUST: Duration = Duration::from_secs(10);

/// A process and its number of mappings.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessRow {
    /// Process ID.
    pub pid: i32,
    /// Name of the first thread.
    pub name: String,
    /// Number of mappings.
    pub mappings: u64,
    /// Number of mappings in percent of the limit.
    pub percent_of_limit: f64,
    /// Growth in mappings per minute between the last two listings; `None` in the first sample.
    pub per_minute: Option<f64>,
    /// Number of mappings that could probably be saved.
    pub joinable: u64,
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
    listed: Instant,
    mappings: u64,
    joinable: u64,
    per_minute: Option<f64>,
}

/// Samples all processes repeatedly.
#[derive(Debug)]
pub struct Sampler {
    policy: Policy,
    last: HashMap<i32, Last>,
}

impl Default for Sampler {
    fn default() -> Self {
        Sampler {
            policy: processes::kernel_policy(),
            last: HashMap::new(),
        }
    }
}

impl Sampler {
    /// Samples every process except kernel threads and processes that exit during the sample.
    ///
    /// # Errors
    /// Any error from listing `/proc`.
    pub fn look(&mut self) -> io::Result<Look> {
        let began = Instant::now();
        let mut look = Look {
            schema: 1,
            limit: processes::max_map_count(),
            processes: 0,
            unreadable: 0,
            took_ns: 0,
            rows: Vec::new(),
        };
        let before = std::mem::take(&mut self.last);
        for pid in processes::list()? {
            let Ok(stat) = processes::stat(pid) else {
                continue;
            };
            if stat.virtual_bytes == 0 {
                continue;
            }
            let known = before.get(&pid).filter(|last| last.started == stat.started);
            match self.measure(pid, &stat, known, began) {
                Ok(Some(now)) => {
                    look.rows.push(row(pid, stat, &now, look.limit));
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
            .sort_by_key(|row| (std::cmp::Reverse(row.mappings), row.pid));
        look.took_ns = began.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
        Ok(look)
    }

    /// Counts the mappings of one process; returns `None` if it no longer has any.
    fn measure(
        &self,
        pid: i32,
        stat: &Stat,
        known: Option<&Last>,
        now: Instant,
    ) -> io::Result<Option<Last>> {
        if let Some(last) = known
            && last.virtual_bytes == stat.virtual_bytes
            && now.duration_since(last.listed) < TRUST
        {
            return Ok(Some(last.clone()));
        }
        let mappings = Mappings::read(pid, None, Smaps::Never)?.list;
        let boundaries = boundaries(&self.policy, &mappings);
        let joinable = boundaries.iter().filter(|b| b.remedy.is_some()).count();
        Ok((!mappings.is_empty()).then(|| Last {
            started: stat.started,
            virtual_bytes: stat.virtual_bytes,
            listed: now,
            mappings: mappings.len() as u64,
            joinable: joinable as u64,
            per_minute: known.map(|last| per_minute(last, mappings.len() as u64, now)),
        }))
    }
}

/// Returns the change in the number of mappings per minute since the process was last listed.
fn per_minute(last: &Last, mappings: u64, now: Instant) -> f64 {
    let more = mappings as f64 - last.mappings as f64;
    more * 60.0 / now.duration_since(last.listed).as_secs_f64().max(1e-3)
}

fn row(pid: i32, stat: Stat, now: &Last, limit: u64) -> ProcessRow {
    ProcessRow {
        pid,
        name: stat.name,
        mappings: now.mappings,
        percent_of_limit: now.mappings as f64 * 100.0 / limit.max(1) as f64,
        per_minute: now.per_minute,
        joinable: now.joinable,
        virtual_bytes: stat.virtual_bytes,
    }
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
        assert_eq!(row.pid, own);
    }

    #[test]
    fn a_trend_is_counted_from_the_last_listing() {
        let listed = Instant::now();
        let last = Last {
            started: 1,
            virtual_bytes: 1,
            listed,
            mappings: 100,
            joinable: 0,
            per_minute: None,
        };
        let later = listed + Duration::from_secs(30);
        assert_eq!(per_minute(&last, 150, later), 100.0);
        assert_eq!(per_minute(&last, 90, later), -20.0);
    }
}
