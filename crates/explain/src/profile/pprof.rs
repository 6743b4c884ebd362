//! Messages of pprof's `profile.proto`, and their construction from locations.
//!
//! Only the fields that a profile of mappings needs are written; the field numbers are pprof's. Texts
//! are indexes in the table of strings.

use super::message::Message;
use std::collections::HashMap;
use vmarea_symbols::{Frame, LocationId, MappedModule, Table};

/// Fields of a profile.
mod field {
    pub(super) const SAMPLE_TYPE: u64 = 1;
    pub(super) const SAMPLE: u64 = 2;
    pub(super) const MAPPING: u64 = 3;
    pub(super) const LOCATION: u64 = 4;
    pub(super) const FUNCTION: u64 = 5;
    pub(super) const STRING_TABLE: u64 = 6;
}

/// A profile that is being built.
pub(super) struct Builder<'a> {
    table: &'a Table,
    profile: Message,
    strings: HashMap<String, u64>,
    functions: HashMap<(u64, u64), u64>,
    locations: u64,
    /// Ids of the locations that were added; those without an address are known by their call.
    located: HashMap<LocationId, u64>,
    calls: HashMap<String, u64>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(table: &'a Table) -> Builder<'a> {
        let mut builder = Builder {
            table,
            profile: Message::default(),
            strings: HashMap::new(),
            functions: HashMap::new(),
            locations: 0,
            located: HashMap::new(),
            calls: HashMap::new(),
        };
        // The first string must be empty.
        builder.string("");
        let (kind, unit) = (builder.string("mappings"), builder.string("count"));
        let mappings = Message::default().number(1, kind).number(2, unit);
        builder.add_to(field::SAMPLE_TYPE, &mappings);
        for (module, id) in table.modules.iter().zip(1..) {
            builder.add_mapping(module, id);
        }
        builder
    }

    /// Adds mappings that were made by a call on a stack.
    pub(super) fn add(&mut self, call: &str, locations: &[LocationId], mappings: u64) {
        let mut innermost_first: Vec<_> = locations.iter().map(|id| self.location(*id)).collect();
        if innermost_first.is_empty() {
            innermost_first.push(self.call(call));
        }
        let (key, text) = (self.string("call"), self.string(call));
        let label = Message::default().number(1, key).number(2, text);
        let sample = Message::default()
            .numbers(1, &innermost_first)
            .numbers(2, &[mappings])
            .message(3, &label);
        self.add_to(field::SAMPLE, &sample);
    }

    /// Returns the encoded profile.
    pub(super) fn bytes(&self) -> &[u8] {
        self.profile.bytes()
    }

    fn add_to(&mut self, field: u64, message: &Message) {
        self.profile.add(field, message.bytes());
    }

    fn string(&mut self, text: &str) -> u64 {
        if let Some(&known) = self.strings.get(text) {
            return known;
        }
        let index = self.strings.len() as u64;
        self.profile.add(field::STRING_TABLE, text.as_bytes());
        self.strings.insert(text.to_owned(), index);
        index
    }

    fn add_mapping(&mut self, module: &MappedModule, id: u64) {
        let build_id: String = module.build_id.iter().map(|b| format!("{b:02x}")).collect();
        let (filename, build_id) = (self.string(&module.path), self.string(&build_id));
        let mut mapping = Message::default()
            .number(1, id)
            .number(2, module.start)
            .number(3, module.end)
            .number(4, module.offset)
            .number(5, filename)
            .number(6, build_id);
        // Functions, file names, line numbers and inlined functions are known: pprof does not look for them again.
        for known in 7..=10 {
            mapping = mapping.number(known, 1);
        }
        self.add_to(field::MAPPING, &mapping);
    }

    fn location(&mut self, id: LocationId) -> u64 {
        if let Some(&known) = self.located.get(&id) {
            return known;
        }
        let table = self.table;
        let location = &table.locations[id as usize];
        let frames = location.frames.iter();
        let lines: Vec<_> = frames.map(|frame| self.line(frame)).collect();
        let module = location.module.map_or(0, |module| u64::from(module) + 1);
        let known = self.push(module, location.address, &lines);
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
        let known = self.push(0, 0, &[line]);
        self.calls.insert(call.to_owned(), known);
        known
    }

    fn push(&mut self, mapping: u64, address: u64, innermost_first: &[Message]) -> u64 {
        self.locations += 1;
        let id = self.locations;
        let mut location = Message::default()
            .number(1, id)
            .number(2, mapping)
            .number(3, address);
        for line in innermost_first {
            location = location.message(4, line);
        }
        self.add_to(field::LOCATION, &location);
        id
    }

    fn line(&mut self, frame: &Frame) -> Message {
        let name = self.string(&frame.function);
        let filename = self.string(frame.file.as_deref().unwrap_or_default());
        let next = self.functions.len() as u64 + 1;
        let id = *self.functions.entry((name, filename)).or_insert(next);
        if id == next {
            // The third field is the name as the linker knows it.
            let function = Message::default()
                .number(1, id)
                .number(2, name)
                .number(3, name)
                .number(4, filename);
            self.add_to(field::FUNCTION, &function);
        }
        let line = frame.line.map_or(0, u64::from);
        Message::default().number(1, id).number(2, line)
    }
}
