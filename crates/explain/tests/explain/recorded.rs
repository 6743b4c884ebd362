//! Tests of explanations of recorded programs: the call and the stack that created each boundary.

use std::ffi::OsString;
use std::io::{self, Cursor};
use vmarea_explain::recorded::at_peak;
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

/// Records a case to its end, and explains it at the moment when it had the most mappings.
fn explained(program: &Program, case: &str, n: u64) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let shell = format!(
        "exec {} {case} {n} {} < /dev/null > /dev/null",
        program.binary().display(),
        folder.path().display()
    );
    let options = Options {
        command: ["sh", "-c", &shell].map(OsString::from).to_vec(),
        stacks: Stacks::Copy,
        ..Options::default()
    };
    let mut kept = Kept::default();
    let outcome = vmarea_recorder::record(&options, &mut kept, &mut |_| {}).unwrap();
    assert_eq!(outcome.status, 0, "{case}");
    let trace = kept.writer.unwrap().finish().unwrap();
    let (calls, named) = kept.stacks.into_parts();
    let recorded = at_peak(|| Ok(Cursor::new(&trace)), calls).unwrap();
    assert_eq!(recorded.differences, 0, "{case}");
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
