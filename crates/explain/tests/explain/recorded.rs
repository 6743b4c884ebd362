//! Tests of explanations of recorded programs: the call and the stack that created each boundary.

use std::ffi::OsString;
use std::io::{self, Cursor};
use vmarea_explain::recorded::{Recorded, at_peak};
use vmarea_explain::stacks::StackTable;
use vmarea_explain::{List, Report, explain_recorded};
use vmarea_recorder::{CallStack, Options, Sink, Stacks};
use vmarea_test_support::boundaries::Program;
use vmarea_trace::Writer;
use vmarea_trace::event::{Event, Header};

/// Keeps the trace and the stacks in memory.
#[derive(Default)]
struct Kept {
    writer: Option<Writer<Vec<u8>>>,
    stacks: StackTable,
}

impl Sink for Kept {
    fn header(&mut self, header: &Header) -> io::Result<()> {
        let writer = Writer::new(Vec::new(), header).map_err(io::Error::other)?;
        self.writer = Some(writer);
        Ok(())
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        let writer = self.writer.as_mut().expect("a header came first");
        writer.write(event).map_err(io::Error::other)
    }

    fn stack(&mut self, stack: &CallStack) {
        self.stacks.add(stack);
    }
}

/// Records a command of a shell to its end, and replays it up to the moment with the most mappings.
fn recorded(shell: &str) -> (Recorded, vmarea_explain::stacks::Stacks) {
    let options = Options {
        command: ["sh", "-c", shell].map(OsString::from).to_vec(),
        stacks: Stacks::Copy,
        ..Options::default()
    };
    let mut kept = Kept::default();
    let outcome = vmarea_recorder::record(&options, &mut kept, &mut |_| {}).unwrap();
    assert_eq!(outcome.status, 0, "{shell}");
    let trace = kept.writer.unwrap().finish().unwrap();
    let (calls, named) = kept.stacks.into_parts();
    let recorded = at_peak(|| Ok(Cursor::new(&trace)), calls).unwrap();
    assert_eq!(recorded.differences, 0, "{shell}");
    (recorded, named)
}

/// Records a case, and explains it.
fn explained(program: &Program, case: &str, n: u64) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let shell = format!(
        "exec {} {case} {n} {} < /dev/null > /dev/null",
        program.binary().display(),
        folder.path().display()
    );
    let (recorded, named) = recorded(&shell);
    explain_recorded(&recorded, &named, List::Summary)
}

#[test]
fn each_boundary_is_traced_to_the_call_that_made_it() {
    let program = Program::compile();
    for (case, reason, call) in [
        ("flags_dontfork", "flags", "madvise(MADV_DONTFORK)"),
        ("guard_protected", "guard", "mprotect(PROT_NONE)"),
        ("page_offset", "page_offset", "mremap"),
        ("anon_vma_mapped", "anon_vma", "mmap(PROT_READ|PROT_WRITE)"),
        ("file_different", "file", "mmap(file)"),
    ] {
        const N: u64 = 100;
        let report = explained(&program, case, N);
        let found = report.reasons.iter().find(|count| count.reason == reason);
        let made = found
            .unwrap_or_else(|| panic!("{case}: {:?}", report.reasons))
            .made_by[0]
            .clone();
        assert_eq!(made.call, call, "{case}: {:?}", report.reasons);
        // The case creates exactly N boundaries; the start of the program may create a few more.
        assert!((N..N + 20).contains(&made.mappings), "{case}: {made:?}");
        let all: u64 = report.reasons.iter().map(|count| count.mappings).sum();
        assert_eq!(all + 1, report.mappings, "{case}");
        let made = &report.made_from[0];
        let made_call = (made.calls[0].reason, made.calls[0].call.as_str());
        assert_eq!(made_call, (reason, call), "{case}: {made:?}");
        let functions: Vec<_> = made.stack.iter().map(|frame| &frame.function).collect();
        assert!(
            functions.iter().any(|name| *name == "main"),
            "{case}: {functions:?}"
        );
    }
}

/// Maps reservations and makes their first page writable; then makes one page more of each writable,
/// which moves the boundaries. The calls of the second loop make no mapping.
const GROWS: &str = r#"
#include <sys/mman.h>
static char *all[200];
static void make(void)
{
	for (int i = 0; i < 200; i++) {
		all[i] = mmap(0, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		mprotect(all[i], 4096, PROT_READ | PROT_WRITE);
		*all[i] = 1;
	}
}
static void grow(void)
{
	for (int i = 0; i < 200; i++)
		mprotect(all[i] + 4096, 4096, PROT_READ | PROT_WRITE);
}
int main(void)
{
	make();
	grow();
}
"#;

#[test]
fn a_boundary_that_is_moved_keeps_its_maker() {
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("grows.c"), folder.path().join("grows"));
    std::fs::write(&source, GROWS).unwrap();
    let mut compiler = std::process::Command::new("cc");
    let compiled = compiler.args(["-g", "-O0", "-o"]).arg(&binary).arg(&source);
    assert!(compiled.status().unwrap().success());
    let (recorded, named) = recorded(&format!("exec {}", binary.display()));
    let report = explain_recorded(&recorded, &named, List::Summary);
    let made: Vec<_> = report
        .made_from
        .iter()
        .map(|made| (made.code.function.as_str(), made.mappings))
        .collect();
    let of = |name| made.iter().find(|(function, _)| *function == name);
    assert!(of("make").is_some_and(|(_, made)| *made >= 398), "{made:?}");
    assert_eq!(of("grow"), None, "{made:?}");
}
