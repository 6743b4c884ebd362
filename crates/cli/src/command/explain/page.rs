//! `vmarea explain --html`: the explanation as a page.

use super::Explained;
use anstream::adapter::strip_str;
use vmarea_process::Source;
use vmarea_report::page::{Names, Still};
use vmarea_report::timeline::still;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::Result;

/// Returns the page.
///
/// # Errors
/// Fails if the report cannot be formatted.
pub(super) fn page(console: &Console, explained: &Explained) -> Result<String> {
    let Explained {
        report,
        process,
        origins,
        stacks,
    } = explained;
    let size = |bytes| console.size(bytes).to_string();
    let mut text = Vec::new();
    report.write_text(&mut text, &size)?;
    let text = String::from_utf8_lossy(&text);
    let text = strip_str(&text).to_string();
    let names = Names::of(stacks);
    let name = match process.pid {
        Some(pid) => format!("process {pid} ({})", process.name),
        None => process.name.clone(),
    };
    let page = Still {
        name: &name,
        source: source(process.source),
        timeline: &still::of_process(process, origins),
        names: &names,
        limit: process.limit,
        missing: &missing(explained),
        text: Some(&text),
    };
    Ok(page.page())
}

fn source(source: Source) -> &'static str {
    match source {
        Source::Kernel => "read from the kernel's own view (BPF)",
        Source::Maps => "read from a list of mappings (maps)",
        Source::Smaps => "read from a list of mappings with details (smaps)",
        Source::Replay => "a recorded program, at the moment when it had the most mappings",
    }
}

fn missing(explained: &Explained) -> Vec<String> {
    let process = &explained.process;
    let mut missing = process.notes.clone();
    if let Some(why) = &process.without_view {
        missing.push(format!("without the kernel's own view: {why}"));
    }
    if process
        .mappings
        .iter()
        .all(|mapping| mapping.kernel.is_none())
    {
        missing.push(
            "which mappings were written to is not known, so some reasons are only likely, and there are no families \
             of anon_vmas"
                .to_owned(),
        );
    }
    if explained.origins.is_empty() {
        missing.push(
            "which calls made the mappings is not known; `vmarea explain --html FILE -- COMMAND` records it"
                .to_owned(),
        );
    }
    if process.changed > 0 {
        missing.push(format!(
            "{} mappings changed while they were read",
            process.changed
        ));
    }
    missing
}
