//! Our side: the same steps on the software platform.

mod background;
mod calls;
mod import;

use super::arena;
use super::fill;
use super::op::{Op, Places, Step};
use super::outcome::Outcome;
use super::state::{SpaceState, VmaState};
use vmarea::System;
use vmarea::fault::Faulted;
use vmarea::mm::Limits;
use vmarea::page::Pte;
use vmarea::policy::Policy;
use vmarea::soft::Machine;
use vmarea::types::{Errno, FileKind, MmId, PAGE_SIZE, PMD_SIZE, PkeyRights, VmFlags, VmRange};
use vmarea::vma::VmaView;
use vmarea_oracle::PROCESSES;
use vmarea_process::view::View;

/// Numbers of files that nobody has opened: hugetlb files of `MAP_HUGETLB`, attached segments.
const NAMELESS: u64 = 1 << 40;

/// The machine with up to [`PROCESSES`] address spaces.
#[derive(Debug)]
pub struct Model {
    machine: Machine,
    mms: [Option<MmId>; PROCESSES],
    /// The address space that the userfaultfd was opened for.
    watched: MmId,
    nameless: u64,
    places: Places,
    /// VMAs that were there at first.
    initial: Vec<VmRange>,
}

/// A VMA as the generator sees it.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Page offset of its first page.
    pub pgoff: u64,
    /// It may be written.
    pub writable: bool,
    /// It is shared.
    pub shared: bool,
    /// It has a file.
    pub file: bool,
    /// The kind of that.
    pub kind: Option<FileKind>,
}

/// What of a list of mappings lies where.
pub(super) fn places(view: &View) -> Places {
    // They follow each other.
    let special = view.vmas.iter().find(|v| import::is_special(v));
    Places {
        heap: view.mm.start_brk.unwrap_or(0),
        special: special.map_or(0, |v| v.start),
    }
}

/// Which pages are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Those in memory: Linux brings a page back from swap to show it.
    InMemory,
    /// All.
    All,
}

impl Model {
    /// A machine whose process 0 looks as `view` shows it.
    ///
    /// # Errors
    /// Where the view cannot be an address space.
    pub fn new(
        policy: Policy,
        system: System,
        view: &View,
        limits: Limits,
    ) -> Result<Model, Errno> {
        let machine = Machine::new(policy, system);
        // What the process began as a copy of; it lives on, as the tester does.
        let tester = import::import(&machine, view, limits)?;
        let mm = machine.space().fork(tester)?;
        for kind in arena::KINDS {
            let pages = match kind {
                arena::Kind::Huge => arena::HUGE_FILE_PAGES * (PMD_SIZE / PAGE_SIZE),
                _ => arena::FILE_PAGES,
            };
            machine
                .memory()
                .with_files(|files| files.resize(arena::inode(kind), pages));
            if matches!(kind, arena::Kind::Secret | arena::Kind::Huge) {
                continue;
            }
            for index in 0..arena::FILE_PAGES {
                let stamp = arena::stamp(kind, index).to_ne_bytes();
                machine.memory().with_files(|files| {
                    files.page(arena::inode(kind), index)[..8].copy_from_slice(&stamp);
                });
            }
        }
        for number in 0..arena::SEGMENTS.len() {
            let inode = arena::segment_inode(number);
            let pages = arena::segment_len(inode).unwrap_or(0).div_ceil(PAGE_SIZE);
            machine
                .memory()
                .with_files(|files| files.resize(inode, pages));
        }
        let mut mms = [None; PROCESSES];
        mms[0] = Some(mm);
        Ok(Model {
            machine,
            mms,
            watched: mm,
            nameless: 0,
            places: places(view),
            initial: view
                .vmas
                .iter()
                .map(|v| VmRange::new(v.start, v.end))
                .collect(),
        })
    }

    /// A machine where no kernel is asked: an empty process with all rights, whose processor has
    /// protection `keys` or not.
    ///
    /// # Errors
    /// Where there is no memory.
    pub fn alone(policy: Policy, keys: bool) -> Result<Model, Errno> {
        let mut view = View::default();
        view.mm.mmap_base = Some(0x7fff_0000_0000);
        view.mm.start_brk = Some(0x5555_5555_0000);
        view.mm.brk = view.mm.start_brk;
        view.vmas = import::special();
        let limits = Limits {
            ipc_lock: true,
            sys_nice: true,
            ..Limits::default()
        };
        let system = System {
            swap: true,
            protection_keys: keys,
            ..System::default()
        };
        Model::new(policy, system, &view, limits)
    }

    /// The address space of a process.
    pub fn mm(&self, process: usize) -> Option<MmId> {
        self.mms.get(process).copied().flatten()
    }

    /// What lies where.
    pub fn places(&self) -> Places {
        self.places
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Does a step.
    pub fn apply(&mut self, step: &Step) -> Outcome {
        let process = usize::from(step.process);
        let Some(mm) = self.mm(process) else {
            return Outcome::Impossible;
        };
        match &step.op {
            Op::Call(call) => self.call(mm, call).into(),
            Op::Read { addr } if !self.key_allows(mm, *addr, PkeyRights::allows_read) => KEY_DENIED,
            Op::Write { addr, .. } if !self.key_allows(mm, *addr, PkeyRights::allows_write) => {
                KEY_DENIED
            }
            Op::Read { addr } => {
                let mut bytes = [0; 8];
                let faulted = self.machine.load(mm, self.places.placed(*addr), &mut bytes);
                access(faulted, u64::from_ne_bytes(bytes))
            }
            Op::Write { addr, value } => access(
                self.machine
                    .store(mm, self.places.placed(*addr), &value.to_ne_bytes()),
                0,
            ),
            Op::Fork { child } => match self.mms.get(usize::from(*child)) {
                Some(None) => match self.machine.space().fork(mm) {
                    Ok(new) => {
                        self.mms[usize::from(*child)] = Some(new);
                        Outcome::Value(0)
                    }
                    Err(errno) => Outcome::Errno(errno.number()),
                },
                _ => Outcome::Impossible,
            },
            Op::Exit => {
                self.mms[process] = None;
                self.machine
                    .space()
                    .mm_exit(mm)
                    .map_or(Outcome::Impossible, |()| Outcome::Value(0))
            }
            Op::Fill { leave } => self.fill(mm, *leave),
            Op::Background(work) => {
                self.background(mm, *work);
                Outcome::Value(0)
            }
        }
    }

    /// What the processor asks before anything else: the key of the mapping, where there is one. A stack
    /// grows down to the address before that.
    fn key_allows(&self, mm: MmId, addr: u64, allows: fn(PkeyRights, u32) -> bool) -> bool {
        let addr = self.places.placed(addr);
        let Some(r) = self.machine.space().mmap_read_lock(mm) else {
            return true;
        };
        let Some(vma) = r.find_vma(addr) else {
            return true;
        };
        if allows(r.state().pkey_rights, vma.body.flags.pkey()) {
            return true;
        }
        drop(r);
        if vma.range.start <= addr {
            return false;
        }
        // Whether it grows shows in whether there is a mapping then.
        let grown = self.machine.load(mm, addr, &mut [0]);
        matches!(grown, Ok(Faulted::NoMapping) | Err(_))
    }

    /// As Linux's side does.
    fn fill(&mut self, mm: MmId, leave: u64) -> Outcome {
        let limit = u64::from(self.machine.space().system().max_map_count);
        let r = self.machine.space().mmap_read_lock(mm);
        let count = r.map_or(limit, |r| r.state().map_count.into());
        let Some(pairs) = fill::pairs(count, limit, leave) else {
            return Outcome::Impossible;
        };
        let [map, mut protect] = fill::calls(pairs);
        let mut outcome = self.call(mm, &map);
        for _ in 0..pairs {
            outcome = outcome.and_then(|_| self.call(mm, &protect));
            protect.args[0] += 2 * PAGE_SIZE;
        }
        outcome.map(|_| 0).into()
    }

    /// What a process has mapped in the arena and its heap, by the names of sequences.
    pub fn ranges(&self, process: usize) -> Vec<Mapped> {
        let Some(r) = self
            .mm(process)
            .and_then(|mm| self.machine.space().mmap_read_lock(mm))
        else {
            return Vec::new();
        };
        r.vmas()
            .map(|v| self.mapped(&v))
            .filter(|m| (arena::START..arena::HEAP_END).contains(&m.start))
            .collect()
    }

    /// All other mappings of a process, by the names of sequences.
    pub fn others(&self, process: usize) -> Vec<Mapped> {
        let Some(r) = self
            .mm(process)
            .and_then(|mm| self.machine.space().mmap_read_lock(mm))
        else {
            return Vec::new();
        };
        r.vmas()
            .map(|v| self.mapped(&v))
            .filter(|m| !(arena::START..arena::HEAP_END).contains(&m.start))
            .collect()
    }

    fn mapped(&self, v: &VmaView) -> Mapped {
        let start = self.places.named(v.range.start);
        Mapped {
            start,
            end: start + v.range.len_bytes(),
            pgoff: v.pgoff.0,
            writable: v.body.flags.contains(VmFlags::WRITE),
            shared: v.body.flags.contains(VmFlags::SHARED),
            file: v.body.file.is_some(),
            kind: v.body.file.map(|f| f.kind),
        }
    }

    /// The break of a process, by the name of sequences.
    pub fn brk(&self, process: usize) -> u64 {
        self.mm(process)
            .and_then(|mm| self.machine.space().mmap_read_lock(mm))
            .map_or(0, |r| self.places.named(r.state().layout.brk))
    }

    /// Pages that a process has mapped: all, of data, locked.
    pub fn counts(&self, process: usize) -> [u64; 3] {
        self.mm(process)
            .and_then(|mm| self.machine.space().mmap_read_lock(mm))
            .map_or([0; 3], |r| {
                let s = r.state();
                [s.total_vm, s.data_vm, s.locked_vm]
            })
    }

    /// True for what was there before the first step.
    pub fn is_initial(&self, addr: u64) -> bool {
        let at = self.initial.partition_point(|r| r.end <= addr);
        self.initial.get(at).is_some_and(|r| r.contains(addr))
    }

    /// The address space of a process.
    pub fn state(&self, process: usize) -> SpaceState {
        let space = self.machine.space();
        let Some(r) = self.mm(process).and_then(|mm| space.mmap_read_lock(mm)) else {
            return SpaceState::default();
        };
        let vmas = r.vmas().map(|v| {
            let anon = v.anon_vma.map(|id| space.anon_vma_view(id));
            VmaState {
                start: v.range.start,
                end: v.range.end,
                flags: v.body.flags.bits(),
                pgoff: v.pgoff.0,
                anon_vma: anon.map_or(0, |a| a.id.to_bits()),
                root: anon.map_or(0, |a| a.root.to_bits()),
                chain_singular: v.chain_singular,
                num_children: anon.map(|a| a.num_children.into()),
                num_active_vmas: anon.map(|a| a.num_active_vmas.into()),
                anonymous: v.is_anonymous(),
                file: v
                    .body
                    .file
                    .filter(|f| !matches!(f.kind, FileKind::Device | FileKind::Special))
                    .map_or(0, |f| f.id.0),
                policy: v.body.policy != 0,
                uffd: v.body.uffd.into(),
            }
        });
        let vmas = vmas.collect();
        let s = r.state();
        SpaceState {
            vmas,
            counters: [
                Some(s.total_vm),
                Some(s.locked_vm),
                Some(s.map_count.into()),
            ],
            def_flags: Some(s.def_flags.bits()),
            brk: [Some(s.layout.start_brk), Some(s.layout.brk)],
        }
    }

    /// Addresses of the pages that are mapped in a process since it began and may be read; those that
    /// are swapped out only where a look may bring them back.
    pub fn present(&self, process: usize, look: Look) -> Vec<u64> {
        let mut pages = Vec::new();
        let Some(r) = self
            .mm(process)
            .and_then(|mm| self.machine.space().mmap_read_lock(mm))
        else {
            return pages;
        };
        // Nobody else may look into these, or only the kernel knows what is there.
        let hidden = |v: &VmaView| {
            v.body.file.is_some_and(|f| {
                matches!(f.kind, FileKind::Special | FileKind::Secret)
                    || f.inode == arena::inode(arena::Kind::Huge)
            })
        };
        let readable = |v: &VmaView| v.body.flags.contains(VmFlags::READ) && !hidden(v);
        for vma in r.vmas().filter(readable) {
            r.pages().for_each_ordered(vma.range, |addr, entry| {
                let there = match entry {
                    Pte::Guard => false,
                    Pte::Swap { .. } => look == Look::All,
                    _ => true,
                };
                if there && !self.is_initial(addr) {
                    pages.push(addr);
                }
            });
        }
        pages
    }

    /// The bytes of a page as they are.
    pub fn page(&self, process: usize, addr: u64) -> [u8; PAGE_SIZE as usize] {
        let mut bytes = [0; PAGE_SIZE as usize];
        if let Some(mm) = self.mm(process) {
            self.machine.peek(mm, addr, &mut bytes);
        }
        bytes
    }
}

/// `SEGV_PKUERR`.
const KEY_DENIED: Outcome = Outcome::Signal(11, 4);

fn access(faulted: Result<Faulted, Errno>, value: u64) -> Outcome {
    const SIGSEGV: i32 = 11;
    const SIGBUS: i32 = 7;
    const ADRERR: i32 = 2;
    const MAPERR: i32 = 1;
    const ACCERR: i32 = 2;
    match faulted {
        Ok(Faulted::Done | Faulted::Spurious) => Outcome::Value(value),
        Ok(Faulted::NoMapping) => Outcome::Signal(SIGSEGV, MAPERR),
        Ok(Faulted::NoAccess) => Outcome::Signal(SIGSEGV, ACCERR),
        Ok(Faulted::NoPage | Faulted::Userfault) => Outcome::Signal(SIGBUS, ADRERR),
        Ok(Faulted::OutOfMemory | Faulted::MustWait) | Err(_) => Outcome::Impossible,
    }
}
