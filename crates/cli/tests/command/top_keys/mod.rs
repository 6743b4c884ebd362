//! `top` on a terminal, used by its keys.

mod terminal;

use crate::support::{Idle, VMAREA};
use std::io::{Read, Write};
use std::process::Command;
use terminal::Terminal;

/// Maps 300 pages at each line of its input, and echoes the line; neighbours differ in permissions.
const GROWING: &str = "import mmap, sys\n\
     kept = []\n\
     for line in sys.stdin:\n\
     \tfor n in range(300):\n\
     \t\tprot = [mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE][n % 2]\n\
     \t\tkept.append(mmap.mmap(-1, 4096, prot=prot))\n\
     \tprint(line, end='', flush=True)";

/// Starts a program whose command line contains the mark.
fn growing(mark: &str) -> Idle {
    Idle::start(Command::new("python3").args(["-c", GROWING, mark]))
}

fn grow(program: &mut Idle) {
    let child = &mut program.0;
    writeln!(child.stdin.as_mut().unwrap(), "x").expect("its input");
    let echo = child.stdout.as_mut().unwrap();
    // The rest of the first line, and this one.
    echo.read_exact(&mut [0; 2]).expect("its output");
}

/// Starts `top` with the list filtered to one program.
fn top_of(mark: &str, columns: u16) -> Terminal {
    let mut top = Terminal::start(VMAREA, &["top", "--interval", "300ms"], columns, 24);
    top.wait_for_line("sorted by mappings");
    top.keys(&format!("/{mark}"));
    top.wait_for_line(&format!("/{mark}█"));
    top.keys("\r");
    top.wait_for_line("Enter ");
    top
}

#[test]
fn a_process_is_found_explained_and_left_by_keys() {
    let mark = format!("mark-{}-keys", std::process::id());
    let program = growing(&mark);
    let pid = program.pid();
    let mut top = top_of(&mark, 80);
    let row = top.wait_for_line(&format!("{pid:>7} "));
    let mappings: u64 = row[8..16].trim().parse().expect("a number of mappings");
    assert!(mappings > 300, "{row}");
    top.wait_for_line("sorted by mappings; 1 with `mark-");
    // The list's row is too narrow for so much of the command line.
    let runs = top.wait_for_line("-c import mmap");
    assert!(runs.starts_with("runs "), "{runs}");
    top.wait_for_line("in /");

    top.keys("\r");
    top.wait_for_line(&format!("process {pid} (python3): {mappings} mappings"));
    let reason = top.wait_for_line("different permissions");
    assert!(reason.starts_with("protection "), "{reason}");
    // A key that arrives together with a resize may stay unread: wait until the resize is drawn.
    top.resize(80, 8);
    top.wait_for("8 lines", |lines| lines[7].starts_with("q back"));
    top.keys("\x1b[6~");
    top.wait_for("the end of the page", |lines| !lines[0].contains("process"));
    top.resize(80, 24);
    top.wait_for("24 lines", |lines| lines[23].starts_with("q back"));
    top.keys("q");
    top.wait_for_line("sorted by mappings");

    for order in ["growth", "time to limit", "mergeable", "size", "mappings"] {
        top.keys("s");
        top.wait_for_line(&format!("sorted by {order}"));
    }
    top.keys("?");
    top.wait_for_line("this help");
    top.keys("q");
    top.wait_for_line("sorted by");
    top.keys("q");
    let (status, restored) = top.end();
    assert_eq!(status.code(), Some(0));
    assert!(restored, "the terminal is not as it was");
}

#[test]
fn growth_and_the_time_to_the_limit_are_shown() {
    let mark = format!("mark-{}-grows", std::process::id());
    let mut program = growing(&mark);
    let mut top = top_of(&mark, 80);
    top.wait_for_line(&format!("{:>7} ", program.pid()));
    grow(&mut program);
    let details = top.wait_for_line("limit in ");
    let grown = details.split_once("; +").expect("growth").1;
    let number = grown.split(' ').next().unwrap().replace(',', "");
    assert!(number.parse::<u64>().unwrap() > 60, "{details}");
    let row = top.wait_for_line(&format!("{:>7} ", program.pid()));
    assert!(row.contains(" min ") || row.contains(" h "), "{row}");
    // The process ends while it is selected.
    drop(program);
    top.wait_for_line("sorted by mappings; 0 with");
    top.keys("\r\x1b[Bq");
    assert_eq!(top.end().0.code(), Some(0));
}

#[test]
fn the_screen_follows_a_resize() {
    let mark = format!("mark-{}-wide", std::process::id());
    let program = growing(&mark);
    let row = format!("{:>7} ", program.pid());
    let mut top = top_of(&mark, 80);
    let fits = |columns: usize| {
        move |lines: &[String]| {
            let keys = lines.last().is_some_and(|line| line.contains("? help"));
            keys && lines.iter().all(|line| line.chars().count() <= columns)
        }
    };
    let lines = top.wait_for("80 columns", fits(80));
    assert!(lines[2].contains("TO LIMIT MERGEABLE USER"), "{lines:?}");
    top.resize(40, 12);
    top.wait_for("40 columns", |lines| lines[2].ends_with("LIMIT COMMAND"));
    let narrow = top.wait_for_line(&row);
    assert!(narrow.len() > 24, "no command: {narrow}");
    top.keys("\r");
    top.wait_for("a page in 40 columns", fits_page);
    top.keys("q");
    top.resize(160, 40);
    top.wait_for("160 columns", |lines| lines[2].contains("CONTAINER"));
    let wide = top.wait_for_line(&row);
    assert!(wide.contains('·') && wide.contains("MiB"), "{wide}");
    top.keys("\x03");
    assert_eq!(top.end().0.code(), Some(0));
}

/// True if the page of a process ends each line with a whole word, in 40 columns.
fn fits_page(lines: &[String]) -> bool {
    let said = lines.iter().any(|line| line.contains("% of the limit"));
    said && lines.iter().all(|line| line.chars().count() <= 40)
}
