//! Functions made at run time, as a list names them.

/// A function that a list names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Code {
    /// Address of the first byte.
    pub start: u64,
    /// Length in bytes; not 0, and the end is not beyond the last address.
    pub len: u64,
    /// Name, as the program wrote it.
    pub name: String,
    /// Lines of the instructions, ordered by address.
    pub lines: Vec<CodeLine>,
}

/// A line of a source file, and its first instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeLine {
    /// Address of the first instruction.
    pub start: u64,
    /// Source file.
    pub file: String,
    /// Line in the source file.
    pub line: u32,
}

/// Result of parsing the complete entries at the start of some bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parsed {
    /// The functions, in the order of the list.
    pub codes: Vec<Code>,
    /// Number of entries that are not understood or impossible.
    pub malformed: u64,
    /// Number of bytes that the complete entries occupy.
    pub used: usize,
}
