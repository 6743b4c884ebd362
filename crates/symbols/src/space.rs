//! One address space: its executable mappings, their unwinder, and the locations found in them.

use crate::jit::Jit;
use crate::module::{Content, Module, Modules, file_name, nameless};
use crate::{
    Frame, Location, LocationId, MappedModule, NO_CODE, RUN_TIME_CODE, StackCopy, Table, Target,
};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Unwinder};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use vmarea_process::maps::{self, MapName, MapsEntry};

/// Maximum number of addresses per stack.
const FRAMES: usize = 128;

/// The executable mappings of an address space.
#[derive(Default)]
pub(crate) struct Space {
    unwinder: UnwinderX86_64<Arc<[u8]>>,
    cache: CacheX86_64,
    modules: Vec<Loaded>,
    /// Executable mappings without a program file, neighbours joined, ordered by address.
    run_time: Vec<Range<u64>>,
    /// Addresses at which no code was found; the mappings are not read again for them.
    unknown: HashSet<u64>,
    jit: Jit,
    /// Locations by address and number of the code made at run time, which is 0 in a module.
    known: HashMap<(u64, usize), LocationId>,
}

/// An executable mapping of a program file.
struct Loaded {
    mapping: MapsEntry,
    name: String,
    /// The file, with the difference between run-time and link-time addresses.
    module: Option<(u64, Rc<Module>)>,
    /// Index in [`Table::modules`].
    number: u32,
}

impl Space {
    /// Returns true if a further read of the mappings would not help to resolve the address.
    pub(crate) fn knows(&self, at: u64) -> bool {
        self.module(at).is_some() || self.is_run_time(at) || self.unknown.contains(&at)
    }

    /// Accepts that there is no code at those addresses that are still unknown.
    pub(crate) fn give_up(&mut self, addresses: &[u64]) {
        let unknown: Vec<_> = addresses.iter().filter(|at| !self.knows(**at)).collect();
        self.unknown.extend(unknown);
    }

    fn module(&self, at: u64) -> Option<&Loaded> {
        let covers = |loaded: &&Loaded| (loaded.mapping.start..loaded.mapping.end).contains(&at);
        self.modules.iter().find(covers)
    }

    fn is_run_time(&self, at: u64) -> bool {
        self.run_time.iter().any(|range| range.contains(&at))
    }

    /// Reads the executable mappings again.
    pub(crate) fn read(&mut self, target: Target, modules: &mut Modules, table: &mut Table) {
        let Ok(mut list) = maps::read(target.tid) else {
            return;
        };
        list.retain(|mapping| mapping.perms.exec && !matches!(mapping.name, MapName::Special(_)));
        let unloaded = |loaded: &Loaded| !list.contains(&loaded.mapping);
        for gone in self.modules.extract_if(.., |loaded| unloaded(loaded)) {
            self.unwinder.remove_module(gone.mapping.start);
            self.known
                .retain(|(at, _), _| !(gone.mapping.start..gone.mapping.end).contains(at));
        }
        self.run_time.clear();
        for mapping in list {
            if self.modules.iter().any(|loaded| loaded.mapping == mapping)
                || self.jit.notice(target.pid, &mapping)
            {
                continue;
            }
            match modules.get(target.pid, &mapping) {
                Content::Program(module) => self.load(mapping, Some(module), table),
                Content::Unreadable => self.load(mapping, None, table),
                Content::Other => match self.run_time.last_mut() {
                    Some(last) if last.end == mapping.start => last.end = mapping.end,
                    _ => self.run_time.push(mapping.start..mapping.end),
                },
            }
        }
    }

    /// Adds a program file; without `module`, its functions have no names.
    fn load(&mut self, mapping: MapsEntry, module: Option<Rc<Module>>, table: &mut Table) {
        let range = mapping.start..mapping.end;
        let path = mapping.name.text();
        let name = file_name(&path);
        let module = module.and_then(|module| Some((module.elf.base(&mapping)?, module)));
        if let Some((base, module)) = &module {
            let sections = module.elf.sections.info();
            let module = framehop::Module::new(name.clone(), range.clone(), *base, sections);
            self.unwinder.add_module(module);
        }
        let build_id = module
            .as_ref()
            .map(|(_, module)| module.elf.build_id.clone());
        let number = table.modules.len() as u32;
        table.modules.push(MappedModule {
            start: range.start,
            end: range.end,
            offset: mapping.offset,
            path,
            build_id: build_id.unwrap_or_default(),
        });
        self.modules.push(Loaded {
            mapping,
            name,
            module,
            number,
        });
    }

    /// Returns the instruction address of each frame, innermost first.
    ///
    /// The address of a caller is the return address minus 1. Code without unwind tables is unwound
    /// by frame pointers.
    pub(crate) fn unwind(&mut self, stack: &StackCopy<'_>) -> Vec<u64> {
        let mut read = |addr: u64| -> Result<u64, ()> {
            let at = addr.checked_sub(stack.sp).ok_or(())?;
            let at = usize::try_from(at).map_err(drop)?;
            let word = stack.bytes.get(at..).and_then(|b| b.first_chunk::<8>());
            word.map(|word| u64::from_le_bytes(*word)).ok_or(())
        };
        let registers = UnwindRegsX86_64::new(stack.ip, stack.sp, stack.bp);
        let mut walk = self
            .unwinder
            .iter_frames(stack.ip, registers, &mut self.cache, &mut read);
        let mut frames = Vec::new();
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

    /// Returns the locations at these addresses.
    pub(crate) fn locate(
        &mut self,
        pid: i32,
        addresses: &[u64],
        table: &mut Table,
    ) -> Vec<LocationId> {
        if addresses.iter().any(|&at| self.is_run_time(at)) {
            self.jit.update(pid, &self.run_time);
        }
        let each = addresses.iter();
        each.map(|&at| {
            let code = match self.module(at) {
                Some(_) => 0,
                None => self.jit.code_at(at).map_or(0, |code| code + 1),
            };
            if let Some(&known) = self.known.get(&(at, code)) {
                return known;
            }
            let id = table.add(self.resolve(at));
            self.known.insert((at, code), id);
            id
        })
        .collect()
    }

    fn resolve(&self, at: u64) -> Location {
        if let Some(loaded) = self.module(at) {
            let (linked, frames) = match &loaded.module {
                Some((base, module)) => {
                    let linked = at.wrapping_sub(*base);
                    (linked, module.frames(linked))
                }
                None => {
                    let linked = at - loaded.mapping.start + loaded.mapping.offset;
                    let frame = Frame {
                        function: nameless(&loaded.name, linked),
                        module: Some(loaded.name.clone()),
                        ..Frame::default()
                    };
                    (linked, vec![frame])
                }
            };
            return Location {
                address: at,
                linked,
                module: Some(loaded.number),
                frames,
            };
        }
        let frame = match self.jit.code_at(at) {
            Some(code) => self.jit.frame(code, at),
            None if self.is_run_time(at) => Frame {
                function: RUN_TIME_CODE.to_owned(),
                module: Some(RUN_TIME_CODE.to_owned()),
                ..Frame::default()
            },
            None => Frame {
                function: NO_CODE.to_owned(),
                ..Frame::default()
            },
        };
        Location {
            address: at,
            linked: at,
            module: None,
            frames: vec![frame],
        }
    }

    pub(crate) fn into_notes(self) -> Vec<String> {
        self.jit.into_notes()
    }
}
