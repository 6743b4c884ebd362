//! Text of the functions that made the mappings, at most 80 columns wide.

use super::Report;
use super::function_name::fitted;
use super::glue::is_glue;
use super::made_from::MadeFrom;
use super::rows::printable;
use super::text::{PLAIN, STRONG, clip, count, plural, shorten, write_wrapped};
use std::collections::BTreeSet;
use std::io::{self, Write};
use vmarea_symbols::Frame;

/// Maximum number of functions that are shown.
const FUNCTIONS: usize = 5;
/// Maximum number of callers that are shown per function.
const CALLERS: usize = 5;
/// Maximum number of files without symbols that are named.
const MODULES: usize = 6;
/// Maximum number of calls that are shown per function.
const CALLS: usize = 3;
pub(super) const WIDTH: usize = 80;

impl Report {
    /// Writes the functions that made the most mappings.
    pub(super) fn write_functions(&self, out: &mut dyn Write) -> io::Result<()> {
        let libraries: Vec<_> = self.made_from.iter().filter(|made| made.library).collect();
        let own: Vec<_> = self.made_from.iter().filter(|made| !made.library).collect();
        let (shown, others) = own.split_at(own.len().min(FUNCTIONS));
        for (n, made) in shown.iter().enumerate() {
            let this = if n == 0 { "This function" } else { "This one" };
            write_function(out, this, made)?;
        }
        write_rest(out, "Other functions", others)?;
        let names: BTreeSet<_> = libraries.iter().filter_map(|made| module(made)).collect();
        let names: Vec<_> = names.into_iter().take(MODULES).collect();
        let who = match names.is_empty() {
            true => "The dynamic loader and libraries".to_owned(),
            false => format!("Libraries ({})", printable(&names.join(", "))),
        };
        write_rest(out, &who, &libraries)?;
        self.write_missing_symbols(out)
    }

    /// Names the programs and libraries whose functions have no names in the stacks.
    fn write_missing_symbols(&self, out: &mut dyn Write) -> io::Result<()> {
        let own = self.made_from.iter().filter(|made| !made.library);
        let stacks = own.flat_map(|made| made.stack.iter().skip(made.own));
        let sites = self.prevention.iter().flat_map(|change| &change.site);
        let mut nameless: Vec<_> = stacks.chain(sites).filter_map(nameless).collect();
        nameless.sort_unstable();
        nameless.dedup();
        if nameless.is_empty() {
            return Ok(());
        }
        let (shown, others) = nameless.split_at(nameless.len().min(MODULES));
        let mut names = shown.join(", ");
        if !others.is_empty() {
            names += &format!(" and {} more", others.len());
        }
        writeln!(out)?;
        let text = format!(
            "some functions of {names} have no names; install their debug symbols (on Debian, the packages that end in \
             -dbgsym or -dbg) and record again"
        );
        write_wrapped(out, &printable(&text))
    }
}

/// Returns the file of a function that has no name.
fn nameless(frame: &Frame) -> Option<&str> {
    let module = frame.module.as_deref()?;
    let offset = frame.function.strip_prefix(module)?;
    offset.starts_with("+0x").then_some(module)
}

fn write_rest(out: &mut dyn Write, who: &str, rest: &[&MadeFrom]) -> io::Result<()> {
    if rest.is_empty() {
        return Ok(());
    }
    let mappings = rest.iter().map(|made| made.mappings).sum();
    let removable = rest.iter().map(|made| made.removable).sum();
    writeln!(out)?;
    let made = made_and_saved(mappings, removable).join("; ");
    write_wrapped(out, &format!("{who} made {made}"))
}

/// Returns the file of the library that made mappings: an allocator, if it was one.
fn module(made: &MadeFrom) -> Option<&str> {
    let library = made.through.as_deref();
    library.or(made.code.module.as_deref())
}

/// Returns the number of mappings, and the number that can be removed, in words.
fn made_and_saved(mappings: u64, removable: u64) -> [String; 2] {
    let made = match mappings {
        1 => "1 mapping".to_owned(),
        n => format!("{} mappings", count(n)),
    };
    let saved = match removable {
        0 => "none can be removed".to_owned(),
        n => format!("{} can be removed", count(n)),
    };
    [made, saved]
}

fn write_function(out: &mut dyn Write, this: &str, made: &MadeFrom) -> io::Result<()> {
    writeln!(out)?;
    let [mappings, saved] = made_and_saved(made.mappings, made.removable);
    writeln!(out, "{STRONG}{this} made {mappings}{PLAIN}; {saved}")?;
    writeln!(out, "  {STRONG}{}{PLAIN}", name(&made.code, WIDTH - 2))?;
    writeln!(out, "    {}", place(&made.code, WIDTH - 4))?;
    if let Some(library) = &made.through {
        writeln!(
            out,
            "    through {}",
            shorten(&printable(library), WIDTH - 12)
        )?;
    }
    for call in made.calls.iter().take(CALLS) {
        let at = call.line.map(|line| format!(" in line {line}"));
        let line = format!(
            "{} by {}{} ({})",
            count(call.mappings),
            call.call,
            at.unwrap_or_default(),
            call.reason
        );
        writeln!(out, "    {}", shorten(&line, WIDTH - 4))?;
    }
    if made.calls.len() > CALLS {
        let rest: u64 = made.calls[CALLS..].iter().map(|call| call.mappings).sum();
        writeln!(out, "    {} by other calls", count(rest))?;
    }
    let outer = &made.stack[made.own.min(made.stack.len())..];
    let callers: Vec<_> = outer
        .iter()
        .skip(1)
        .filter(|frame| !is_glue(frame))
        .collect();
    for caller in callers.iter().take(CALLERS) {
        writeln!(out, "  from {}", one_line(caller, WIDTH - 7))?;
    }
    if callers.len() > CALLERS {
        let more = plural((callers.len() - CALLERS) as u64, "more caller");
        writeln!(out, "  and {more}")?;
    }
    if made.stacks > 1 {
        writeln!(
            out,
            "  (the most frequent of {} stacks)",
            count(made.stacks)
        )?;
    }
    Ok(())
}

fn name(frame: &Frame, width: usize) -> String {
    let name = printable(&frame.function);
    fitted(&name, width).unwrap_or_else(|alone| shorten(&alone, width))
}

/// Returns file and line, or the module if they are unknown.
fn place(frame: &Frame, width: usize) -> String {
    let module = frame.module.as_deref().map(printable).unwrap_or_default();
    let Some(file) = &frame.file else {
        return format!("in {}", clip(&module, width - 3));
    };
    let line = frame
        .line
        .map(|line| format!(":{line}"))
        .unwrap_or_default();
    let rest = format!("{line} in {}", shorten(&module, width / 3));
    let left = width.saturating_sub(rest.chars().count());
    format!("{}{rest}", clip(&printable(file), left))
}

/// Returns name and place, the place without folders; no place if the name leaves no room for it.
pub(super) fn one_line(frame: &Frame, width: usize) -> String {
    let file = frame.file.as_ref().or(frame.module.as_ref());
    let file = file.map(|file| file.rsplit('/').next().unwrap_or(file));
    let mut place = clip(&printable(file.unwrap_or_default()), width / 3);
    if let Some(line) = frame.line {
        place += &format!(":{line}");
    }
    let left = width.saturating_sub(place.chars().count() + 3);
    match fitted(&printable(&frame.function), left) {
        Ok(name) => format!("{name} ({place})"),
        Err(_) => name(frame, width),
    }
}
