//! Whether other programs used the processors while a time was measured.
//!
//! Wall-clock time includes the time for which another program, or the host of a virtual machine,
//! had the processor. A figure of such a time decides a claim only if this was negligible during
//! the measurement itself; a look at the machine before or after it proves nothing.

use std::fs;
use std::time::Instant;

/// Processors that other programs may use on average.
const MOST: f64 = 0.05;

/// Begin of a measurement.
pub(super) struct Watch {
    begun: Instant,
    others: Option<f64>,
}

impl Watch {
    /// Begins to watch the machine.
    pub(super) fn begin() -> Watch {
        Watch {
            begun: Instant::now(),
            others: others(),
        }
    }

    /// Returns what other programs used since the beginning.
    pub(super) fn end(self) -> Idle {
        let seconds = self.begun.elapsed().as_secs_f64().max(1e-9);
        let used = |(now, then)| f64::max(0.0, now - then) / seconds;
        Idle(others().zip(self.others).map(used))
    }
}

/// Processors that other programs used on average; `None` if the kernel does not say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle(pub(super) Option<f64>);

impl Idle {
    /// Returns why a time that was measured meanwhile decides nothing; `None` if it decides.
    pub(super) fn objection(self) -> Option<String> {
        match self.0 {
            None => Some("the load of the machine cannot be read from /proc/stat".to_owned()),
            Some(used) if used > MOST => Some(format!(
                "the machine was busy, other programs used {used:.2} processors"
            )),
            Some(_) => None,
        }
    }
}

/// Returns the processor time of all other programs since boot, in seconds.
///
/// It includes interrupts, and the time for which the host ran something else.
fn others() -> Option<f64> {
    let all = busy(&fs::read_to_string("/proc/stat").ok()?)?;
    let own = own(&fs::read_to_string("/proc/self/stat").ok()?)?;
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    Some((all as f64 - own as f64) / ticks)
}

/// Returns the ticks in which some program ran, from the text of `/proc/stat`.
fn busy(stat: &str) -> Option<u64> {
    let numbers = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace();
    let numbers: Option<Vec<u64>> = numbers.map(|number| number.parse().ok()).collect();
    let [user, nice, system, _idle, _waiting, irq, softirq, steal, ..] = numbers?[..] else {
        return None;
    };
    Some(user + nice + system + irq + softirq + steal)
}

/// Returns the ticks in which a process ran, from the text of its `/proc/PID/stat`.
fn own(stat: &str) -> Option<u64> {
    // The program's name is in parentheses and can contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut field = || fields.next()?.parse::<u64>().ok();
    Some(field()? + field()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_idle_machine_has_no_objection() {
        assert_eq!(Idle(Some(0.01)).objection(), None);
        assert!(Idle(Some(1.3)).objection().unwrap().contains("used 1.30"));
        assert!(Idle(None).objection().is_some());
    }

    #[test]
    fn idle_ticks_are_not_busy_ones() {
        let stat = "cpu  10 1 100 9000 800 7 5 3 2 0\ncpu0 1 2 3\n";
        assert_eq!(busy(stat), Some(126));
        assert_eq!(busy("intr 1"), None);
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 77 33 5 5 20";
        assert_eq!(own(stat), Some(110));
    }
}
