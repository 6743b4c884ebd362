//! Information that an ELF file contains about a program: sections, and symbols of each kind.
//!
//! The file may be large or malicious, so only the required parts are read, and at most
//! `MOST_SYMBOLS` symbols. For each kind of data, only the few largest symbols are kept, just
//! enough to show where such data is located. Thread-local variables have no single address and are
//! omitted.

use super::Mark;
use object::read::elf::{ElfFile, FileHeader};
use object::read::{ReadCache, ReadRef};
use object::{
    FileKind, Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind, SymbolKind,
};
use std::fs::File;
use std::path::Path;

/// Maximum number of symbols that are examined.
const MOST_SYMBOLS: usize = 1 << 20;
/// Maximum number of symbols kept per kind.
const OF_EACH_KIND: usize = 2;
/// Maximum length of a name in characters.
const NAME: usize = 100;
/// Well-known functions, kept in addition to the largest symbols.
const WELL_KNOWN: [&str; 2] = ["main", "_start"];

/// Information that an ELF file contains about its program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// Word size of the program: 32 or 64 bits.
    pub bits: u32,
    /// Sections and symbols with their addresses in the process.
    pub symbols: Vec<Symbol>,
    /// Note on missing information.
    pub note: Option<String>,
}

/// A named address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Address in the process.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// Name of the section or symbol.
    pub name: String,
    /// Kind of the section or symbol.
    pub what: &'static str,
}

impl Symbol {
    /// Converts the symbol to an address mark.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            address: self.address,
            name: self.name.clone(),
            what: format!("{}, {} bytes", self.what, self.size),
        }
    }
}

/// Reads the program at `path`, whose lowest mapping begins at `lowest`.
///
/// # Errors
/// A description of the error if the file cannot be read or is not ELF.
pub fn read(path: &Path, lowest: u64) -> Result<Image, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let cache = ReadCache::new(file);
    let words = |error: object::Error| format!("its file is damaged or of another kind ({error})");
    match FileKind::parse(&cache).map_err(words)? {
        FileKind::Elf32 => {
            let file = ElfFile::<object::elf::FileHeader32<object::Endianness>, _>::parse(&cache);
            Ok(image(&file.map_err(words)?, 32, lowest))
        }
        FileKind::Elf64 => {
            let file = ElfFile::<object::elf::FileHeader64<object::Endianness>, _>::parse(&cache);
            Ok(image(&file.map_err(words)?, 64, lowest))
        }
        _ => Err("its file is not ELF".to_owned()),
    }
}

fn image<'d, H: FileHeader, R: ReadRef<'d>>(
    file: &ElfFile<'d, H, R>,
    bits: u32,
    lowest: u64,
) -> Image {
    let first = file.segments().map(|segment| segment.address()).min();
    // The kernel maps whole pages.
    let bias = lowest.wrapping_sub(first.unwrap_or(0) & !0xfff);
    let mut symbols = sections(file, bias);
    let (mut named, whole) = chosen(file, bias);
    let stripped = file.symbols().next().is_none();
    let note = if stripped {
        Some("the program is stripped: only its sections and exported names are known".to_owned())
    } else if !whole {
        Some(format!(
            "only the first {MOST_SYMBOLS} symbols of the program were looked at"
        ))
    } else {
        None
    };
    symbols.append(&mut named);
    Image {
        bits,
        symbols,
        note,
    }
}

/// Returns the sections that contain code, constants and variables.
fn sections<'d, H: FileHeader, R: ReadRef<'d>>(file: &ElfFile<'d, H, R>, bias: u64) -> Vec<Symbol> {
    let wanted = [
        (".text", "section: code"),
        (".rodata", "section: constants"),
        (".data", "section: initialised variables"),
        (".bss", "section: uninitialised variables"),
    ];
    let found = wanted.iter().filter_map(|&(name, what)| {
        let section = file.section_by_name(name)?;
        (section.address() != 0 && section.size() > 0).then(|| Symbol {
            address: section.address().wrapping_add(bias),
            size: section.size(),
            name: name.to_owned(),
            what,
        })
    });
    found.collect()
}

/// Returns the few largest symbols of each kind, and whether all symbols were examined.
fn chosen<'d, H: FileHeader, R: ReadRef<'d>>(
    file: &ElfFile<'d, H, R>,
    bias: u64,
) -> (Vec<Symbol>, bool) {
    let mut kinds: [Vec<Symbol>; 4] = Default::default();
    let mut known = Vec::new();
    let mut looked_at = 0;
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        looked_at += 1;
        if looked_at > MOST_SYMBOLS {
            break;
        }
        if symbol.is_undefined() || symbol.address() == 0 {
            continue;
        }
        let Some((kind, what)) = symbol
            .section_index()
            .and_then(|index| file.section_by_index(index).ok())
            .and_then(|section| data_kind(symbol.kind(), section.kind()))
        else {
            continue;
        };
        let (address, size) = (symbol.address().wrapping_add(bias), symbol.size());
        let make = |name: &str| Symbol {
            address,
            size,
            name: name.chars().take(NAME).collect(),
            what,
        };
        let well_known = symbol.name().ok().filter(|name| WELL_KNOWN.contains(name));
        let list = match well_known {
            Some(_) => &mut known,
            None => &mut kinds[kind],
        };
        let already = list.iter().any(|other: &Symbol| other.address == address);
        let smaller = list.len() >= OF_EACH_KIND && list.iter().all(|other| other.size >= size);
        if already || smaller {
            continue;
        }
        if let Ok(name) = symbol.name() {
            list.push(make(name));
            list.sort_by_key(|symbol| std::cmp::Reverse(symbol.size));
            list.truncate(OF_EACH_KIND);
        }
    }
    known.extend(kinds.into_iter().flatten());
    (known, looked_at <= MOST_SYMBOLS)
}

/// Returns the kind of data that a symbol names, derived from the symbol's type and section.
fn data_kind(symbol: SymbolKind, section: SectionKind) -> Option<(usize, &'static str)> {
    match (symbol, section) {
        (SymbolKind::Text, SectionKind::Text) => Some((0, "function")),
        (SymbolKind::Data, SectionKind::ReadOnlyData | SectionKind::ReadOnlyString) => {
            Some((1, "constant"))
        }
        (SymbolKind::Data, SectionKind::Data) => Some((2, "initialised variable")),
        (SymbolKind::Data, SectionKind::UninitializedData) => Some((3, "uninitialised variable")),
        _ => None,
    }
}
