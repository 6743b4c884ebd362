//! Errors about arguments, with hints about mistakes that the argument parser does not know.
//!
//! An option's optional value follows after `=`, and a command after `--`, so that no argument is
//! taken for another. Without them, the parser complains about the word and does not say where it
//! belongs.

use crate::words::in_words;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// What Rust says about a number, and what a user should read.
const NUMBERS: [(&str, &str); 4] = [
    ("invalid digit found in string", "a whole number is needed"),
    (
        "cannot parse integer from empty string",
        "a whole number is needed",
    ),
    (
        "number too large to fit in target type",
        "the number is too large",
    ),
    (
        "number would be zero for non-zero type",
        "a number of at least 1 is needed",
    ),
];

/// Returns the text of an error about arguments, with colours.
pub fn text(mut error: Error, command: &Command, arguments: &[String]) -> String {
    if let Some(hint) = hint(&error, command, arguments) {
        let mut hints = match error.remove(ContextKind::Suggested) {
            Some(ContextValue::StyledStrs(hints)) => hints,
            _ => Vec::new(),
        };
        hints.push(StyledStr::from(hint));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(hints));
    }
    let text = in_words(&error.render().ansi().to_string()).into_owned();
    let clearer = |text: String, (rusts, ours): &(&str, &str)| text.replace(rusts, ours);
    in_range(NUMBERS.iter().fold(text, clearer))
}

/// Puts into words which numbers are allowed: `0 is not in 1..=9` of the parser.
fn in_range(text: String) -> String {
    let words = || {
        let (said, range) = text.split_once(" is not in ")?;
        let (before, _) = said.rsplit_once(": ")?;
        let (range, after) = range.split_once('\n')?;
        let (least, most) = range.split_once("..=")?;
        Some(format!(
            "{before}: a number from {least} to {most} is needed\n{after}"
        ))
    };
    words().unwrap_or(text)
}

/// Returns a hint if a file follows `--json` without `=` and was taken for another argument.
pub fn json_elsewhere(arguments: &[String]) -> Option<String> {
    let file = value_of(arguments, |option| option == "json")?;
    let is_file = file.1.ends_with(".json");
    is_file.then(|| follows(&file))
}

fn hint(error: &Error, command: &Command, arguments: &[String]) -> Option<String> {
    if let Some(value) = value_of(arguments, |option| needs_equals(command, option)) {
        return Some(follows(&value));
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let is_command = error.kind() == ErrorKind::UnknownArgument
        && !word.starts_with('-')
        && !arguments.iter().any(|argument| argument == "--")
        && takes_command(command, arguments);
    is_command.then(|| format!("a command follows after '--': '-- {word}'"))
}

fn follows((option, value): &(String, String)) -> String {
    format!("the value of '{option}' follows after '=': '{option}={value}'")
}

/// Returns one of `options`, and the word that follows it if it does not begin like an option.
fn value_of(arguments: &[String], options: impl Fn(&str) -> bool) -> Option<(String, String)> {
    let ours: Vec<_> = arguments.iter().take_while(|word| *word != "--").collect();
    let found = ours.windows(2).find(|two| {
        let name = two[0].strip_prefix("--");
        let is_value = two[1] == "-" || !two[1].starts_with('-');
        is_value && name.is_some_and(&options)
    })?;
    Some((found[0].clone(), found[1].clone()))
}

/// True if a command or one of its subcommands has the option `name` with a value after `=`.
fn needs_equals(command: &Command, name: &str) -> bool {
    let mut options = command.get_arguments();
    options.any(|option| option.get_long() == Some(name) && option.is_require_equals_set())
        || command
            .get_subcommands()
            .any(|command| needs_equals(command, name))
}

/// True if the subcommand that the arguments name takes a command after `--`.
fn takes_command(mut command: &Command, arguments: &[String]) -> bool {
    for argument in arguments {
        if let Some(sub) = command.find_subcommand(argument) {
            command = sub;
        }
    }
    command.get_positionals().any(clap::Arg::is_last_set)
}
