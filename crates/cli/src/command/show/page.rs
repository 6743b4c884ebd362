//! `vmarea show --html`: the mappings of a process as a page.

use vmarea_process::Source;
use vmarea_report::page::{Names, Still};
use vmarea_report::shown::Shown;
use vmarea_report::timeline::still;

/// Returns the page.
pub(super) fn page(shown: &Shown) -> String {
    let process = &shown.process;
    let mut missing = process.notes.clone();
    if let Some(why) = &process.without_view {
        missing.push(format!("without the kernel's own view: {why}"));
    }
    let origins = "which calls made the mappings is not shown here; `vmarea explain --html FILE -- COMMAND` records it";
    missing.push(origins.to_owned());
    let source = match process.source {
        Source::Kernel => "with the kernel's own view (BPF)",
        Source::Replay => "from a recording",
        Source::Maps | Source::Smaps => "from /proc",
    };
    let page = Still {
        name: &shown.title(),
        source,
        timeline: &still::of_process(process, &[]),
        names: &Names::default(),
        limit: process.limit,
        missing: &missing,
        text: None,
    };
    page.page()
}
