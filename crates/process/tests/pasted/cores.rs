//! Cores that no small program writes: with more mappings than the header can count, and of another
//! architecture.

use super::read;

/// Writes the fields of an ELF file in its own sizes and order of bytes.
struct Writer {
    bytes: Vec<u8>,
    is_64: bool,
    is_big: bool,
}

impl Writer {
    fn number(&mut self, value: u64, size: usize) {
        match self.is_big {
            true => self.bytes.extend(&value.to_be_bytes()[8 - size..]),
            false => self.bytes.extend(&value.to_le_bytes()[..size]),
        }
    }

    fn half(&mut self, value: u64) {
        self.number(value, 2);
    }

    fn word(&mut self, value: u64) {
        self.number(value, 4);
    }

    /// An address, offset or size.
    fn long(&mut self, value: u64) {
        self.number(value, if self.is_64 { 8 } else { 4 });
    }

    fn program_header(&mut self, kind: u64, flags: u64, offset: u64, range: (u64, u64), size: u64) {
        self.word(kind);
        if self.is_64 {
            self.word(flags);
        }
        for value in [offset, range.0, 0, size, range.1 - range.0] {
            self.long(value);
        }
        if !self.is_64 {
            self.word(flags);
        }
        self.long(4);
    }
}

/// Builds a core with mappings of one page, one page apart, the first of which maps a file.
fn core(mappings: u64, is_64: bool, is_big: bool) -> Vec<u8> {
    const NT_FILE: u64 = 0x4649_4c45;
    const PATH: &[u8; 8] = b"/bin/a\0\0";
    let (header, phdr, shdr, long) = if is_64 {
        (64, 56, 64, 8)
    } else {
        (52, 32, 40, 4)
    };
    let start = |n: u64| 0x1_0000 + n * 0x2000;
    let section_at = header + (mappings + 1) * phdr;
    let notes_at = section_at + shdr;
    let desc = 5 * long + PATH.len() as u64;
    let mut file = Writer {
        bytes: b"\x7fELF".to_vec(),
        is_64,
        is_big,
    };
    file.bytes
        .extend([1 + u8::from(is_64), 1 + u8::from(is_big), 1, 0]);
    file.bytes.extend([0; 8]);
    file.half(4);
    file.half(62);
    file.word(1);
    for offset in [0, header, section_at] {
        file.long(offset);
    }
    file.word(0);
    // From 65,535 program headers on, their number is in the first section.
    for value in [header, phdr, (mappings + 1).min(0xffff), shdr, 1, 0] {
        file.half(value);
    }
    assert_eq!(file.bytes.len() as u64, header);
    file.program_header(4, 0, notes_at, (0, 0), 20 + desc);
    for n in 0..mappings {
        file.program_header(1, 6, 0, (start(n), start(n) + 0x1000), 0);
    }
    assert_eq!(file.bytes.len() as u64, section_at);
    let members = if is_64 {
        [4, 4, 8, 8, 8, 8, 4, 4, 8, 8]
    } else {
        [4; 10]
    };
    for (n, size) in members.into_iter().enumerate() {
        file.number(if n == 7 { mappings + 1 } else { 0 }, size);
    }
    assert_eq!(file.bytes.len() as u64, notes_at);
    for value in [5, desc, NT_FILE] {
        file.word(value);
    }
    file.bytes.extend(b"CORE\0\0\0\0");
    for value in [1, 0x1000, start(0), start(0) + 0x1000, 3] {
        file.long(value);
    }
    file.bytes.extend(PATH);
    file.bytes
}

#[test]
fn a_core_of_a_process_near_its_limit_has_all_mappings() {
    for mappings in [65_533, 65_534, 65_535, 70_000] {
        let process = read(&core(mappings, true, false));
        assert_eq!(process.total, mappings);
        assert!(process.notes.is_empty(), "{:?}", process.notes);
    }
}

#[test]
fn a_core_of_another_architecture_is_read() {
    for (is_64, is_big) in [(false, false), (false, true), (true, true)] {
        let process = read(&core(5, is_64, is_big));
        let first = &process.mappings[0].entry;
        assert_eq!(process.total, 5, "{is_64}, {is_big}");
        assert_eq!((first.start, first.end), (0x1_0000, 0x1_1000));
        assert_eq!(
            (first.name.text().as_str(), first.offset),
            ("/bin/a", 0x3000)
        );
        assert!(first.perms.write && !first.perms.exec);
    }
}

#[test]
fn a_number_of_headers_that_the_file_cannot_have_is_refused() {
    let mut file = core(65_535, true, false);
    let section = 64 + 65_536 * 56;
    file[section + 44..section + 48].fill(0xff);
    let said = super::refusal(&file);
    let cut =
        "the core is cut off or damaged in its program headers, which are the list of mappings";
    assert_eq!(said, cut);
}
