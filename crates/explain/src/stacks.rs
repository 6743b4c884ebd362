//! Unwinding of stacks copied at system calls, and names of the stack frames.
//!
//! Unwinding uses the compiler's exception tables, as debuggers do. This works for programs without
//! frame pointers, but not for code generated at run time. The frames of each distinct stack are
//! named only once. Source lines and the names of code generated at run time are deliberately
//! omitted.

use super::recorded::CallStacks;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use vmarea_process::maps::{self, MapsEntry};
use vmarea_recorder::CallStack;
use vmarea_trace::event::Tid;

/// Maximum number of frames per stack.
const FRAMES: usize = 24;
/// Maximum size of a program file; a larger file is not read.
const FILE_BYTES: u64 = 1 << 30;

/// Table of all distinct stacks.
#[derive(Default)]
pub struct StackTable {
    calls: CallStacks,
    numbers: HashMap<(u32, Vec<u64>), u32>,
    named: Vec<Vec<String>>,
    spaces: HashMap<u32, CodeOfSpace>,
    files: HashMap<String, Option<Arc<Code>>>,
}

/// The known executable mappings of one address space, with their unwinder.
#[derive(Default)]
struct CodeOfSpace {
    unwinder: UnwinderX86_64<Arc<[u8]>>,
    cache: CacheX86_64,
    modules: Vec<(Range<u64>, u64, Arc<Code>)>,
}

/// An executable file or library.
struct Code {
    name: String,
    sections: Sections,
    /// File offset, length in bytes, and link-time address of each segment.
    segments: Vec<(u64, u64, u64)>,
    /// Link-time address, length and name of each symbol, ordered by address.
    symbols: Vec<(u64, u64, String)>,
}

type Section = Option<(Range<u64>, Arc<[u8]>)>;

struct Sections {
    text: Section,
    eh_frame: Section,
    eh_frame_hdr: Section,
    got: Section,
}

impl StackTable {
    /// Adds the stack of a thread at a call; the thread must still be stopped at the call.
    pub fn add(&mut self, stack: &CallStack) {
        let known = self.spaces.entry(stack.mm).or_default();
        if known.module(stack.ip).is_none() {
            let list = maps::read(stack.tid).unwrap_or_default();
            known.add_modules(stack.pid, &list, &mut self.files);
        }
        let mut frames = known.unwind(stack);
        if frames.iter().any(|&at| known.module(at).is_none()) {
            // A library was loaded since the last read of the mappings.
            let list = maps::read(stack.tid).unwrap_or_default();
            known.add_modules(stack.pid, &list, &mut self.files);
            frames = known.unwind(stack);
        }
        let next = self.named.len() as u32;
        let key = (stack.mm, frames);
        let number = match self.numbers.get(&key) {
            Some(&number) => number,
            None => {
                let names = key.1.iter().map(|&at| known.name(at));
                self.named.push(names.collect());
                self.numbers.insert(key, next);
                next
            }
        };
        let calls = self.calls.by_thread.entry(Tid(stack.tid)).or_default();
        calls.push_back(number);
    }

    /// Returns the stack number of each call, and the stacks indexed by number.
    ///
    /// A stack is a list of frame names, innermost first.
    pub fn into_parts(self) -> (CallStacks, Vec<Vec<String>>) {
        (self.calls, self.named)
    }
}

impl CodeOfSpace {
    fn module(&self, at: u64) -> Option<&(Range<u64>, u64, Arc<Code>)> {
        self.modules.iter().find(|(range, ..)| range.contains(&at))
    }

    /// Adds those executable mappings from the list that are not known yet.
    fn add_modules(
        &mut self,
        pid: i32,
        list: &[MapsEntry],
        files: &mut HashMap<String, Option<Arc<Code>>>,
    ) {
        for mapping in list.iter().filter(|mapping| mapping.perms.exec) {
            let Some(path) = mapping.name.path() else {
                continue;
            };
            let range = mapping.start..mapping.end;
            if self.modules.iter().any(|(known, ..)| *known == range) {
                continue;
            }
            let key = path.to_string_lossy().into_owned();
            let load = || {
                // Open the file as the process itself sees it.
                let inner = path.to_string_lossy();
                let path = format!("/proc/{pid}/root{inner}");
                Code::load(Path::new(&path), &inner).map(Arc::new)
            };
            let Some(code) = files.entry(key).or_insert_with(load).clone() else {
                continue;
            };
            let Some(base) = code.base(mapping) else {
                continue;
            };
            self.unwinder.add_module(Module::new(
                code.name.clone(),
                range.clone(),
                base,
                code.sections.info(),
            ));
            self.modules.push((range, base, code));
        }
    }

    /// Returns the instruction address of each frame, innermost first.
    ///
    /// The address of a caller is the return address minus 1.
    fn unwind(&mut self, stack: &CallStack) -> Vec<u64> {
        let mut read = |addr: u64| -> Result<u64, ()> {
            let at = addr.checked_sub(stack.sp).ok_or(())?;
            let at = usize::try_from(at).map_err(drop)?;
            let word = stack.bytes.get(at..).and_then(|b| b.first_chunk::<8>());
            word.map(|word| u64::from_le_bytes(*word)).ok_or(())
        };
        let registers = UnwindRegsX86_64::new(stack.ip, stack.sp, stack.bp);
        let mut frames = Vec::new();
        let walk = self
            .unwinder
            .iter_frames(stack.ip, registers, &mut self.cache, &mut read);
        let mut walk = walk;
        while let Ok(Some(frame)) = walk.next() {
            frames.push(match frame {
                FrameAddress::InstructionPointer(at) => at,
                FrameAddress::ReturnAddress(at) => at.get() - 1,
            });
            if frames.len() == FRAMES {
                break;
            }
        }
        frames
    }

    fn name(&self, at: u64) -> String {
        let Some((_, base, code)) = self.module(at) else {
            return format!("{at:#x} (code made at run time)");
        };
        let linked = at.wrapping_sub(*base);
        match code.symbol(linked) {
            Some((name, offset)) => format!("{name}+{offset:#x} ({})", code.name),
            None => format!("{}+{linked:#x}", code.name),
        }
    }
}

impl Code {
    /// Reads an object file; returns `None` if the file is of another kind or cannot be read.
    fn load(path: &Path, shown: &str) -> Option<Code> {
        if path.metadata().ok()?.len() > FILE_BYTES {
            return None;
        }
        let bytes = std::fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let section = |name: &str| -> Section {
            let section = file.section_by_name(name)?;
            let (at, len) = (section.address(), section.size());
            Some((at..at.checked_add(len)?, section.data().ok()?.into()))
        };
        let segments = file.segments().map(|segment| {
            let (offset, len) = segment.file_range();
            (offset, len, segment.address())
        });
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let symbols = symbols.filter(|symbol| symbol.kind() == object::SymbolKind::Text);
        let named = symbols.filter_map(|symbol| {
            let name = symbol.name().ok()?;
            let defined = symbol.address() != 0 && !name.is_empty();
            defined.then(|| (symbol.address(), symbol.size(), name.to_owned()))
        });
        let mut symbols: Vec<_> = named.collect();
        symbols.sort();
        Some(Code {
            name: shown.rsplit('/').next().unwrap_or(shown).to_owned(),
            sections: Sections {
                text: section(".text"),
                eh_frame: section(".eh_frame"),
                eh_frame_hdr: section(".eh_frame_hdr"),
                got: section(".got"),
            },
            segments: segments.collect(),
            symbols,
        })
    }

    /// Returns the difference between run-time and link-time addresses for this mapping.
    fn base(&self, mapping: &MapsEntry) -> Option<u64> {
        const PAGE: u64 = !0xfff;
        let holds = |(offset, len, _): &&(u64, u64, u64)| {
            let first = offset & PAGE;
            first <= mapping.offset && mapping.offset < offset.saturating_add(*len)
        };
        let (offset, _, linked) = self.segments.iter().rev().find(holds)?;
        let linked = (linked & PAGE).wrapping_add(mapping.offset - (offset & PAGE));
        Some(mapping.start.wrapping_sub(linked))
    }

    fn symbol(&self, linked: u64) -> Option<(&str, u64)> {
        let behind = self.symbols.partition_point(|(at, ..)| *at <= linked);
        let (at, len, name) = self.symbols[..behind].last()?;
        let offset = linked - at;
        (offset < (*len).max(1)).then_some((name.as_str(), offset))
    }
}

impl Sections {
    fn info(&self) -> ExplicitModuleSectionInfo<Arc<[u8]>> {
        let range = |section: &Section| section.as_ref().map(|(range, _)| range.clone());
        let data = |section: &Section| section.as_ref().map(|(_, data)| Arc::clone(data));
        ExplicitModuleSectionInfo {
            text_svma: range(&self.text),
            text: data(&self.text),
            eh_frame_svma: range(&self.eh_frame),
            eh_frame: data(&self.eh_frame),
            eh_frame_hdr_svma: range(&self.eh_frame_hdr),
            eh_frame_hdr: data(&self.eh_frame_hdr),
            got_svma: range(&self.got),
            ..ExplicitModuleSectionInfo::default()
        }
    }
}
