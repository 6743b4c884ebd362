//! The model: executes the same steps in the core, on the software platform.

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
use vmarea::syscall::merge_collector::Budget;
use vmarea::types::{Errno, FileKind, MmId, PAGE_SIZE, PMD_SIZE, PkeyRights, VmFlags, VmRange};
use vmarea::vma::VmaView;
use vmarea_oracle::PROCESSES;
use vmarea_process::view::View;
use vmarea_soft_platform::Machine;

/// First id for the files of `MAP_HUGETLB` mappings and attached segments, which no sequence opens.
const NAMELESS: u64 = 1 << 40;

/// Machine with up to [`PROCESSES`] address spaces.
#[derive(Debug)]
pub struct Model {
    machine: Machine,
    mms: [Option<MmId>; PROCESSES],
    /// Address space for which the userfaultfd was opened.
    watched: MmId,
    nameless: u64,
    places: Places,
    /// Initial VMAs.
    initial: Vec<VmRange>,
}

/// A VMA as seen by the generator.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    /// First address of the VMA.
    pub start: u64,
    /// First address after the VMA.
    pub end: u64,
    /// Page offset of the first page.
    pub pgoff: u64,
    /// True if the VMA is writable.
    pub writable: bool,
    /// True if the VMA is shared.
    pub shared: bool,
    /// True if the VMA has a file.
    pub file: bool,
    /// Kind of the VMA's file.
    pub kind: Option<FileKind>,
    /// Number of the VMA's file in sequences, if they can map it.
    pub number: Option<u64>,
    /// True if a userfaultfd watches the VMA.
    pub watched: bool,
}

/// Returns the real addresses of the symbolic regions in a view.
pub(super) fn places(view: &View) -> Places {
    // The special mappings are adjacent.
    let special = view.vmas.iter().find(|v| import::is_special(v));
    Places {
        heap: view.mm.start_brk.unwrap_or(0),
        special: special.map_or(0, |v| v.start),
    }
}

/// Selects the pages that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Pages in memory only, because reading a swapped-out page makes Linux swap it in.
    InMemory,
    /// All pages.
    All,
}

impl Model {
    /// Creates a machine whose process 0 has the address space that `view` shows.
    ///
    /// # Errors
    /// If the view is not a valid address space.
    pub fn new(
        policy: Policy,
        system: System,
        view: &View,
        limits: Limits,
    ) -> Result<Model, Errno> {
        let machine = Machine::new(policy, system);
        // Process 0 is a fork of the tester, which remains alive on both sides.
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
            if matches!(kind, arena::Kind::Disk | arena::Kind::DiskReadOnly) {
                let limit = arena::largest_disk_file();
                let inode = arena::inode(kind);
                machine
                    .memory()
                    .with_files(|files| files.limit(inode, limit));
            }
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

    /// Creates a machine for use without a kernel: one empty process, which has all capabilities.
    ///
    /// The processor has protection keys if `keys` is true.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn alone(policy: Policy, keys: bool) -> Result<Model, Errno> {
        Model::alone_with(policy, keys, 0x5555_5555_0000)
    }

    /// As [`Model::alone`], with a heap that begins at `heap`.
    pub(crate) fn alone_with(policy: Policy, keys: bool, heap: u64) -> Result<Model, Errno> {
        let mut view = View::default();
        view.mm.mmap_base = Some(0x7fff_0000_0000);
        view.mm.start_brk = Some(heap);
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

    /// Returns the address space of a process.
    pub fn mm(&self, process: usize) -> Option<MmId> {
        self.mms.get(process).copied().flatten()
    }

    /// Returns the real addresses of the symbolic regions.
    pub fn places(&self) -> Places {
        self.places
    }

    /// Returns the machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Executes a step.
    pub fn apply(&mut self, step: &Step) -> Outcome {
        let process = usize::from(step.process);
        let Some(mm) = self.mm(process) else {
            return Outcome::Impossible;
        };
        match &step.op {
            Op::Call(call) => {
                let outcome = self.call(mm, call).into();
                self.collect_merges(mm);
                outcome
            }
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

    /// Runs the merge collector, if the policy has one.
    fn collect_merges(&self, mm: MmId) {
        let space = self.machine.space();
        if space.policy().merging.collector {
            let budget = Budget {
                pages_at_once: 1 << 10,
                borders: 16,
            };
            // After an error, the remaining boundaries are left for a later run.
            let _ = space.collect(mm, budget);
        }
    }

    /// Checks the protection key of the mapping at `addr`.
    ///
    /// The processor performs this check before any other, except that a stack first grows down to
    /// the address.
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
        // The access shows whether the stack grows. If it grows, the address is mapped.
        let grown = self.machine.load(mm, addr, &mut [0]);
        matches!(grown, Ok(Faulted::NoMapping) | Err(_))
    }

    /// Creates the same filler mappings as the kernel side.
    fn fill(&mut self, mm: MmId, leave: u64) -> Outcome {
        let limit = u64::from(self.machine.space().system().max_map_count);
        let r = self.machine.space().mmap_read_lock(mm);
        let count = r.map_or(limit, |r| r.state().map_count.into());
        let Some(pages) = fill::missing(count, limit, leave) else {
            return Outcome::Impossible;
        };
        let [map, mut protect] = fill::calls(pages);
        let mut outcome = self.call(mm, &map);
        for _ in 0..pages / 2 {
            outcome = outcome.and_then(|_| self.call(mm, &protect));
            protect.args[0] += 2 * PAGE_SIZE;
        }
        outcome.map(|_| 0).into()
    }

    /// Returns the VMAs of a process in the arena and its heap, with symbolic addresses.
    pub fn ranges(&self, process: usize) -> Vec<Mapped> {
        self.mapped_where(process, is_in_arena)
    }

    /// Returns all other VMAs of a process, with symbolic addresses.
    pub fn others(&self, process: usize) -> Vec<Mapped> {
        self.mapped_where(process, |mapped| !is_in_arena(mapped))
    }

    /// Returns the VMAs of a process that satisfy `wanted`; none if the process does not exist.
    fn mapped_where(&self, process: usize, wanted: impl Fn(&Mapped) -> bool) -> Vec<Mapped> {
        let mm = self.mm(process);
        let Some(r) = mm.and_then(|mm| self.machine.space().mmap_read_lock(mm)) else {
            return Vec::new();
        };
        let all = r.vmas().map(|v| self.mapped(&v));
        all.filter(wanted).collect()
    }

    fn mapped(&self, v: &VmaView) -> Mapped {
        let start = self.places.named(v.range.start);
        Mapped {
            start,
            end: start + v.range.len_bytes(),
            pgoff: self.places.named_pgoff(v.pgoff().0),
            writable: v.body.flags.contains(VmFlags::WRITE),
            shared: v.body.flags.contains(VmFlags::SHARED),
            file: v.body.file.is_some(),
            kind: v.body.file.map(|f| f.kind),
            number: v.body.file.and_then(|f| arena::number(f.id)),
            watched: v.body.uffd != 0,
        }
    }

    /// Returns the break of a process as a symbolic address.
    pub fn brk(&self, process: usize) -> u64 {
        self.mm(process)
            .and_then(|mm| self.machine.space().mmap_read_lock(mm))
            .map_or(0, |r| self.places.named(r.state().layout.brk))
    }

    /// Returns the numbers of mapped pages of a process: total, data, locked.
    pub fn counts(&self, process: usize) -> [u64; 3] {
        self.mm(process)
            .and_then(|mm| self.machine.space().mmap_read_lock(mm))
            .map_or([0; 3], |r| {
                let s = r.state();
                [s.total_vm, s.data_vm, s.locked_vm]
            })
    }

    /// Returns true if the address was mapped before the first step.
    pub fn is_initial(&self, addr: u64) -> bool {
        let at = self.initial.partition_point(|r| r.end <= addr);
        self.initial.get(at).is_some_and(|r| r.contains(addr))
    }

    /// Returns the state of a process's address space.
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
                pgoff: v.pgoff().0,
                anon_pgoff: Some(v.offsets.anon_pgoff_at(v.range.start).0),
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

    /// Returns the addresses of readable pages that the process has mapped since its start.
    ///
    /// Includes swapped-out pages only with [`Look::All`].
    pub fn present(&self, process: usize, look: Look) -> Vec<u64> {
        let mut pages = Vec::new();
        let Some(r) = self
            .mm(process)
            .and_then(|mm| self.machine.space().mmap_read_lock(mm))
        else {
            return pages;
        };
        // Other processes cannot read these pages, or only the kernel knows their content.
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

    /// Returns the bytes of a page.
    pub fn page(&self, process: usize, addr: u64) -> [u8; PAGE_SIZE as usize] {
        let mut bytes = [0; PAGE_SIZE as usize];
        if let Some(mm) = self.mm(process) {
            self.machine.peek(mm, addr, &mut bytes);
        }
        bytes
    }
}

/// Signal for a denied protection key: `SIGSEGV` with `SEGV_PKUERR`.
const KEY_DENIED: Outcome = Outcome::Signal(11, 4);

/// True if the VMA is in the arena or in the heap.
fn is_in_arena(mapped: &Mapped) -> bool {
    (arena::START..arena::HEAP_END).contains(&mapped.start)
}

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
        Ok(Faulted::OutOfMemory | Faulted::NeedPage | Faulted::Retry) | Err(_) => {
            Outcome::Impossible
        }
    }
}
