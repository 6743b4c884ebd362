//! Processes by their mappings, measured again and again without being a burden.
//!
//! A look at one process costs its `stat` and its list of mappings, never a walk of its page
//! tables. One whose size did not change is not listed again at once. What could be joined is
//! *likely* at best: the kernel's own view is read by [`explain`](crate), which looks at one process.

pub mod openmetrics;

use serde::Serialize;
use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};
use vmarea::policy::Policy;
use vmarea_process::boundaries;
use vmarea_process::mappings::{Mappings, Smaps};
use vmarea_process::processes::{self, Stat};

/// A process whose size stays the same is listed again after so long: its mappings may have been
/// split or joined in place.
const TRUST: Duration = Duration::from_secs(10);

/// One process.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProcessRow {
    /// Its number.
    pub pid: i32,
    /// The name of its first thread.
    pub name: String,
    /// Its mappings.
    pub mappings: u64,
    /// Mappings in percent of the limit.
    pub percent_of_limit: f64,
    /// Mappings more than when it was listed before, by the minute; none at the first look.
    pub per_minute: Option<f64>,
    /// Mappings that could probably be joined.
    pub joinable: u64,
    /// Bytes of address space.
    pub virtual_bytes: u64,
}

/// One look at all processes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Look {
    /// Version of this structure.
    pub schema: u32,
    /// How many mappings a process may have.
    pub limit: u64,
    /// Processes that have mappings.
    pub processes: u64,
    /// How many of them may not be looked into.
    pub unreadable: u64,
    /// What the look took, nanoseconds.
    pub took_ns: u64,
    /// The processes, most mappings first.
    pub rows: Vec<ProcessRow>,
}

/// What is kept of a process between two looks.
#[derive(Clone, Debug)]
struct Last {
    started: u64,
    virtual_bytes: u64,
    listed: Instant,
    mappings: u64,
    joinable: u64,
    per_minute: Option<f64>,
}

/// Looks at all processes again and again.
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
    /// Looks at every process. Those that end meanwhile, and kernel threads, are left out.
    ///
    /// # Errors
    /// Where `/proc` cannot be listed.
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
                // It has ended meanwhile.
                Err(_) => {}
            }
        }
        look.rows
            .sort_by_key(|row| (std::cmp::Reverse(row.mappings), row.pid));
        look.took_ns = began.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
        Ok(look)
    }

    /// Counts the mappings of one process; `None` where it has none any more.
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

/// The trend since the process was listed last.
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
        // Other tests map and unmap meanwhile.
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
