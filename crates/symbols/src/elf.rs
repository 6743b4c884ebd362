//! Program files and debug files: unwind tables, segments, symbols, and where debug files are.

use framehop::ExplicitModuleSectionInfo;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use std::ops::Range;
use std::sync::Arc;
use vmarea_process::maps::MapsEntry;

/// Part of an executable file that is needed to unwind and to name its functions.
pub(crate) struct Elf {
    pub(crate) sections: Sections,
    pub(crate) symbols: SymbolTable,
    /// Build ID; empty if the file has none.
    pub(crate) build_id: Vec<u8>,
    /// Name and checksum of the separate debug file.
    pub(crate) debug_link: Option<(Vec<u8>, u32)>,
    segments: Vec<Segment>,
}

struct Segment {
    offset: u64,
    len: u64,
    linked: u64,
}

type Section = Option<(Range<u64>, Arc<[u8]>)>;

/// Sections from which the unwinder reads.
pub(crate) struct Sections {
    text: Section,
    eh_frame: Section,
    eh_frame_hdr: Section,
    debug_frame: Section,
    got: Section,
}

/// Functions with their link-time addresses.
#[derive(Default)]
pub(crate) struct SymbolTable {
    /// Address, length and mangled name, ordered by address.
    symbols: Vec<(u64, u64, String)>,
}

impl Elf {
    pub(crate) fn of(file: &object::File<'_>) -> Elf {
        let section = |name: &str| -> Section {
            let section = file.section_by_name(name)?;
            let (at, len) = (section.address(), section.size());
            Some((at..at.checked_add(len)?, section.data().ok()?.into()))
        };
        let segments = file.segments().map(|segment| {
            let (offset, len) = segment.file_range();
            let linked = segment.address();
            Segment {
                offset,
                len,
                linked,
            }
        });
        let link = file.gnu_debuglink().ok().flatten();
        Elf {
            sections: Sections {
                text: section(".text"),
                eh_frame: section(".eh_frame"),
                eh_frame_hdr: section(".eh_frame_hdr"),
                debug_frame: section(".debug_frame"),
                got: section(".got"),
            },
            symbols: SymbolTable::of(file),
            build_id: build_id(file),
            debug_link: link.map(|(name, sum)| (name.to_owned(), sum)),
            segments: segments.collect(),
        }
    }

    /// Returns the difference between run-time and link-time addresses for this mapping.
    pub(crate) fn base(&self, mapping: &MapsEntry) -> Option<u64> {
        const PAGE: u64 = !0xfff;
        let holds = |segment: &&Segment| {
            let first = segment.offset & PAGE;
            first <= mapping.offset && mapping.offset < segment.offset.saturating_add(segment.len)
        };
        let segment = self.segments.iter().rev().find(holds)?;
        let skipped = mapping.offset - (segment.offset & PAGE);
        let linked = (segment.linked & PAGE).wrapping_add(skipped);
        Some(mapping.start.wrapping_sub(linked))
    }
}

/// Returns the build ID; empty if the file has none.
pub(crate) fn build_id(file: &object::File<'_>) -> Vec<u8> {
    let id = file.build_id().ok().flatten();
    id.unwrap_or_default().to_owned()
}

impl SymbolTable {
    pub(crate) fn of(file: &object::File<'_>) -> SymbolTable {
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let symbols = symbols.filter(|symbol| symbol.kind() == SymbolKind::Text);
        let named = symbols.filter_map(|symbol| {
            let name = symbol.name().ok()?;
            let defined = symbol.address() != 0 && !name.is_empty();
            defined.then(|| (symbol.address(), symbol.size(), name.to_owned()))
        });
        let mut symbols: Vec<_> = named.collect();
        symbols.sort_unstable();
        SymbolTable { symbols }
    }

    /// Returns the mangled name of the function at a link-time address.
    pub(crate) fn name(&self, linked: u64) -> Option<&str> {
        let behind = self.symbols.partition_point(|(at, ..)| *at <= linked);
        let (at, len, name) = self.symbols[..behind].last()?;
        (linked - at < (*len).max(1)).then_some(name.as_str())
    }
}

impl Sections {
    pub(crate) fn info(&self) -> ExplicitModuleSectionInfo<Arc<[u8]>> {
        let range = |section: &Section| section.as_ref().map(|(range, _)| range.clone());
        let data = |section: &Section| section.as_ref().map(|(_, data)| Arc::clone(data));
        ExplicitModuleSectionInfo {
            text_svma: range(&self.text),
            text: data(&self.text),
            eh_frame_svma: range(&self.eh_frame),
            eh_frame: data(&self.eh_frame),
            eh_frame_hdr_svma: range(&self.eh_frame_hdr),
            eh_frame_hdr: data(&self.eh_frame_hdr),
            debug_frame: data(&self.debug_frame),
            got_svma: range(&self.got),
            ..ExplicitModuleSectionInfo::default()
        }
    }
}
