//! The C and C++ programs of `tests/programs`, compiled by the compiler of this machine.

use super::leash;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Returns the path of a source in `tests/programs`.
pub fn source(name: &str) -> PathBuf {
    Path::new(CRATE).join("tests/programs").join(name)
}

/// Compiles sources of one language into a program.
pub fn compile(sources: &[PathBuf], options: &[&str], program: &Path) {
    let is_cpp = sources[0].extension().is_some_and(|kind| kind == "cc");
    let mut compiler = Command::new(if is_cpp { "g++" } else { "cc" });
    compiler.args(["-O1", "-g", "-Wall", "-Werror", "-pthread"]);
    compiler
        .arg("-I")
        .arg(Path::new(CRATE).join("../repair-capi/tests/programs"));
    compiler.args(options).args(sources).arg("-o").arg(program);
    let built = leash::output(&mut compiler).expect("a compiler");
    assert!(built.status.success(), "{built:?}");
}

/// Returns the program of a source in `tests/programs`, which is compiled when first asked for.
pub fn program(name: &str) -> String {
    static BUILT: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = built.get(name) {
        return program.clone();
    }
    // A runner may start a process for each test.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(std::process::id().to_string());
    std::fs::create_dir_all(&folder).expect("a folder");
    let program = folder.join(name).with_extension("");
    compile(&[source(name)], &[], &program);
    let program = program.display().to_string();
    built.insert(name.to_owned(), program.clone());
    program
}
