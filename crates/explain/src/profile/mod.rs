//! Profiles of the calls that made the mappings: folded stacks, and pprof's format.
//!
//! A profile counts every mapping of the examined moment, so its total is the number of mappings. A
//! mapping whose call has no stack, such as those that `execve` makes, has one function with the
//! name of the call in brackets.

use super::recorded::Recorded;
use super::stacks::Stacks;
use crate::made_by::most;
use flate2::Compression;
use flate2::write::GzEncoder;
use pprof::Builder;
use std::collections::BTreeMap;
use std::io::{self, Write};
use vmarea_symbols::LocationId;

mod message;
mod pprof;

/// Profile of a recorded program at the moment when it had the most mappings.
#[derive(Clone, Copy, Debug)]
pub struct Profile<'a> {
    /// The recording.
    pub recorded: &'a Recorded,
    /// Stacks of the recording's calls.
    pub stacks: &'a Stacks,
}

/// Mappings that were made by one call on one stack.
struct Sample<'a> {
    call: &'a str,
    locations: &'a [LocationId],
    mappings: u64,
}

impl<'a> Profile<'a> {
    fn samples(&self) -> impl Iterator<Item = Sample<'a>> {
        let origins = self.recorded.origins.iter().map(Option::as_ref);
        let stacks = self.stacks;
        most(origins).into_iter().map(|(origin, mappings)| Sample {
            call: origin.map_or("not known", |origin| origin.call.as_str()),
            locations: stacks.locations(origin.and_then(|origin| origin.stack)),
            mappings,
        })
    }

    /// Writes folded stacks: one line per stack, outermost function first, with its count.
    ///
    /// In a name, a semicolon becomes a colon, and a control character a question mark, because a
    /// line could not be read otherwise.
    ///
    /// # Errors
    /// Any error from writing to `out`.
    pub fn write_folded(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut lines: BTreeMap<String, u64> = BTreeMap::new();
        for sample in self.samples() {
            let functions = self.stacks.table.frames(sample.locations);
            let mut names: Vec<_> = functions.map(|frame| folded(&frame.function)).collect();
            names.reverse();
            if names.is_empty() {
                names.push(format!("[{}]", folded(sample.call)));
            }
            *lines.entry(names.join(";")).or_default() += sample.mappings;
        }
        for (stack, mappings) in lines {
            writeln!(out, "{stack} {mappings}")?;
        }
        Ok(())
    }

    /// Writes a compressed `profile.proto`, which `go tool pprof` and other programs read.
    ///
    /// # Errors
    /// Any error from writing to `out`.
    pub fn write_pprof(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut profile = Builder::new(&self.stacks.table);
        for sample in self.samples() {
            profile.add(sample.call, sample.locations, sample.mappings);
        }
        let mut encoder = GzEncoder::new(out, Compression::default());
        encoder.write_all(profile.bytes())?;
        encoder.finish().map(drop)
    }
}

fn folded(name: &str) -> String {
    let plain = |character: char| match character {
        ';' => ':',
        character if character.is_control() => '?',
        character => character,
    };
    name.chars().map(plain).collect()
}
