//! Tests with compiled programs: names, inlined functions and lines, also from separate files.
#![forbid(unsafe_code)]

mod program;
mod run_time_code;

use program::{Program, Running, tool};
use vmarea_symbols::{Frame, Table};

/// The functions from the innermost one of the program to `main`, as `name file:line`.
fn own(table: &Table, stack: &[u32]) -> Vec<String> {
    let frames = table.frames(stack).filter(|frame| {
        let module = frame.module.as_deref().unwrap_or_default();
        module.starts_with("program")
    });
    let shown = |frame: &Frame| {
        let file = frame.file.as_deref().unwrap_or("?");
        let file = file.rsplit('/').next().unwrap_or(file);
        let inlined = if frame.inlined { " inlined" } else { "" };
        format!(
            "{} {file}:{}{inlined}",
            frame.function,
            frame.line.unwrap_or(0)
        )
    };
    let mut names: Vec<_> = frames.map(shown).collect();
    if let Some(main) = names.iter().position(|name| name.starts_with("main ")) {
        names.truncate(main + 1);
    }
    names
}

fn names_of(running: &Running) -> (Vec<String>, Vec<String>) {
    let (table, stack) = running.stack();
    (own(&table, &stack), table.notes)
}

const INLINED: [&str; 4] = [
    "Arena::add(unsigned long) program.cc:9 inlined",
    "Arena::grow(unsigned long) program.cc:13",
    "void pool::fill<Arena>(Arena&, int) program.cc:16",
    "main program.cc:20",
];

/// The same stack, without debug information.
const PLAIN: [&str; 3] = [
    "Arena::grow(unsigned long) ?:0",
    "void pool::fill<Arena>(Arena&, int) ?:0",
    "main ?:0",
];

fn without_return_types(names: &[&str]) -> Vec<String> {
    names
        .iter()
        .map(|name| name.trim_start_matches("void ").to_owned())
        .collect()
}

#[test]
fn inlined_functions_of_cpp_have_files_and_lines() {
    let program = Program::cpp();
    let (names, notes) = names_of(&program.start());
    assert_eq!(names, without_return_types(&INLINED));
    assert_eq!(notes, [""; 0]);
}

#[test]
fn inlined_functions_of_rust_have_files_and_lines() {
    let program = Program::rust();
    let (names, notes) = names_of(&program.start());
    assert_eq!(notes, [""; 0], "{names:?}");
    let pool: Vec<_> = names
        .iter()
        .filter(|name| name.contains("pool::"))
        .collect();
    assert_eq!(
        pool,
        [
            "program::pool::wait program.rs:5 inlined",
            "program::pool::Pool::grow program.rs:11",
        ],
        "{names:?}"
    );
}

#[test]
fn a_separate_debug_file_is_found_by_its_link() {
    for folder in ["", ".debug/"] {
        let program = Program::cpp();
        program.split(&format!("{folder}program.debug"), "--build-id=none");
        let (names, notes) = names_of(&program.start());
        assert_eq!(names, without_return_types(&INLINED), "{folder}");
        assert_eq!(notes, [""; 0]);
        // With another checksum, it is the debug file of another program.
        let path = program.path(&format!("{folder}program.debug"));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.push(0);
        std::fs::write(&path, bytes).unwrap();
        let (names, _) = names_of(&program.start());
        assert!(
            names.iter().all(|name| !name.contains("program.cc")),
            "{names:?}"
        );
    }
}

#[test]
fn a_separate_debug_file_is_found_by_its_build_id() {
    let program = Program::cpp();
    program.split("program.debug", "--build-id=sha1");
    tool(
        "objcopy",
        &["--remove-section=.gnu_debuglink", &program.text("program")],
    );
    let Some(installed) = program.install_by_build_id("program.debug") else {
        println!("skipped: /usr/lib/debug cannot be written");
        return;
    };
    let (names, notes) = names_of(&program.start());
    drop(installed);
    assert_eq!(names, without_return_types(&INLINED));
    assert_eq!(notes, [""; 0]);
}

#[test]
fn a_compressed_debug_file_is_read() {
    for format in ["zlib", "zstd"] {
        let program = Program::cpp();
        let option = format!("--compress-debug-sections={format}");
        tool("objcopy", &[&option, &program.text("program")]);
        program.split("program.debug", "--build-id=none");
        let (names, _) = names_of(&program.start());
        assert_eq!(names, without_return_types(&INLINED), "{format}");
    }
}

#[test]
fn a_program_without_debug_information_has_names() {
    let program = Program::cpp();
    tool("strip", &["--strip-debug", &program.text("program")]);
    let (names, notes) = names_of(&program.start());
    assert_eq!(names, without_return_types(&PLAIN));
    assert_eq!(notes, [""; 0]);
}

#[test]
fn a_stripped_program_has_addresses() {
    let program = Program::cpp();
    tool("strip", &[&program.text("program")]);
    let (names, _) = names_of(&program.start());
    assert!(names.len() >= 3, "{names:?}");
    assert!(
        names.iter().all(|name| name.starts_with("program+0x")),
        "{names:?}"
    );
}

#[test]
fn torn_debug_information_costs_lines_and_gives_one_note() {
    let program = Program::cpp();
    program.split("program.debug", "--build-id=sha1");
    let path = program.path("program.debug");
    let whole = std::fs::read(&path).unwrap();
    tool(
        "objcopy",
        &["--remove-section=.gnu_debuglink", &program.text("program")],
    );
    let torn = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        // A new checksum, so that the damaged file is used.
        let stripped = program.text("program");
        let linked = program.text("program.linked");
        let link = format!("--add-gnu-debuglink={}", path.display());
        tool("objcopy", &[&link, &stripped, &linked]);
        names_of(&program.start_as("program.linked"))
    };
    assert_eq!(torn(&whole).0, without_return_types(&INLINED), "undamaged");
    for len in [
        0,
        10,
        63,
        whole.len() / 3,
        whole.len() / 2,
        whole.len() - 100,
    ] {
        let (names, notes) = torn(&whole[..len]);
        assert!(
            names.iter().all(|name| !name.contains("program.cc")),
            "{len}: {names:?}"
        );
        assert_eq!(notes.len(), 1, "{len}: {notes:?}");
        assert!(
            notes[0].contains("debug information is damaged"),
            "{notes:?}"
        );
    }
}

#[test]
fn damage_anywhere_in_debug_information_is_survived() {
    let program = Program::cpp();
    let whole = std::fs::read(program.path("program")).unwrap();
    let (start, end) = program.debug_range();
    let mut random = 1u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize
    };
    let mut other = 0;
    for round in 0..40 {
        let mut bytes = whole.clone();
        for _ in 0..1 << (round % 8) {
            bytes[start + next() % (end - start)] = next() as u8;
        }
        program.replace("program.damaged", &bytes);
        let (names, _) = names_of(&program.start_as("program.damaged"));
        // The damage may be in a name, but not in all of them.
        let kept = |name: &String| {
            ["Arena::grow", "fill", "main"]
                .iter()
                .any(|f| name.contains(f))
        };
        assert!(names.iter().any(kept), "{names:?}");
        other += usize::from(names != without_return_types(&INLINED));
    }
    assert!(other > 0, "no damage had an effect");
}

#[test]
fn a_replaced_program_has_the_names_of_the_mapped_one() {
    let program = Program::cpp();
    let running = program.start();
    std::fs::remove_file(program.path("program")).unwrap();
    std::fs::copy("/bin/true", program.path("program")).unwrap();
    let (names, notes) = names_of(&running);
    // The program itself can be read through `/proc` in any case.
    assert_eq!(names, without_return_types(&INLINED));
    assert_eq!(notes, [""; 0]);
}
