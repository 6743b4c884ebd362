//! `--html`: pages are whole, say what is missing, and show names instead of running them.
//!
//! `ci/run page` looks at the same pages in a browser.

use crate::support::{complaint, text, vmarea};
use std::fs;
use std::path::Path;

fn corpus(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    root.join(format!("{name}.vmtrace")).display().to_string()
}

/// Returns the page that a command writes to standard output.
fn page(arguments: &[&str]) -> String {
    let output = vmarea(&[arguments, &["--html", "-"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    assert!(page.starts_with("<!DOCTYPE html>"), "{}", &page[..80]);
    assert!(page.ends_with("</html>"), "the page is not whole");
    page
}

/// Returns the text between two marks.
fn between<'a>(page: &'a str, before: &str, after: &str) -> &'a str {
    let rest = page.split_once(before).expect(before).1;
    rest.split_once(after).expect(after).0
}

#[test]
fn undecided_results_have_their_reasons() {
    let verified = |trace| {
        let page = page(&["replay", &corpus(trace)]);
        between(&page, "id=\"verified\"", "</section>").to_owned()
    };
    let section = verified("node-workers");
    assert!(section.contains("1 undecided, 0 resyncs"), "{section}");
    let reason = "calls or faults overlapped in an unknown order";
    let row = between(&section, reason, "</tr>");
    assert_eq!(row.matches("<td").count(), 2, "{row}");
    assert!(!verified("gcc").contains("by reason"));
}

#[test]
fn a_replay_page_has_all_sections_and_loads_nothing() {
    let page = page(&["replay", &corpus("gcc")]);
    for id in [
        "over-time",
        "apart",
        "who",
        "graph",
        "events",
        "mappings",
        "by-policy",
        "verified",
    ] {
        assert!(page.contains(&format!("id=\"{id}\"")), "no section {id}");
    }
    let policy = between(&page, "Content-Security-Policy\" content=\"", "\"");
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        let found = page.matches(outside).count();
        // The name space of drawings is not an address.
        let allowed = page.matches("http://www.w3.org/2000/svg").count();
        let allowed = if outside == "http://" { allowed } else { 0 };
        assert_eq!(found, allowed, "the page refers to {outside}");
    }
}

#[test]
fn a_replay_page_says_the_same_as_the_replay() {
    let trace = corpus("thousands-of-threads");
    let page = page(&["replay", &trace]);
    let json = vmarea(&["replay", &trace, "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let peak = json["policies"]["linux"]["vmas_peak_single"]
        .as_u64()
        .unwrap();
    let tile = between(&page, "mappings at the peak</dt><dd>", "</dd>").replace(',', "");
    assert_eq!(tile, peak.to_string());
    let merges = json["policies"]["linux"]["merges"].as_object().unwrap();
    let merges: u64 = merges.values().filter_map(serde_json::Value::as_u64).sum();
    let tile = between(
        &page,
        "<dt>merges, in all processes shown</dt><dd>",
        "</dd>",
    )
    .replace(',', "");
    assert_eq!(tile, merges.to_string());
    let most = between(&page, "the call that made most of them</dt><dd><code>", "<");
    assert_eq!(most, "mprotect(PROT_READ|PROT_WRITE)");
}

#[test]
fn names_with_markup_are_shown_and_data_cannot_end_its_element() {
    let folder = tempfile::tempdir().unwrap();
    let maps = folder.path().join("</script><b>.maps");
    fs::create_dir_all(maps.parent().unwrap()).unwrap();
    let list = "400000-401000 r--p 00000000 08:01 7 /tmp/<script>alert(1)</script>\n\
                401000-402000 r-xp 00001000 08:01 7 /tmp/<script>alert(1)</script>\n";
    fs::write(&maps, list).unwrap();
    let page = page(&["explain", "--from", maps.to_str().unwrap()]);
    assert!(!page.contains("<script>alert"), "a name became markup");
    assert_eq!(page.matches("</script>").count(), 2, "data and script only");
    assert!(
        page.contains("\\u003cscript>alert(1)"),
        "the name is not shown"
    );
    assert!(
        page.contains("&lt;/script&gt;&lt;b&gt;.maps"),
        "the file is not named"
    );
}

#[test]
fn a_torn_recording_gives_a_page_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let torn = folder.path().join("torn.vmtrace");
    let whole = fs::read(corpus("redis")).unwrap();
    fs::write(&torn, &whole[..whole.len() * 2 / 3]).unwrap();
    let page = page(&["replay", torn.to_str().unwrap()]);
    assert!(page.contains("The recording is torn"));
}

#[test]
fn a_page_without_stacks_and_with_nothing_left_out_says_that() {
    let page = page(&["replay", &corpus("gcc")]);
    assert!(page.contains("There are no call stacks"));
    assert!(!page.contains("Thinned"));
}

#[test]
fn a_destination_that_cannot_be_written_fails_before_the_work_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none/page.html");
    let trace = corpus("gcc");
    let output = vmarea(&["replay", &trace, "--html", missing.to_str().unwrap()]);
    let said = complaint(&output, 1);
    assert!(said.contains("page.html"), "{said}");
    let page = folder.path().join("page.html");
    let nothing = vmarea(&[
        "explain",
        "--from",
        "/dev/null",
        "--html",
        page.to_str().unwrap(),
    ]);
    assert!(!nothing.status.success());
    assert_eq!(
        folder.path().read_dir().unwrap().count(),
        0,
        "a torn page is left"
    );
}

#[test]
fn only_one_result_goes_to_standard_output() {
    let output = vmarea(&["replay", &corpus("gcc"), "--html", "-", "--json"]);
    assert!(complaint(&output, 2).contains("standard output"));
}

#[test]
fn a_page_of_a_file_with_a_graph_has_all_its_processes() {
    let page = page(&["show", "graph", "--trace", &corpus("cow-children")]);
    assert!(
        page.contains("5 processes"),
        "{}",
        between(&page, "<header>", "</header>")
    );
}
