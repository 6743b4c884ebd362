//! Benchmark for parsing a list of mappings and explaining the boundaries between them.
//!
//! For lists of several lengths, prints the nanoseconds per mapping, and the ratio to the time
//! needed to split the same text into words. Each round measures every operation once; the result
//! is the median over all rounds.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;
use vmarea_process::Process;

const ROUNDS: usize = 9;
const LENGTHS: [usize; 3] = [100, 1_000, 65_000];

/// Returns a list in `/proc/PID/maps` format: anonymous memory, guards and files, interleaved.
fn list(mappings: usize) -> String {
    let mut text = String::new();
    for n in 0..mappings {
        let start = 0x7f00_0000_0000 + (n << 14);
        let end = start + 0x4000;
        let rest = match n % 4 {
            0 | 1 => "rw-p 00000000 00:00 0".to_owned(),
            2 => "---p 00000000 00:00 0".to_owned(),
            _ => format!("r--p 00000000 08:01 {n} /usr/lib/library-{n}.so"),
        };
        writeln!(text, "{start:x}-{end:x} {rest}").unwrap();
    }
    text
}

/// Returns the duration of `f` in nanoseconds.
fn time<T>(f: impl FnOnce() -> T) -> f64 {
    let begin = Instant::now();
    black_box(f());
    begin.elapsed().as_secs_f64() * 1e9
}

/// Returns the time per item in one column: the median over all rounds, divided by `items`.
fn median<const N: usize>(rounds: &[[f64; N]], column: usize, items: usize) -> f64 {
    let mut times: Vec<f64> = rounds.iter().map(|round| round[column]).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2] / items as f64
}

fn main() {
    println!(
        "{:>8} {:>10} {:>16} {:>18}   (ns per mapping, and ratio to words)",
        "mappings", "words", "parse", "boundaries"
    );
    for mappings in LENGTHS {
        let text = list(mappings);
        let parse = || Process::from_text("bench".to_owned(), text.as_bytes()).unwrap();
        let process = parse();
        assert_eq!(process.mappings.len(), mappings);
        let rounds: Vec<_> = (0..ROUNDS)
            .map(|_| {
                [
                    time(|| text.split_ascii_whitespace().map(str::len).sum::<usize>()),
                    time(parse),
                    time(|| process.boundaries()),
                ]
            })
            .collect();
        let [words, parse, explain] = [0, 1, 2].map(|column| median(&rounds, column, mappings));
        println!(
            "{mappings:>8} {words:>10.1} {parse:>8.1} ({:>5.2}) {explain:>10.1} ({:>5.2})",
            parse / words,
            explain / words
        );
    }
}
