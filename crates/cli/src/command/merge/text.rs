//! The text of a merge: its result, its forecast, and notes on repairs that move no pages.

use super::{Merge, Said};
use std::io::{self, Write};
use vmarea_explain::text::{count, plural};
use vmarea_repair::Fixed;
use vmarea_terminal::console::Console;

/// Number of threads from which on the cost of a stop is shown.
const MANY_THREADS: u64 = 50;

impl Merge {
    /// Writes what a merge has done.
    pub(super) fn write_result(
        &self,
        console: &Console,
        out: &mut dyn Write,
        said: &Said,
        fixes: &[Fixed],
    ) -> io::Result<()> {
        if !said.applied {
            return Ok(());
        }
        let (before, after) = (count(said.before), count(said.after));
        writeln!(out, "{before} mappings became {after}")?;
        let is_whole = said.left == 0 && fixes.iter().all(|fixed| fixed.left == 0);
        if said.after > said.promised && is_whole {
            let more = count(said.after - said.promised);
            let why = why_more(said.refused);
            writeln!(out, "{more} more than the dry run promises: {why}")?;
        }
        for fixed in fixes {
            write_fixed(out, fixed)?;
        }
        if said.pieces > 0 {
            let did = if said.by == "move" { "moved" } else { "merged" };
            let (size, steps) = (console.size(said.bytes), count(said.pieces));
            writeln!(out, "{did} {size} in {steps} steps")?;
        }
        writeln!(
            out,
            "longest pause {:.1} ms, {:.0} ms in all",
            said.longest_pause_us as f64 / 1e3,
            said.total_us as f64 / 1e3
        )?;
        if said.long_pauses > 0 {
            writeln!(
                out,
                "{} {} longer than --max-pause ({:.1} ms)",
                plural(said.long_pauses, "pause"),
                if said.long_pauses == 1 { "was" } else { "were" },
                self.max_pause.as_secs_f64() * 1e3
            )?;
        }
        if said.copied_pages > 0 {
            let which = if said.by == "move" {
                "shared pages"
            } else {
                "pages"
            };
            writeln!(out, "copied {} {which}", count(said.copied_pages))?;
        }
        Ok(())
    }

    /// Writes what a merge would do.
    pub(super) fn write_forecast(
        &self,
        console: &Console,
        out: &mut dyn Write,
        said: &Said,
    ) -> io::Result<()> {
        if said.after >= said.before {
            return Ok(());
        }
        let (before, after) = (count(said.before), count(said.after));
        writeln!(out, "{before} mappings would become {after}")?;
        if said.may_remain > 0 {
            writeln!(out, "of these, {} may remain", count(said.may_remain))?;
        }
        if said.runs > 0 {
            writeln!(
                out,
                "{} of neighbours, {} of address space, in steps of at most {:.1} ms",
                plural(said.runs, "run"),
                console.size(said.bytes),
                self.max_pause.as_secs_f64() * 1e3
            )?;
        }
        if said.by == "copy" {
            writeln!(out, "the pages would be copied, not moved (see --by)")?;
        }
        writeln!(
            out,
            "longest pause about {:.1} ms, about {:.1} s in all (idle machine)",
            said.longest_pause_us as f64 / 1e3,
            said.total_us as f64 / 1e6
        )?;
        if said.threads >= MANY_THREADS {
            writeln!(
                out,
                "each pause includes about {:.1} ms to stop its {} threads",
                said.stop_us as f64 / 1e3,
                count(said.threads)
            )?;
        }
        Ok(())
    }
}

/// Returns why a process has more mappings than the dry run promises. `refused` is the number of merges
/// that the dry run expected and the kernel refused.
fn why_more(refused: u64) -> String {
    match refused {
        0 => "the process made new ones meanwhile".to_owned(),
        n => format!(
            "{} merges were refused (see the notes), and the process may have made new ones",
            count(n)
        ),
    }
}

/// Writes what a repair that moves no pages has changed.
fn write_fixed(out: &mut dyn Write, fixed: &Fixed) -> io::Result<()> {
    let fewer = fixed.fewer.unwrap_or(0);
    let which = if fewer < 0 { "more" } else { "fewer" };
    let number = plural(fewer.unsigned_abs(), "mapping");
    let (places, stops) = (plural(fixed.places, "place"), plural(fixed.stops, "step"));
    let name = fixed.fix.name();
    writeln!(out, "{name}: changed {places} in {stops}, {number} {which}")
}

/// Notes what the repairs would change, or have changed before the merge failed.
pub(super) fn note_fixes(console: &Console, fixes: &[Fixed]) {
    for fixed in fixes {
        let (name, places) = (fixed.fix.name(), plural(fixed.places, "place"));
        match fixed.fewer {
            Some(_) => console.note(&format!("{name}: changed {places}")),
            None => {
                console.note(&format!("{name}: would change {places}"));
                note_apart(console, fixed);
            }
        }
    }
}

/// Notes the guards that a repair leaves as they are.
pub(super) fn note_apart(console: &Console, fixed: &Fixed) {
    if fixed.apart > 0 {
        console.note(&format!(
            "{}: {} not merged: they were used as memory once (another anon_vma)",
            fixed.fix.name(),
            count(fixed.apart)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::why_more;

    #[test]
    fn more_mappings_than_promised_have_a_reason() {
        assert_eq!(why_more(0), "the process made new ones meanwhile");
        assert!(why_more(1_200).starts_with("1,200 merges were refused"));
    }
}
