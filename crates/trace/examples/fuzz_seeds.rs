//! Writes the initial inputs of the fuzz targets to `fuzz/corpus`.
//!
//! The inputs are small traces, the raw content of their blocks, and the `strace` and `perf` output
//! that the tests use.

use std::fs;
use std::io;
use std::path::Path;
use vmarea_trace::import::{Format, Import};
use vmarea_trace::{Reader, Writer};

const TEXTS: [(Format, u8, &str); 5] = [
    (Format::Strace, 0, "strace-o.txt"),
    (Format::Strace, 0, "strace-stderr.txt"),
    (Format::PerfScript, 1, "perf-script.txt"),
    (Format::PerfScript, 1, "perf-script-raw.txt"),
    (Format::PerfTrace, 2, "perf-trace.txt"),
];

/// Number of bytes in a block's head.
const HEAD: usize = 24;

fn main() -> io::Result<()> {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = crate_root.join("../../fuzz/corpus");
    for target in ["trace_file", "trace_block", "trace_import"] {
        fs::create_dir_all(corpus.join(target))?;
    }
    for (format, choice, name) in TEXTS {
        let text = fs::read(crate_root.join("tests/data").join(name))?;
        let input = [&[choice], &text[..text.len().min(4000)]].concat();
        fs::write(corpus.join("trace_import").join(name), input)?;

        let file = trace(format, &text).map_err(io::Error::other)?;
        fs::write(corpus.join("trace_file").join(name), &file)?;
        fs::write(corpus.join("trace_block").join(name), block(&file)?)?;
    }
    Ok(())
}

/// Imports text as a trace with blocks of a hundred events.
fn trace(format: Format, text: &[u8]) -> Result<Vec<u8>, vmarea_trace::Error> {
    let import = Import::new(format, text)?;
    let mut writer = Writer::new(Vec::new(), import.header())?;
    for (i, event) in import.enumerate() {
        writer.write(&event?)?;
        if i % 100 == 99 {
            writer.flush()?;
        }
    }
    writer.finish()
}

/// Returns the number of events in the first block, followed by the raw bytes of that block.
fn block(file: &[u8]) -> io::Result<Vec<u8>> {
    let field = |at: usize| {
        let bytes = file[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(bytes) as usize
    };
    let at = HEAD + field(12);
    let events = Reader::new(file)
        .map_err(io::Error::other)?
        .take(100)
        .count();
    let raw = zstd::bulk::decompress(&file[at + HEAD..at + HEAD + field(at)], field(at + 4))?;
    Ok([&(events as u16).to_le_bytes()[..], &raw].concat())
}
