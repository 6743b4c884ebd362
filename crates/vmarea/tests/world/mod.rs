//! Several processes on the software platform, with a model of the bytes that each must read.
//!
//! Every step changes both the core and the model. After each step, all invariants are checked; the
//! check includes a reverse-map walk from every frame. Every page of every process, even a
//! swapped-out or migrating one, must contain the same bytes as in the model.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;
use vmarea::System;
use vmarea::fault::Faulted;
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::syscall::mremap::MremapRequest;
use vmarea::types::call_flags::{MapFlags, MremapFlags, Prot};
use vmarea::types::{Errno, MmId, VmFlags};
use vmarea::vma::VmaView;
use vmarea_soft_platform::Machine;

/// Size of a page in bytes.
pub const PAGE: u64 = vmarea::types::PAGE_SIZE;
/// Address at which the tests create mappings.
pub const BASE: u64 = 0x10_0000_0000;
/// Readable and writable.
pub const RW: Prot = Prot::READ.union(Prot::WRITE);

/// Returns the address of page `n` in the arena.
pub fn at(n: u64) -> u64 {
    BASE + n * PAGE
}

/// A machine, and the expected contents of its processes.
pub struct World {
    pub machine: Machine,
    /// The number last written to each page, by process and address.
    bytes: BTreeMap<MmId, BTreeMap<u64, u64>>,
    stamp: u64,
    /// True if [`check`](Self::check) runs after every step.
    pub checks: bool,
}

impl World {
    /// Creates a machine with one empty process.
    pub fn new(policy: Policy) -> (World, MmId) {
        World::of(policy, System::default())
    }

    /// Creates a machine with the properties `system` and one empty process.
    pub fn of(policy: Policy, system: System) -> (World, MmId) {
        let machine = Machine::new(policy, system);
        let layout = Layout {
            mmap_base: 0x7f00_0000_0000,
            start_brk: at(0),
            brk: at(0),
            ..Layout::default()
        };
        let limits = Limits {
            ipc_lock: true,
            ..Limits::default()
        };
        let mm = machine.space().mm_create(layout, limits).unwrap();
        let world = World {
            machine,
            bytes: BTreeMap::from([(mm, BTreeMap::new())]),
            stamp: 0,
            checks: true,
        };
        (world, mm)
    }

    /// Maps private anonymous memory at page `page` in the arena.
    pub fn map(&mut self, mm: MmId, page: u64, pages: u64, prot: Prot) {
        let request = MmapRequest {
            addr: at(page),
            len: pages * PAGE,
            prot,
            flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
            ..MmapRequest::default()
        };
        self.machine.space().mmap(mm, &request).unwrap();
        self.forget(mm, page, pages);
        self.after();
    }

    pub fn unmap(&mut self, mm: MmId, page: u64, pages: u64) {
        self.machine
            .space()
            .munmap(mm, at(page), pages * PAGE)
            .unwrap();
        self.forget(mm, page, pages);
        self.after();
    }

    pub fn protect(&mut self, mm: MmId, page: u64, pages: u64, prot: Prot) {
        self.machine
            .space()
            .mprotect(mm, at(page), pages * PAGE, prot, None)
            .unwrap();
        self.after();
    }

    /// Grows a mapping in place.
    pub fn grow(&mut self, mm: MmId, page: u64, pages: u64, to: u64) {
        let request = MremapRequest {
            addr: at(page),
            old_len: pages * PAGE,
            new_len: to * PAGE,
            ..MremapRequest::default()
        };
        self.machine.space().mremap(mm, &request).unwrap();
        self.after();
    }

    /// Moves a mapping to page `to`; if `more` contains [`MremapFlags::DONTUNMAP`], the old mapping
    /// remains.
    pub fn shift(
        &mut self,
        mm: MmId,
        page: u64,
        pages: u64,
        to: u64,
        more: MremapFlags,
    ) -> Result<(), Errno> {
        let request = MremapRequest {
            addr: at(page),
            old_len: pages * PAGE,
            new_len: pages * PAGE,
            flags: MremapFlags::MAYMOVE | MremapFlags::FIXED | more,
            new_addr: at(to),
            ..MremapRequest::default()
        };
        let done = self.machine.space().mremap(mm, &request).map(drop);
        if done.is_ok() {
            self.forget(mm, to, pages);
            let moved: Vec<(u64, u64)> = self
                .bytes_of(mm)
                .extract_if(at(page)..at(page + pages), |_, _| true)
                .collect();
            for (addr, stamp) in moved {
                self.bytes_of(mm).insert(addr - at(page) + at(to), stamp);
            }
        }
        self.after();
        done
    }

    pub fn fork(&mut self, mm: MmId) -> MmId {
        let child = self.machine.space().fork(mm).unwrap();
        let copy = self.bytes_of(mm).clone();
        self.bytes.insert(child, copy);
        self.after();
        child
    }

    pub fn exit(&mut self, mm: MmId) {
        self.machine.space().mm_exit(mm).unwrap();
        self.bytes.remove(&mm);
        self.after();
    }

    /// Writes to each page a number that has not been written before.
    pub fn write(&mut self, mm: MmId, page: u64, pages: u64) {
        for n in page..page + pages {
            self.stamp += 1;
            self.write_one(mm, n, self.stamp);
        }
        self.after();
    }

    /// Writes to a page the number that page `other` contains.
    pub fn write_equal(&mut self, mm: MmId, page: u64, other: u64) {
        let stamp = self.bytes_of(mm).get(&at(other)).copied();
        self.write_one(mm, page, stamp.expect("the other was written to"));
        self.after();
    }

    fn write_one(&mut self, mm: MmId, page: u64, stamp: u64) {
        let bytes = stamp.to_le_bytes();
        let written = self.machine.store(mm, at(page), &bytes).unwrap();
        assert!(
            matches!(written, Faulted::Done | Faulted::Spurious),
            "page {page}: {written:?}"
        );
        self.bytes_of(mm).insert(at(page), stamp);
    }

    /// Removes the pages in a range from the model.
    pub fn forget(&mut self, mm: MmId, page: u64, pages: u64) {
        self.bytes_of(mm)
            .extract_if(at(page)..at(page + pages), |_, _| true)
            .for_each(drop);
    }

    pub fn bytes_of(&mut self, mm: MmId) -> &mut BTreeMap<u64, u64> {
        self.bytes.get_mut(&mm).expect("a process of this world")
    }

    /// Returns the VMAs of a process in address order.
    pub fn vmas(&self, mm: MmId) -> Vec<VmaView> {
        let r = self.machine.space().mmap_read_lock(mm).unwrap();
        r.vmas().collect()
    }

    /// Returns each VMA's page offset minus its start address in pages.
    pub fn lines(&self, mm: MmId) -> Vec<i64> {
        let line = |v: &VmaView| v.pgoff().0.wrapping_sub(v.range.start / PAGE) as i64;
        self.vmas(mm).iter().map(line).collect()
    }

    #[track_caller]
    fn after(&self) {
        if self.checks {
            self.check();
        }
    }

    /// Checks all invariants, and the bytes of every process.
    #[track_caller]
    pub fn check(&self) {
        if let Err(wrong) = self.state() {
            panic!("{wrong}\n{}", self.picture());
        }
    }

    /// Like [`check`](Self::check), but returns the first defect instead of panicking.
    pub fn state(&self) -> Result<(), String> {
        self.machine.validate()?;
        for (&mm, pages) in &self.bytes {
            for vma in self.vmas(mm) {
                for addr in vma.range.start / PAGE..vma.range.end / PAGE {
                    let addr = addr * PAGE;
                    let want = pages.get(&addr).copied().unwrap_or(0);
                    let mut page = [0; PAGE as usize];
                    let there = self.machine.peek(mm, addr, &mut page);
                    let found = u64::from_le_bytes(page[..8].try_into().unwrap());
                    if found != want || !there && want != 0 {
                        return Err(format!("{mm:?} {addr:x} reads {found}, not {want}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns a list of all VMAs, for error messages.
    pub fn picture(&self) -> String {
        let mut text = String::new();
        for &mm in self.bytes.keys() {
            text += &format!("{mm:?}\n");
            for v in self.vmas(mm) {
                let page = |addr: u64| (addr.wrapping_sub(BASE) / PAGE) as i64;
                text += &format!(
                    "  {}..{} pgoff {} {:?} {:?}\n",
                    page(v.range.start),
                    page(v.range.end),
                    page(v.pgoff().0 * PAGE),
                    v.anon_vma,
                    v.body.flags & VmFlags::ACCESS
                );
            }
        }
        text
    }
}
