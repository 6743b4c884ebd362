//! Writes the JSON schemas of the results into a folder.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: schemas FOLDER");
        return ExitCode::from(2);
    };
    match vmarea_terminal::schema::write(Path::new(&folder), vmarea_lab::schemas()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("schemas: cannot write to {folder}: {error}");
            ExitCode::FAILURE
        }
    }
}
