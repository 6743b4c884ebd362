//! Every call that the core refuses names its reason, in words and with numbers.
//!
//! A table has one row for each reason of each call. Random calls then show that no call fails with an
//! errno that has no row, and that none fails without a reason.

mod advising;
mod mapping;
mod memory;
mod moving;
mod other;
mod random;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use vmarea::mm::lifecycle::{ImportedAnon, ImportedVma};
use vmarea::prelude::*;
use vmarea::refused::{Observer, Refused, Rule};
use vmarea::types::{File, FileId, FileKind, PMD_SIZE, Pgoff, VmRange};
use vmarea::vma::VmaBody;

const PAGE: u64 = PAGE_SIZE;
const BASE: u64 = 0x10_0000_0000;
const RW: Prot = Prot::READ.union(Prot::WRITE);
const ANON: MapFlags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS);

/// The policies under which random calls are made: some of Linux, and one that moves more.
const POLICIES: [Policy; 5] = [
    Policy::LINUX,
    Policy::LINUX_6_12,
    Policy::LINUX_6_1,
    Policy::LINUX_5_10,
    Policy::VMAREA,
];

/// Returns the address of page `n` in the area of the tests.
fn at(n: u64) -> u64 {
    BASE + n * PAGE
}

fn file(kind: FileKind) -> File {
    File::read_write(FileId(1), 1, kind)
}

/// The last reason that the core named.
#[derive(Clone, Default)]
struct Last(Arc<Mutex<Option<Refused>>>);

impl Observer for Last {
    fn refused(&self, why: &Refused) {
        *self.0.lock().unwrap() = Some(*why);
    }
}

/// A machine with one process.
struct Process {
    space: Space,
    mm: MmId,
    last: Last,
}

impl Process {
    fn new(policy: Policy) -> Process {
        let system = System {
            protection_keys: true,
            ..System::default()
        };
        let mut space = Space::new(policy, system);
        let last = Last::default();
        space.set_refused_observer(Box::new(last.clone()));
        let layout = Layout {
            mmap_base: 0x7fff_0000_0000,
            legacy_base: 0x2aaa_0000_0000,
            start_brk: at(1000),
            brk: at(1000),
            ..Layout::default()
        };
        let mm = space.mm_create(layout, Limits::default()).unwrap();
        Process { space, mm, last }
    }

    /// Maps private memory at a page.
    fn map(&mut self, page: u64, pages: u64) -> &mut Self {
        self.map_as(page, pages, ANON, None)
    }

    fn map_as(&mut self, page: u64, pages: u64, flags: MapFlags, file: Option<File>) -> &mut Self {
        let request = MmapRequest {
            flags: flags | MapFlags::FIXED,
            file,
            ..fixed(page, pages)
        };
        self.space.mmap(self.mm, &request).unwrap();
        self
    }

    /// Maps a shared file.
    fn map_file(&mut self, page: u64, pages: u64, file: File) -> &mut Self {
        self.map_as(page, pages, MapFlags::SHARED, Some(file))
    }

    /// Maps a shared page of a file that was opened for reading only.
    fn map_read_only(&mut self, kind: FileKind) {
        let mut opened = file(kind);
        opened.writable = false;
        let request = MmapRequest {
            prot: Prot::READ,
            file: Some(opened),
            flags: MapFlags::SHARED | MapFlags::FIXED,
            ..fixed(0, 1)
        };
        self.space.mmap(self.mm, &request).unwrap();
    }

    /// Maps huge pages of hugetlbfs, from the first page on.
    fn map_hugetlb(&mut self, huge_pages: u64) {
        let request = MmapRequest {
            len: huge_pages * PMD_SIZE,
            file: Some(file(FileKind::Hugetlb)),
            flags: MapFlags::SHARED | MapFlags::FIXED,
            ..fixed(0, 0)
        };
        self.space.mmap(self.mm, &request).unwrap();
    }

    /// Maps a page that may not be accessed.
    fn map_inaccessible(&mut self) {
        let none = Syscall::Mprotect {
            addr: at(0),
            len: PAGE,
            prot: Prot::empty(),
            pkey: None,
        };
        self.map(0, 1).call(&none);
    }

    /// Maps a page as the driver of a device maps it, with these flags and this page offset.
    fn import(&mut self, page: u64, flags: VmFlags, pgoff: u64) -> &mut Self {
        let vma = ImportedVma {
            range: VmRange::new(at(page), at(page + 1)),
            pgoff: Pgoff(pgoff),
            anon_pgoff: None,
            body: VmaBody {
                flags: flags | VmFlags::READ | VmFlags::SHARED | VmFlags::MAYSHARE,
                ..VmaBody::default()
            },
            anon: ImportedAnon::Unfaulted,
        };
        self.space.mm_import(self.mm, &vma).unwrap();
        self
    }

    fn seal(&mut self, page: u64, pages: u64) -> &mut Self {
        (self.space.mseal(self.mm, at(page), pages * PAGE, 0)).unwrap();
        self
    }

    fn call(&mut self, call: &Syscall) -> &mut Self {
        self.space.syscall(self.mm, call).unwrap();
        self
    }

    fn limits(&mut self, change: impl FnOnce(&mut Limits)) -> &mut Self {
        self.space.set_limits(self.mm, change).unwrap();
        self
    }

    fn system(&mut self, change: impl FnOnce(&mut System)) -> &mut Self {
        let mut system = *self.space.system();
        change(&mut system);
        self.space.set_system(system);
        self
    }

    /// Makes the number of mappings that there are the highest that is allowed.
    fn at_the_limit(&mut self) {
        let count = self.space.maps(self.mm).count() as u32;
        self.system(|system| system.max_map_count = count);
    }

    /// Performs the call; returns its result, and the last reason that it named.
    fn attempt(&self, call: &Syscall) -> (Result<u64, Errno>, Option<Refused>) {
        *self.last.0.lock().unwrap() = None;
        let result = self.space.syscall(self.mm, call);
        (result, self.last.0.lock().unwrap().take())
    }
}

/// Returns a request for private memory at a page, which is a hint.
fn fixed(page: u64, pages: u64) -> MmapRequest {
    MmapRequest {
        addr: at(page),
        ..MmapRequest::anonymous(pages * PAGE)
    }
}

/// A call that is refused, with its errno and its reason in words.
#[derive(Clone)]
struct Case {
    policy: Policy,
    /// `None` for `brk`, which returns the old break.
    errno: Option<Errno>,
    words: &'static str,
    /// Prepares the process, and returns the call.
    call: fn(&mut Process) -> Syscall,
}

impl Case {
    fn new(errno: Errno, words: &'static str, call: fn(&mut Process) -> Syscall) -> Case {
        Case {
            policy: Policy::LINUX,
            errno: Some(errno),
            words,
            call,
        }
    }

    fn under(self, policy: Policy) -> Case {
        Case { policy, ..self }
    }
}

/// Returns the name of a call.
fn name(call: &Syscall) -> String {
    let text = format!("{call:?}");
    let end = text.find(|c: char| !c.is_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

fn cases() -> Vec<Case> {
    [
        mapping::cases(),
        memory::cases(),
        moving::cases(),
        advising::cases(),
        other::cases(),
    ]
    .concat()
}

#[test]
fn each_reason_of_each_call_is_told_in_words_with_its_numbers() {
    let mut wrong = Vec::new();
    for case in cases() {
        let mut process = Process::new(case.policy);
        let call = (case.call)(&mut process);
        let before = process.space.syscall(process.mm, &Syscall::Brk { addr: 0 });
        let (result, why) = process.attempt(&call);
        let expected = case.errno.map_or(before, Err);
        let words = why.map(|why| why.to_string());
        if result != expected || words.as_deref() != Some(case.words) {
            wrong.push(format!(
                "{call:?}\n  {result:?}, {words:?}\n  {expected:?}, {:?}",
                case.words
            ));
        }
        assert!(why.is_none_or(|why| !why.remedy().is_empty()), "{why:?}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The rules whose breach the core learns from the embedder, or that no call reaches on its own.
const NOT_HERE: [Rule; 2] = [Rule::NamelessFile, Rule::Collapses];

#[test]
fn each_rule_is_broken_by_a_call_of_the_table() {
    let told: BTreeSet<_> = cases().iter().map(|case| case.words).collect();
    for rule in Rule::ALL {
        let is_told = told.contains(rule.broken());
        assert_eq!(is_told, !NOT_HERE.contains(rule), "{rule:?}");
        assert!(rule.remedy().len() > 4, "{rule:?}");
    }
}

#[test]
fn no_call_fails_without_a_reason_or_with_an_errno_that_the_table_lacks() {
    let mut known = BTreeSet::new();
    for case in cases() {
        let call = (case.call)(&mut Process::new(case.policy));
        known.extend(case.errno.map(|errno| (name(&call), errno)));
    }
    let mut met = BTreeSet::new();
    for policy in POLICIES {
        for seed in 0..100 {
            random::run(policy, seed, &mut |call, errno, why| {
                assert!(why.is_some(), "{}: {call:?}: {errno:?}", policy.name);
                met.insert((name(call), errno));
            });
        }
    }
    let lacks: Vec<_> = met.difference(&known).collect();
    assert!(lacks.is_empty(), "without a row: {lacks:?}");
    // The random calls reach what they are meant to judge.
    assert!(
        2 * met.len() > known.len(),
        "{} of {}",
        met.len(),
        known.len()
    );
}

/// Returns the range of the first mapping.
fn first(process: &Process) -> VmRange {
    process.space.maps(process.mm).next().unwrap().range
}

#[test]
fn a_call_that_succeeds_names_no_reason() {
    let mut process = Process::new(Policy::LINUX);
    process.map(0, 3);
    let (result, why) = process.attempt(&Syscall::Munmap {
        addr: at(1),
        len: PAGE,
    });
    assert_eq!((result, why), (Ok(0), None));
    assert_eq!(first(&process).pages(), 1);
}
