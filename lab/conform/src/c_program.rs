//! Converts a sequence to a C program that reproduces a difference on any machine.
//!
//! The program needs only the C library. Its processes execute their steps in turn, ordered by a
//! counter in shared memory. Each step prints its result; after the last step the program prints
//! the mappings. The program contains the results of the kernel on which the sequence was recorded.
//! If the running kernel returns another result, the program reports the difference and exits with
//! status 1, so that it can be used unchanged as a kernel selftest.

use super::arena;
use super::op::{Call, Op, Step, Work, file_argument, pointer_argument, segment_argument};
use super::outcome::Outcome;
use super::regression::Regression;
use super::sequence::Difference;
use std::fmt::Write;
use vmarea::types::{PAGE_MASK, PAGE_SIZE, VmFlags};
use vmarea_trace::sysno;

const HEAD: &str = include_str!("c_program/head.c");
const TAIL: &str = include_str!("c_program/tail.c");

/// Returns the C program that reproduces `difference`; `kept` contains the kernel's results.
pub fn c_program(
    steps: &[Step],
    difference: Option<&Difference>,
    kept: Option<&Regression>,
) -> String {
    let mut text = String::new();
    if let Some(difference) = difference {
        text.push_str("/*\n");
        for line in difference.what.lines() {
            let _ = writeln!(text, " * {line}");
        }
        text.push_str(" */\n");
    }
    // Writing to a string cannot fail.
    let _ = writeln!(text, "#define FILE_PAGES {}", arena::FILE_PAGES);
    let _ = writeln!(text, "#define ARENA_START {:#x}UL", arena::START);
    let _ = writeln!(text, "#define ARENA_END {:#x}UL", arena::END);
    let _ = writeln!(text, "#define KEEP {:#x}UL", arena::KEEP);
    let _ = writeln!(text, "#define FILL {:#x}UL", arena::FILL);
    let _ = writeln!(text, "#define STEPS {}", steps.len());
    text.push_str(HEAD);
    text.push_str("\nstatic const int owner[STEPS] = {");
    for step in steps {
        let _ = write!(text, " {},", step.process);
    }
    text.push_str(" };\n\nstatic void run(int step)\n{\n\tswitch (step) {\n");
    for (number, step) in steps.iter().enumerate() {
        let _ = writeln!(text, "\tcase {number}: /* {} */", step.op);
        let _ = writeln!(text, "\t\t{}", statement(number, &step.op));
        let gave = kept.and_then(|k| k.steps.get(number)?.outcome);
        if let Some(expected) = gave.and_then(|gave| expectation(&step.op, gave)) {
            let _ = writeln!(text, "\t\t{expected}");
        }
        text.push_str("\t\tbreak;\n");
    }
    text.push_str("\t}\n}\n\n");
    let last = steps.last().map_or(0, |step| step.process);
    text.push_str(&mapped(kept, last));
    text.push_str(TAIL);
    text
}

fn address(value: u64) -> String {
    if (arena::HEAP..arena::HEAP_END).contains(&value) {
        format!("heap + {:#x}", value - arena::HEAP)
    } else if (arena::SPECIAL..arena::SPECIAL_END).contains(&value) {
        format!("special + {:#x}", value - arena::SPECIAL)
    } else {
        format!("{value:#x}UL")
    }
}

fn statement(number: usize, op: &Op) -> String {
    match op {
        Op::Call(call) => call_statement(call),
        Op::Read { addr } => format!("load({});", address(*addr)),
        Op::Write { addr, value } => format!("store({}, {value:#x});", address(*addr)),
        Op::Fork { child } => {
            format!("if (!fork())\n\t\t\tme = {child};\n\t\telse\n\t\t\tputs(\"forked\");")
        }
        Op::Fill { leave } => format!("fill({leave});"),
        Op::Background(Work::SwapOut(addr)) => format!(
            "madvise((void *)({}), 4096, 21 /* MADV_PAGEOUT */);\n\t\tputs(\"\");",
            address(addr & PAGE_MASK)
        ),
        // A program cannot request this background work.
        Op::Background(Work::Migrate(_) | Work::MergeEqual) => "puts(\"\");".to_owned(),
        Op::Exit => format!("puts(\"gone\");\n\t\t*turn = {number} + 1;\n\t\t_exit(0);"),
    }
}

/// Returns a statement that checks the result; `None` if the result differs from run to run.
fn expectation(op: &Op, gave: Outcome) -> Option<String> {
    let anywhere = |value: u64| {
        value > arena::PAGES * PAGE_SIZE && !(arena::START..arena::END).contains(&value)
    };
    match (op, gave) {
        (Op::Call(_), Outcome::Value(value)) if anywhere(value) => None,
        (Op::Call(_) | Op::Read { .. } | Op::Write { .. }, Outcome::Value(value)) => {
            Some(format!("expect(VALUE, {value:#x}UL);"))
        }
        (_, Outcome::Errno(errno)) => Some(format!("expect(ERROR, {errno});")),
        (_, Outcome::Signal(signal, code)) => {
            Some(format!("expect(SIGNAL, {signal} << 8 | {code});"))
        }
        _ => None,
    }
}

/// Returns C code that lists the arena mappings expected in the process at the end.
fn mapped(kept: Option<&Regression>, process: u8) -> String {
    let lines = kept.and_then(|k| k.mapped.iter().find(|(of, _)| *of == process));
    let Some((_, lines)) = lines else {
        return "#define MAPPED -1\nstatic const struct range mapped[1];\n\n".to_owned();
    };
    let mut text = format!("#define MAPPED {}\n", lines.len());
    text.push_str("static const struct range mapped[MAPPED + 1] = {\n");
    for line in lines {
        let mut fields = line.split([' ', '-']);
        let mut next = || u64::from_str_radix(fields.next().unwrap_or(""), 16).unwrap_or(0);
        let (start, end, flags) = (next(), next(), VmFlags::from_bits_retain(next()));
        let perms: String = [
            (VmFlags::READ, 'r', '-'),
            (VmFlags::WRITE, 'w', '-'),
            (VmFlags::EXEC, 'x', '-'),
            (VmFlags::MAYSHARE, 's', 'p'),
        ]
        .iter()
        .map(|&(flag, yes, no)| if flags.contains(flag) { yes } else { no })
        .collect();
        let _ = writeln!(text, "\t{{ {start:#x}, {end:#x}, \"{perms}\" }},");
    }
    text.push_str("};\n\n");
    text
}

/// Pseudo file descriptor that refers to the calling process.
const PIDFD_SELF: u64 = -10001_i64 as u64;

fn call_statement(call: &Call) -> String {
    let args: Vec<String> = (0..6)
        .map(|n| {
            if pointer_argument(call.nr) == Some(n) && !call.data.is_empty() {
                return "data".to_owned();
            }
            // `PIDFD_SELF` is newer than `process_madvise`.
            if call.nr == sysno::PROCESS_MADVISE && n == 0 && call.args[0] == PIDFD_SELF {
                return "syscall(SYS_pidfd_open, getpid(), 0)".to_owned();
            }
            let value = call.args[n];
            match (file_argument(call.nr), segment_argument(call.nr)) {
                (Some(at), _) if at == n && value < arena::KINDS.len() as u64 => {
                    format!("files[{value}]")
                }
                (Some(at), _) if at == n && value == arena::USERFAULTFD => "uffd".to_owned(),
                (_, Some(at)) if at == n && value < arena::SEGMENTS.len() as u64 => {
                    format!("segments[{value}]")
                }
                _ => address(value),
            }
        })
        .collect();
    let name = sysno::name(call.nr).map_or(call.nr.to_string(), |n| format!("SYS_{n}"));
    let name = if call.nr == sysno::MSEAL {
        "462 /* mseal */".to_owned()
    } else {
        name
    };
    let made = format!("result(syscall({name}, {}));", args.join(", "));
    if call.data.is_empty() {
        return made;
    }
    let words: Vec<String> = call.data.iter().map(|w| format!("{w:#x}")).collect();
    format!(
        "{{\n\t\t\tuint64_t data[] = {{ {} }};\n\t\t\t{made}\n\t\t}}",
        words.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_every_kind_of_step_compiles() {
        let step = |process, op| Step { process, op };
        let call = |nr, args: [u64; 6]| Op::Call(Call::new(nr, args));
        let steps = [
            step(
                0,
                call(sysno::MMAP, [arena::START, 4096, 3, 0x32, u64::MAX, 0]),
            ),
            step(0, call(sysno::MMAP, [arena::START, 4096, 3, 0x12, 3, 0])),
            step(0, Op::Fork { child: 1 }),
            step(
                1,
                Op::Write {
                    addr: arena::START,
                    value: 7,
                },
            ),
            step(0, Op::Read { addr: arena::START }),
            step(1, call(sysno::BRK, [arena::HEAP + 4096, 0, 0, 0, 0, 0])),
            step(1, call(sysno::MUNMAP, [arena::SPECIAL, 4096, 0, 0, 0, 0])),
            step(1, Op::Exit),
            step(0, call(sysno::MSEAL, [arena::START, 4096, 0, 0, 0, 0])),
        ];
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("shown.c");
        std::fs::write(&source, c_program(&steps, None, None)).unwrap();
        let program = directory.path().join("shown");
        let built = std::process::Command::new("cc")
            .args(["-Wall", "-Werror", "-O1", "-o"])
            .args([&program, &source])
            .status();
        let Ok(status) = built else {
            eprintln!("skipped: no C compiler");
            return;
        };
        assert!(status.success());
        let output = std::process::Command::new(&program).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("4 process 0: 0x35eed0000"), "{text}");
        assert!(text.contains("rw-p"), "{text}");
    }
}
