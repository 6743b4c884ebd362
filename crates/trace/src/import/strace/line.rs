//! Parses one line of `strace`: thread, time, body, and how a call ends.
//!
//! This module does not interpret arguments. It only finds where they end; to do so, it skips
//! strings, brackets and the paths that `-y` adds to descriptors.

use crate::event::{Nanos, Tid};
use crate::import::text::{fraction, id, seconds, word};
use winnow::ascii::{dec_uint, space0, space1};
use winnow::combinator::{alt, delimited, opt, preceded, terminated};
use winnow::prelude::*;

/// A line, split into its parts.
pub(super) struct Parsed<'a> {
    pub(super) tid: Option<Tid>,
    pub(super) time: Option<Time>,
    pub(super) body: Body<'a>,
}

/// The time of a line; strace's options determine its form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Time {
    /// `-t`, `-tt`: time of day without a date.
    OfDay(Nanos),
    /// `-ttt`: seconds since 1970; `-r`: seconds since the previous line.
    Seconds(Nanos),
}

/// The body of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Body<'a> {
    Call {
        name: &'a str,
        args: &'a str,
        result: &'a str,
    },
    /// The part of a call before its interruption; `args` is incomplete.
    Unfinished { name: &'a str, args: &'a str },
    /// The part of a call after its interruption.
    Resumed { name: &'a str, rest: &'a str },
    /// A thread exited with this wait status.
    Ended { status: i32 },
    /// The `execve` of another thread ended this thread.
    Superseded,
    /// A signal or a message.
    Other,
}

/// Splits `text`, if it has the form of a line.
pub(super) fn parse(text: &str) -> Option<Parsed<'_>> {
    let rest = &mut &*text;
    let tid = opt(thread).parse_next(rest).ok()?;
    let time = opt(terminated(time, space1)).parse_next(rest).ok()?;
    let body = body(rest)?;
    Some(Parsed { tid, time, body })
}

fn thread(input: &mut &str) -> ModalResult<Tid> {
    alt((
        delimited(("[pid", space1), id, ("]", space1)),
        terminated(id, space1),
    ))
    .map(Tid)
    .parse_next(input)
}

fn time(input: &mut &str) -> ModalResult<Time> {
    alt((
        of_day.map(Time::OfDay),
        preceded(space0, seconds).map(Time::Seconds),
    ))
    .parse_next(input)
}

fn of_day(input: &mut &str) -> ModalResult<Nanos> {
    let (hours, _, minutes, _): (u8, _, u8, _) =
        (dec_uint, ":", dec_uint, ":").parse_next(input)?;
    let second: u8 = dec_uint.parse_next(input)?;
    let nanos = opt(preceded(".", fraction)).parse_next(input)?;
    let seconds = u64::from(hours) * 3600 + u64::from(minutes) * 60 + u64::from(second);
    Ok(seconds * 1_000_000_000 + nanos.unwrap_or(0))
}

fn body(text: &str) -> Option<Body<'_>> {
    if let Some(message) = text.strip_prefix("+++ ") {
        return ending(message);
    }
    if text.starts_with("--- ") {
        return Some(Body::Other);
    }
    if let Some(resumed) = text.strip_prefix("<... ") {
        let (name, rest) = resumed.split_once(" resumed>")?;
        return Some(Body::Resumed { name, rest });
    }
    let rest = &mut &*text;
    let name = terminated(word, "(").parse_next(rest).ok()?;
    if let Some(args) = rest.strip_suffix("<unfinished ...>") {
        // A child of vfork: "vfork( <unfinished ...>".
        let args = args.trim_end();
        return Some(Body::Unfinished { name, args });
    }
    let (args, result) = split_call(rest)?;
    Some(Body::Call { name, args, result })
}

fn ending(message: &str) -> Option<Body<'_>> {
    let words: Vec<&str> = message.split_ascii_whitespace().take(5).collect();
    match words[..] {
        ["exited", "with", code, "+++"] => Some(Body::Ended {
            status: (code.parse::<i32>().ok()? & 0xff) << 8,
        }),
        ["killed", "by", signal, ..] => Some(Body::Ended {
            status: signal_number(signal),
        }),
        ["superseded", ..] => Some(Body::Superseded),
        _ => Some(Body::Other),
    }
}

/// Returns the number of a signal that ends processes; unlisted signals count as `SIGKILL`.
fn signal_number(name: &str) -> i32 {
    let names = [
        "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE",
        "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM",
    ];
    match names.iter().position(|known| *known == name) {
        Some(place) => place as i32 + 1,
        None => 9,
    }
}

/// Splits `ARGS) = RESULT`.
pub(super) fn split_call(text: &str) -> Option<(&str, &str)> {
    let (args, rest) = text.split_at_checked(end_of(text, ')')?)?;
    let result = rest.strip_prefix(')')?.trim_start().strip_prefix("= ")?;
    Some((args, result.trim()))
}

/// Splits arguments at commas.
pub(super) fn split_args(mut text: &str) -> Vec<&str> {
    let mut args = Vec::new();
    while let Some((arg, rest)) = end_of(text, ',').and_then(|at| text.split_at_checked(at)) {
        args.push(arg.trim());
        text = &rest[1..];
    }
    if !text.trim().is_empty() {
        args.push(text.trim());
    }
    args
}

/// Finds `mark` outside strings, brackets, comments and descriptors' paths.
fn end_of(text: &str, mark: char) -> Option<usize> {
    let mut depth = 0usize;
    let mut chars = text.char_indices();
    let mut last = ' ';
    while let Some((at, c)) = chars.next() {
        match c {
            _ if c == mark && depth == 0 => return Some(at),
            '"' => skip_string(&mut chars),
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            // "3</path>" and "AT_FDCWD</path>", but not "21<<MAP_HUGE_SHIFT".
            '<' if last.is_ascii_alphanumeric() && !text[at..].starts_with("<<") => {
                chars.find(|(_, c)| *c == '>');
            }
            _ => {}
        }
        last = c;
    }
    None
}

fn skip_string(chars: &mut std::str::CharIndices<'_>) {
    while let Some((_, c)) = chars.next() {
        match c {
            '"' => return,
            '\\' => {
                chars.next();
            }
            _ => {}
        }
    }
}

/// Converts the times of lines to one clock that is not reset at midnight.
#[derive(Debug, Default)]
pub(super) struct Clock {
    now: Nanos,
    /// Number of days since the first line.
    days: u64,
    last_of_day: Nanos,
    lines: u64,
    relative: bool,
}

const DAY: Nanos = 24 * 3600 * 1_000_000_000;

/// Smallest value taken as a time since 1970; a smaller one is a time since the previous line.
const EPOCH: Nanos = 100_000_000 * 1_000_000_000;

impl Clock {
    /// Returns the time of a line. Lines without times are a microsecond apart.
    pub(super) fn at(&mut self, time: Option<Time>) -> Nanos {
        self.lines += 1;
        self.now = match time {
            None => self.now.saturating_add(1000),
            Some(Time::OfDay(t)) => {
                // Midnight has passed; threads may be slightly out of order.
                if t + DAY / 2 < self.last_of_day {
                    self.days += 1;
                }
                self.last_of_day = t;
                self.days * DAY + t
            }
            Some(Time::Seconds(t)) if t >= EPOCH && !self.relative => t,
            Some(Time::Seconds(t)) => {
                self.relative = true;
                self.now.saturating_add(t)
            }
        };
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_of(text: &str) -> Body<'_> {
        parse(text).unwrap().body
    }

    #[test]
    fn thread_and_time_in_every_form() {
        let head = |text| parse(text).map(|line| (line.tid, line.time));
        let day = Time::OfDay((20 * 3600 + 48 * 60 + 22) * 1_000_000_000);
        assert_eq!(head("brk(NULL) = 0x1"), Some((None, None)));
        assert_eq!(head("6967  brk(NULL) = 0x1"), Some((Some(Tid(6967)), None)));
        assert_eq!(
            head("[pid   12] brk(NULL) = 0x1"),
            Some((Some(Tid(12)), None))
        );
        assert_eq!(head("20:48:22 brk(NULL) = 0x1"), Some((None, Some(day))));
        assert_eq!(
            head("7 1795294102.102774 brk(NULL) = 0x1"),
            Some((Some(Tid(7)), Some(Time::Seconds(1_795_294_102_102_774_000))))
        );
        assert_eq!(
            head("     0.000123 brk(NULL) = 0x1"),
            Some((None, Some(Time::Seconds(123_000))))
        );
        assert_eq!(head("hello state"), None);
        assert_eq!(head(""), None);
    }

    #[test]
    fn calls_end_past_strings_and_brackets() {
        let text = r#"execve("./a\") = 1", ["b)", "c,"], 0x7f /* 35 vars */) = 0 <0.000185>"#;
        let Body::Call { name, args, result } = body_of(text) else {
            panic!("no call");
        };
        assert_eq!((name, result), ("execve", "0 <0.000185>"));
        assert_eq!(
            split_args(args),
            [r#""./a\") = 1""#, r#"["b)", "c,"]"#, "0x7f /* 35 vars */"]
        );
        let text = "mmap(NULL, 21<<MAP_HUGE_SHIFT, 3</tmp/a),b>, 0) = 0x7f";
        let Body::Call { args, .. } = body_of(text) else {
            panic!("no call");
        };
        assert_eq!(
            split_args(args),
            ["NULL", "21<<MAP_HUGE_SHIFT", "3</tmp/a),b>", "0"]
        );
    }

    #[test]
    fn halves_and_endings() {
        assert_eq!(
            body_of("mmap(NULL, 0 <unfinished ...>"),
            Body::Unfinished {
                name: "mmap",
                args: "NULL, 0"
            }
        );
        assert_eq!(
            body_of("<... mmap resumed>) = 0x7f"),
            Body::Resumed {
                name: "mmap",
                rest: ") = 0x7f"
            }
        );
        assert_eq!(
            body_of("+++ exited with 3 +++"),
            Body::Ended { status: 0x300 }
        );
        assert_eq!(
            body_of("+++ killed by SIGSEGV (core dumped) +++"),
            Body::Ended { status: 11 }
        );
        assert_eq!(
            body_of("+++ superseded by execve in pid 7 +++"),
            Body::Superseded
        );
        assert_eq!(body_of("--- SIGCHLD {si_signo=SIGCHLD} ---"), Body::Other);
        assert!(parse("mmap(NULL, 4096, PROT_RE").is_none());
    }

    #[test]
    fn clocks_run_on() {
        let mut clock = Clock::default();
        assert_eq!(clock.at(None), 1000);
        assert_eq!(clock.at(None), 2000);
        let mut clock = Clock::default();
        assert_eq!(clock.at(Some(Time::OfDay(DAY - 5))), DAY - 5);
        assert_eq!(clock.at(Some(Time::OfDay(5))), DAY + 5);
        let mut clock = Clock::default();
        assert_eq!(clock.at(Some(Time::Seconds(5))), 5);
        assert_eq!(clock.at(Some(Time::Seconds(7))), 12);
        assert_eq!(clock.at(Some(Time::Seconds(u64::MAX))), u64::MAX);
        assert_eq!(clock.at(None), u64::MAX);
    }
}
