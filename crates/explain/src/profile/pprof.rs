//! Messages of pprof's `profile.proto`, and their construction from locations.
//!
//! Only the fields that a profile of mappings needs are declared; the field numbers are pprof's.

use prost::Message;
use std::collections::HashMap;
use vmarea_symbols::{Frame, LocationId, MappedModule, Table};

#[derive(Clone, PartialEq, Message)]
pub(super) struct PprofProfile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<PprofSample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<PprofMapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<PprofLocation>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<PprofFunction>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
}

/// Kind and unit of a value; both are indexes in the table of strings, as all texts are.
#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct PprofSample {
    /// Innermost location first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

#[derive(Clone, PartialEq, Message)]
struct PprofMapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(uint64, tag = "4")]
    file_offset: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(int64, tag = "6")]
    build_id: i64,
    /// Set, so that pprof does not look for the names again.
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
    #[prost(bool, tag = "9")]
    has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
struct PprofLocation {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    /// Innermost function first.
    #[prost(message, repeated, tag = "4")]
    line: Vec<PprofLine>,
}

#[derive(Clone, PartialEq, Message)]
struct PprofLine {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct PprofFunction {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// A profile that is being built.
pub(super) struct Builder<'a> {
    table: &'a Table,
    profile: PprofProfile,
    strings: HashMap<String, i64>,
    functions: HashMap<(i64, i64), u64>,
    /// Ids of the locations that were added; those without an address are known by their call.
    located: HashMap<LocationId, u64>,
    calls: HashMap<String, u64>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(table: &'a Table) -> Builder<'a> {
        let mut builder = Builder {
            table,
            profile: PprofProfile::default(),
            strings: HashMap::new(),
            functions: HashMap::new(),
            located: HashMap::new(),
            calls: HashMap::new(),
        };
        // The first string must be empty.
        builder.string("");
        let (kind, unit) = (builder.string("mappings"), builder.string("count"));
        builder.profile.sample_type.push(ValueType { kind, unit });
        let modules = table.modules.iter().zip(1..);
        builder.profile.mapping = modules
            .map(|(module, id)| builder.mapping(module, id))
            .collect();
        builder
    }

    /// Adds mappings that were made by a call on a stack.
    pub(super) fn add(&mut self, call: &str, locations: &[LocationId], mappings: u64) {
        let mut location_id: Vec<_> = locations.iter().map(|id| self.location(*id)).collect();
        if location_id.is_empty() {
            location_id.push(self.call(call));
        }
        let label = Label {
            key: self.string("call"),
            text: self.string(call),
        };
        self.profile.sample.push(PprofSample {
            location_id,
            value: vec![mappings as i64],
            label: vec![label],
        });
    }

    pub(super) fn finish(self) -> PprofProfile {
        self.profile
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(&known) = self.strings.get(text) {
            return known;
        }
        let index = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    fn mapping(&mut self, module: &MappedModule, id: u64) -> PprofMapping {
        let build_id: String = module.build_id.iter().map(|b| format!("{b:02x}")).collect();
        PprofMapping {
            id,
            memory_start: module.start,
            memory_limit: module.end,
            file_offset: module.offset,
            filename: self.string(&module.path),
            build_id: self.string(&build_id),
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        }
    }

    fn location(&mut self, id: LocationId) -> u64 {
        if let Some(&known) = self.located.get(&id) {
            return known;
        }
        let table = self.table;
        let location = &table.locations[id as usize];
        let line = location
            .frames
            .iter()
            .map(|frame| self.line(frame))
            .collect();
        let module = location.module.map_or(0, |module| u64::from(module) + 1);
        let known = self.push(module, location.address, line);
        self.located.insert(id, known);
        known
    }

    /// Returns the location that stands for a call without a stack.
    fn call(&mut self, call: &str) -> u64 {
        if let Some(&known) = self.calls.get(call) {
            return known;
        }
        let frame = Frame {
            function: format!("[{call}]"),
            ..Frame::default()
        };
        let line = self.line(&frame);
        let known = self.push(0, 0, vec![line]);
        self.calls.insert(call.to_owned(), known);
        known
    }

    fn push(&mut self, mapping_id: u64, address: u64, line: Vec<PprofLine>) -> u64 {
        let id = self.profile.location.len() as u64 + 1;
        self.profile.location.push(PprofLocation {
            id,
            mapping_id,
            address,
            line,
        });
        id
    }

    fn line(&mut self, frame: &Frame) -> PprofLine {
        let name = self.string(&frame.function);
        let filename = self.string(frame.file.as_deref().unwrap_or_default());
        let next = self.profile.function.len() as u64 + 1;
        let id = *self.functions.entry((name, filename)).or_insert(next);
        if id == next {
            self.profile.function.push(PprofFunction {
                id,
                name,
                system_name: name,
                filename,
            });
        }
        PprofLine {
            function_id: id,
            line: frame.line.map_or(0, i64::from),
        }
    }
}
