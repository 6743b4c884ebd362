//! Embedders that break a rule or fail: the core panics with the rule's name, or returns an error and
//! stays valid.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use vmarea::Space;
use vmarea::changes::{Change, Observer};
use vmarea::prelude::*;
use vmarea::types::mmu::{Mmu, Translation};
use vmarea::types::platform::Spin;
use vmarea::types::writers::OneWriter;
use vmarea::vma::lock::VmaLock;

type Machine = Space<Kernel>;

#[derive(Debug, Default)]
struct Kernel;

impl Environment for Kernel {
    type VmaLock = VmaLock;
    type Platform = Bad;
    type Mmu = Bad;
    type Wait = Spin;
    type Writers = OneWriter;
}

/// An embedder that calls back in one of its methods, or in which one call fails.
#[derive(Clone, Debug, Default)]
struct Bad(Arc<State>);

#[derive(Debug, Default)]
struct State {
    calls_back: &'static str,
    machine: OnceLock<(&'static Machine, MmId)>,
    /// Number of calls that succeed before one fails.
    successes: AtomicU32,
    frames: Mutex<BTreeSet<FrameId>>,
    /// The hardware's entries, of which `clear` and `restrict` remove more than they are asked for.
    entries: Mutex<BTreeSet<(MmId, u64)>>,
}

impl Bad {
    fn new(calls_back: &'static str, successes: u32) -> Bad {
        Bad(Arc::new(State {
            calls_back,
            successes: successes.into(),
            ..State::default()
        }))
    }

    /// The machine, which is leaked, because a panic leaves locks held.
    fn machine(&self) -> &'static Machine {
        let system = System::default();
        let mut machine = Machine::with_mmu(Policy::LINUX, system, self.clone(), self.clone());
        machine.set_change_observer(Box::new(self.clone()));
        Box::leak(Box::new(machine))
    }

    fn enter(&self, method: &str) {
        if let Some((machine, mm)) = self.0.machine.get()
            && self.0.calls_back == method
        {
            drop(machine.mmap_read_lock(*mm));
        }
    }

    /// Enters a method that can fail.
    fn try_enter(&self, method: &str) -> Result<(), Errno> {
        self.enter(method);
        match self.0.successes.fetch_sub(1, Relaxed) {
            0 => Err(Errno::ENOMEM),
            _ => Ok(()),
        }
    }

    fn forget(&self, mm: MmId) {
        self.0.entries.lock().unwrap().retain(|&(of, _)| of != mm);
    }

    fn fill(&self, method: &str, frame: FrameId) -> Result<(), Errno> {
        self.try_enter(method)?;
        assert!(self.0.frames.lock().unwrap().insert(frame), "filled twice");
        Ok(())
    }
}

impl Platform for Bad {
    fn zero(&self, frame: FrameId) -> Result<(), Errno> {
        self.fill("zero", frame)
    }
    fn copy(&self, to: FrameId, from: FrameId) -> Result<(), Errno> {
        assert!(self.0.frames.lock().unwrap().contains(&from));
        self.fill("copy", to)
    }
    fn copy_file(&self, to: FrameId, _inode: u64, _index: u64) -> Result<(), Errno> {
        self.fill("copy_file", to)
    }
    fn free(&self, frame: FrameId) {
        self.enter("free");
        assert!(self.0.frames.lock().unwrap().remove(&frame), "freed twice");
    }
    fn shared_anon(&self, _inode: u64, _pages: u64) -> Result<(), Errno> {
        self.try_enter("shared_anon")
    }
    fn file_bring(&self, _inode: u64, _index: u64) -> Result<(), Errno> {
        self.try_enter("file_bring")
    }
    fn file_holds(&self, _inode: u64, _index: u64) -> bool {
        self.enter("file_holds");
        true
    }
    fn file_released(&self, _inode: u64) {
        self.enter("file_released");
    }
}

impl Mmu for Bad {
    fn mm_created(&self, _mm: MmId) -> Result<(), Errno> {
        self.try_enter("mm_created")
    }
    fn mm_gone(&self, _mm: MmId) {
        self.enter("mm_gone");
    }
    fn set_entry(&self, mm: MmId, addr: u64, _to: Translation) -> Result<(), Errno> {
        self.try_enter("set_entry")?;
        self.0.entries.lock().unwrap().insert((mm, addr));
        Ok(())
    }
    fn clear(&self, mm: MmId, _range: VmRange) {
        self.enter("clear");
        self.forget(mm);
    }
    fn restrict(&self, mm: MmId, _range: VmRange, _allowed: VmFlags) {
        self.enter("restrict");
        self.forget(mm);
    }
    fn flush(&self, _mm: MmId, _range: VmRange) {
        self.enter("flush");
    }
    fn free_tables(&self, _mm: MmId, _range: VmRange) {
        self.enter("free_tables");
    }
}

impl Observer for Bad {
    fn changed(&self, _mm: MmId, _change: Change) {
        self.enter("changed");
    }
}

/// Makes calls and faults of every kind; `check` is called after each. Returns true if none failed.
fn run(bad: &Bad, machine: &'static Machine, check: impl Fn()) -> bool {
    let layout = Layout {
        mmap_base: 0x7fff_0000_0000,
        ..Layout::default()
    };
    let Ok(mm) = machine.mm_create(layout, Limits::default()) else {
        return false;
    };
    bad.0.machine.set((machine, mm)).unwrap();
    let mut failed = false;
    let mut note = |result: Result<(), Errno>| {
        failed |= result.is_err();
        check();
    };
    let touch = |mm, addr, access| match machine.fault(mm, addr, access)? {
        Faulted::Done | Faulted::Spurious => {
            let entries = bad.0.entries.lock().unwrap();
            assert!(entries.contains(&(mm, addr)), "the fault maps nothing");
            Ok(())
        }
        _ => Err(Errno::ENOMEM),
    };
    let shared = MmapRequest {
        flags: MapFlags::SHARED | MapFlags::ANONYMOUS,
        ..MmapRequest::anonymous(4 * PAGE_SIZE)
    };
    for request in [MmapRequest::anonymous(4 * PAGE_SIZE), shared] {
        let Ok(at) = machine.mmap(mm, &request) else {
            note(Err(Errno::ENOMEM));
            continue;
        };
        for page in 0..4 {
            note(touch(mm, at + page * PAGE_SIZE, Access::Write));
        }
        match machine.fork(mm) {
            Ok(child) => {
                note(touch(child, at, Access::Write));
                note(touch(mm, at + PAGE_SIZE, Access::Write));
                note(machine.mm_exit(child));
            }
            Err(error) => note(Err(error)),
        }
        note(machine.mprotect(mm, at + PAGE_SIZE, PAGE_SIZE, Prot::READ, None));
        note(touch(mm, at + 2 * PAGE_SIZE, Access::Read));
        note(machine.munmap(mm, at, 3 * PAGE_SIZE));
    }
    note(machine.mm_exit(mm));
    !failed
}

#[test]
fn a_method_that_calls_back_panics_with_its_name() {
    for method in [
        "zero",
        "copy",
        "free",
        "shared_anon",
        "file_bring",
        "file_holds",
        "mm_created",
        "mm_gone",
        "set_entry",
        "clear",
        "restrict",
        "flush",
        "free_tables",
        "changed",
    ] {
        let bad = Bad::new(method, u32::MAX);
        let machine = bad.machine();
        let ran = catch_unwind(AssertUnwindSafe(|| run(&bad, machine, || ())));
        let panic = ran.expect_err(method);
        let text = panic.downcast_ref::<String>().expect("a text");
        let rule = format!("`{method}`, which the core calls, must not call the core");
        assert_eq!(*text, rule);
    }
}

#[test]
fn file_released_may_call_back() {
    let bad = Bad::new("file_released", u32::MAX);
    assert!(run(&bad, bad.machine(), || ()));
}

/// Whatever call of the embedder fails, the core stays valid, and all frames are freed in the end.
#[test]
fn a_call_that_fails_leaves_the_core_valid() {
    for successes in 0.. {
        let bad = Bad::new("", successes);
        let machine = bad.machine();
        let all_done = run(&bad, machine, || {
            let valid = machine.validate_all();
            assert!(valid.is_ok(), "{valid:?} after {successes} calls");
        });
        let left = bad.0.frames.lock().unwrap().len();
        assert_eq!(left, 0, "frames are left after {successes} calls");
        if all_done {
            assert!(successes > 20, "only {successes} calls can fail");
            return;
        }
    }
}
