//! The kernel's description of its own types (BTF), used to look up member offsets.
//!
//! `/sys/kernel/btf/vmlinux` is a few megabytes long. It consists of a table of type records, which
//! refer to each other by number, and a string table. One pass stores the offset of each record;
//! lookups read the records directly. Every number in the file is checked before use, and type
//! chains and nesting are followed only for a bounded number of steps. A damaged file therefore
//! leads to an error or `None`, never to a panic or an endless loop. Bit-fields, function
//! parameters and the split BTF of modules are not supported.
//!
//! # Linux
//! `Documentation/bpf/btf.rst`; kinds up to 19 (`ENUM64`, Linux 6.0).

use std::fmt;

const MAGIC: u16 = 0xeb9f;
const RECORD: usize = 12;
/// Maximum length of a chain of typedefs and qualifiers, and maximum nesting depth of structs.
const MAX_DEPTH: u32 = 32;

/// A kind of type record that can be looked up by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A struct.
    Struct = 4,
    /// A typedef.
    Typedef = 8,
    /// A function.
    Func = 12,
}

const KIND_INT: u8 = 1;
const KIND_PTR: u8 = 2;
const KIND_ARRAY: u8 = 3;
const KIND_STRUCT: u8 = 4;
const KIND_UNION: u8 = 5;
const KIND_ENUM: u8 = 6;
const KIND_TYPEDEF: u8 = 8;
const KIND_VOLATILE: u8 = 9;
const KIND_CONST: u8 = 10;
const KIND_RESTRICT: u8 = 11;
const KIND_TYPE_TAG: u8 = 18;
const KIND_ENUM64: u8 = 19;

/// Errors in a BTF file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BtfError {
    /// The file is not BTF, or its byte order differs from this machine's.
    Magic,
    /// A table or record extends beyond the end of the file.
    Truncated,
    /// A record has an unknown kind and therefore an unknown length.
    UnknownKind(u8),
}

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BtfError::Magic => write!(f, "not BTF of this machine"),
            BtfError::Truncated => write!(f, "the type information is cut off"),
            BtfError::UnknownKind(kind) => write!(f, "unknown kind of type record {kind}"),
        }
    }
}

impl std::error::Error for BtfError {}

/// Number that identifies a type record; 0 is `void`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TypeId(pub u32);

/// Offset and size of a struct member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Offset from the beginning of the struct, in bytes.
    pub offset: u32,
    /// Size of the member in bytes.
    pub size: u32,
}

/// A parsed BTF file.
pub struct Btf {
    bytes: Vec<u8>,
    /// Offset of each type's record in `bytes`; entry 0 represents `void`.
    records: Vec<u32>,
    /// Range of the string table in `bytes`.
    strings: std::ops::Range<usize>,
}

/// Header of a type record.
#[derive(Clone, Copy)]
struct Record {
    at: usize,
    name: u32,
    kind: u8,
    entries: usize,
    has_bitfields: bool,
    /// Size in bytes or number of another type, depending on the kind.
    size_or_type: u32,
}

impl Btf {
    /// Parses a BTF file and checks its tables.
    pub fn parse(bytes: Vec<u8>) -> Result<Btf, BtfError> {
        let head = |at: usize| u32_at(&bytes, at).map(|word| word as usize);
        let magic = bytes.get(..2).ok_or(BtfError::Truncated)?;
        if magic != MAGIC.to_ne_bytes() {
            return Err(BtfError::Magic);
        }
        let header_len = head(4)?;
        let table = |offset: usize, len: usize| -> Result<std::ops::Range<usize>, BtfError> {
            let start = header_len.checked_add(offset).ok_or(BtfError::Truncated)?;
            let end = start.checked_add(len).ok_or(BtfError::Truncated)?;
            if end > bytes.len() || u32::try_from(end).is_err() {
                return Err(BtfError::Truncated);
            }
            Ok(start..end)
        };
        let types = table(head(8)?, head(12)?)?;
        let strings = table(head(16)?, head(20)?)?;

        let mut records = vec![0u32];
        let mut at = types.start;
        while at < types.end {
            let record = Record::at(&bytes, at)?;
            records.push(at as u32);
            at = at
                .checked_add(RECORD + record.tail_len()?)
                .ok_or(BtfError::Truncated)?;
        }
        if at != types.end {
            return Err(BtfError::Truncated);
        }
        Ok(Btf {
            bytes,
            records,
            strings,
        })
    }

    /// Returns the first type with this kind and name.
    pub fn find(&self, kind: Kind, name: &str) -> Option<TypeId> {
        (1..self.records.len() as u32).map(TypeId).find(|&id| {
            self.record(id)
                .is_some_and(|r| r.kind == kind as u8 && self.name_is(r.name, name))
        })
    }

    /// Returns the offset and size of a member, given as a path of member names separated by dots.
    ///
    /// Members of unnamed structs and unions belong to the enclosing struct. Returns `None` if the
    /// member does not exist or is a bit-field.
    pub fn member(&self, of: TypeId, path: &str) -> Option<Member> {
        self.member_within(of, path, MAX_DEPTH)
    }

    fn member_within(&self, of: TypeId, path: &str, depth: u32) -> Option<Member> {
        let depth = depth.checked_sub(1)?;
        let (head, rest) = match path.split_once('.') {
            Some((head, rest)) => (head, Some(rest)),
            None => (path, None),
        };
        let record = self.record(self.strip(of)?)?;
        if !matches!(record.kind, KIND_STRUCT | KIND_UNION) {
            return None;
        }
        for entry in 0..record.entries {
            let at = record.at + RECORD + entry * 12;
            let name = u32_at(&self.bytes, at).ok()?;
            let of = TypeId(u32_at(&self.bytes, at + 4).ok()?);
            let place = u32_at(&self.bytes, at + 8).ok()?;
            let (bits, bit_size) = if record.has_bitfields {
                (place & 0xff_ffff, place >> 24)
            } else {
                (place, 0)
            };
            let found = if self.name_is(name, "") {
                self.member_within(of, path, depth)
            } else if !self.name_is(name, head) || bit_size != 0 {
                None
            } else if let Some(rest) = rest {
                self.member_within(of, rest, depth)
            } else {
                let size = self.size(of, depth)?;
                Some(Member { offset: 0, size })
            };
            if let Some(Member { offset, size }) = found {
                let offset = offset.checked_add(bits / 8)?;
                return Some(Member { offset, size });
            }
        }
        None
    }

    /// Returns the size of a type in bytes.
    fn size(&self, of: TypeId, depth: u32) -> Option<u32> {
        let depth = depth.checked_sub(1)?;
        let record = self.record(self.strip(of)?)?;
        match record.kind {
            KIND_INT | KIND_STRUCT | KIND_UNION | KIND_ENUM | KIND_ENUM64 => {
                Some(record.size_or_type)
            }
            KIND_PTR => Some(size_of::<usize>() as u32),
            KIND_ARRAY => {
                let of = TypeId(u32_at(&self.bytes, record.at + RECORD).ok()?);
                let count = u32_at(&self.bytes, record.at + RECORD + 8).ok()?;
                self.size(of, depth)?.checked_mul(count)
            }
            _ => None,
        }
    }

    /// Resolves typedefs and qualifiers to the underlying type.
    fn strip(&self, mut id: TypeId) -> Option<TypeId> {
        for _ in 0..MAX_DEPTH {
            let record = self.record(id)?;
            match record.kind {
                KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => {
                    id = TypeId(record.size_or_type);
                }
                _ => return Some(id),
            }
        }
        None
    }

    fn record(&self, id: TypeId) -> Option<Record> {
        if id.0 == 0 {
            return None;
        }
        let at = *self.records.get(id.0 as usize)?;
        Record::at(&self.bytes, at as usize).ok()
    }

    fn name_is(&self, offset: u32, name: &str) -> bool {
        let strings = &self.bytes[self.strings.clone()];
        strings
            .get(offset as usize..)
            .and_then(|s| s.strip_prefix(name.as_bytes()))
            .is_some_and(|rest| rest.first() == Some(&0))
    }
}

impl Record {
    fn at(bytes: &[u8], at: usize) -> Result<Record, BtfError> {
        let info = u32_at(bytes, at.checked_add(4).ok_or(BtfError::Truncated)?)?;
        Ok(Record {
            at,
            name: u32_at(bytes, at)?,
            kind: ((info >> 24) & 31) as u8,
            entries: (info & 0xffff) as usize,
            has_bitfields: info >> 31 == 1,
            size_or_type: u32_at(bytes, at + 8)?,
        })
    }

    /// Returns the number of bytes that follow the header of this record.
    fn tail_len(&self) -> Result<usize, BtfError> {
        Ok(match self.kind {
            // int, variable, declaration tag
            1 | 14 | 17 => 4,
            // array
            3 => 12,
            // struct, union, data section, 64-bit enum
            4 | 5 | 15 | 19 => self.entries * 12,
            // enum, function prototype
            6 | 13 => self.entries * 8,
            // pointer, forward, typedef, qualifiers, function, float, type tag
            2 | 7..=12 | 16 | 18 => 0,
            kind => return Err(BtfError::UnknownKind(kind)),
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    at.checked_add(4)
        .and_then(|end| bytes.get(at..end))
        .and_then(|word| word.try_into().ok())
        .map(u32::from_ne_bytes)
        .ok_or(BtfError::Truncated)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a BTF file from type words and strings.
    fn file(types: &[u32], strings: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        let types_len = types.len() as u32 * 4;
        for word in [24, 0, types_len, types_len, strings.len() as u32] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        bytes.extend(types.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(strings);
        bytes
    }

    fn info(kind: u8, entries: u32) -> u32 {
        u32::from(kind) << 24 | entries
    }

    /// Builds BTF for `struct s { long a; union { long b; }; struct { int[3] d; } c; }`.
    fn sample() -> Vec<u8> {
        let types = [
            [0, info(KIND_INT, 0), 8, 64].as_slice(), // 1: long
            &[0, info(KIND_INT, 0), 4, 32],           // 2: int
            &[0, info(KIND_UNION, 1), 8, 5, 1, 0],    // 3: union { b }
            &[0, info(KIND_STRUCT, 1), 12, 9, 5, 0],  // 4: struct { d }
            &[0, info(KIND_ARRAY, 0), 0, 2, 1, 3],    // 5: int[3]
            &[1, info(KIND_STRUCT, 3), 32, 3, 1, 0, 0, 3, 64, 7, 6, 128], // 6: s
            &[0, info(KIND_TYPEDEF, 0), 4],           // never looked up by name
        ]
        .concat();
        // Records are numbered from 1, and the struct refers to the typedef by number: make the
        // typedef number 6.
        let mut types = types;
        let typedef = types.split_off(types.len() - 3);
        let s = types.split_off(types.len() - 12);
        types.extend(typedef);
        types.extend(s);
        file(&types, b"\0s\0a\0b\0c\0d\0")
    }

    #[test]
    fn members_are_found_through_nameless_ones_typedefs_and_paths() {
        let btf = Btf::parse(sample()).unwrap();
        let s = btf.find(Kind::Struct, "s").unwrap();
        let at = |path| btf.member(s, path).map(|m| (m.offset, m.size));
        assert_eq!(at("a"), Some((0, 8)));
        assert_eq!(at("b"), Some((8, 8)));
        assert_eq!(at("c"), Some((16, 12)));
        assert_eq!(at("c.d"), Some((16, 12)));
        assert_eq!(at("c.e"), None);
        assert_eq!(at("a.b"), None);
        assert_eq!(btf.find(Kind::Func, "s"), None);
    }

    #[test]
    fn damage_gives_an_error_or_nothing() {
        let good = sample();
        for len in 0..good.len() {
            assert!(Btf::parse(good[..len].to_vec()).is_err(), "cut at {len}");
        }
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let Ok(btf) = Btf::parse(bad) else { continue };
                if let Some(s) = btf.find(Kind::Struct, "s") {
                    let _ = btf.member(s, "c.d");
                    let _ = btf.member(s, "nothing");
                }
            }
        }
    }

    #[test]
    fn a_typedef_of_itself_ends() {
        let types = [
            [0, info(KIND_TYPEDEF, 0), 1].as_slice(),
            &[1, info(KIND_STRUCT, 1), 8, 0, 2, 0],
        ]
        .concat();
        let btf = Btf::parse(file(&types, b"\0s\0")).unwrap();
        assert_eq!(btf.member(TypeId(1), "x"), None);
        // The struct contains itself as an unnamed member.
        assert_eq!(btf.member(TypeId(2), "x"), None);
    }
}
