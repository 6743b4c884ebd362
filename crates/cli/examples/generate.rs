//! Writes what is derived from the command line's definition: man pages, completions, JSON schemas.
//!
//! The same definition always gives the same files.
#![forbid(unsafe_code)]

use clap_complete::Shell;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let written = match &arguments[..] {
        [kind, folder] if kind == "man" => write_man(Path::new(folder)),
        [kind, folder] if kind == "completions" => write_completions(Path::new(folder)),
        [kind, folder] if kind == "schemas" => {
            vmarea_terminal::schema::write(Path::new(folder), vmarea_cli::schemas())
        }
        _ => {
            eprintln!("usage: generate man|completions|schemas FOLDER");
            return ExitCode::from(2);
        }
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("generate: cannot write to {}: {error}", arguments[1]);
            ExitCode::FAILURE
        }
    }
}

/// Writes one page per command: `vmarea.1`, `vmarea-explain.1`, and so on.
fn write_man(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let definition = vmarea_cli::definition().disable_help_subcommand(true);
    clap_mangen::generate_to(definition, folder)
}

/// Writes the completions for bash, zsh and fish, under the names that these shells expect.
fn write_completions(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut vmarea_cli::definition(), "vmarea", folder)?;
    }
    Ok(())
}
