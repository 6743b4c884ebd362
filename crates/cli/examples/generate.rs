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
        [kind, folder] if kind == "schemas" => write_schemas(Path::new(folder)),
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

/// Writes one schema per command that has `--json`: `explain.json`, `show-maps.json`, and so on.
fn write_schemas(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (command, schema) in vmarea_cli::schemas() {
        let text = serde_json::to_string_pretty(&schema)?;
        let name = format!("{}.json", command.replace(' ', "-"));
        fs::write(folder.join(name), text + "\n")?;
    }
    Ok(())
}
