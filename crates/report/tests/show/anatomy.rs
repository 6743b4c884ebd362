//! The anatomy of this process, which has variables of each kind at known addresses.
//!
//! Matěna's thesis uses a similar program, which prints pointers to its data.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use vmarea_process::{AskKernel, ProcessError, Smaps};
use vmarea_report::anatomy::{Anatomy, Fold, Kind, Part, Symbols};
use vmarea_report::maps::Maps;
use vmarea_report::shown::Shown;

static INITIALISED: AtomicU64 = AtomicU64::new(7);
static UNINITIALISED: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];
static CONSTANT: [u64; 64] = [3; 64];

fn this_process(fold: Fold) -> Anatomy {
    let pid = std::process::id() as i32;
    let list = || std::fs::read("/proc/self/maps").expect("we may look at ourselves");
    // Other tests map and unmap memory, and a list is not read in one step.
    loop {
        let before = list();
        let shown = Shown::live(pid, AskKernel::Never, Smaps::Never);
        if list() == before {
            let shown = shown.expect("we may look at ourselves");
            return Anatomy::new(&shown, fold, Symbols::Read);
        }
    }
}

fn at(anatomy: &Anatomy, address: u64) -> &Part {
    let mut parts = anatomy.parts.iter();
    let found = parts.find(|part| (part.start..part.end).contains(&address));
    found.unwrap_or_else(|| panic!("nothing at {address:#x}"))
}

fn address<T: ?Sized>(of: &T) -> u64 {
    std::ptr::from_ref(of).addr() as u64
}

#[test]
fn data_of_each_kind_lie_in_the_part_of_their_kind() {
    // The compiler must not know the values of these variables.
    INITIALISED.fetch_add(1, Ordering::Relaxed);
    UNINITIALISED[2048].fetch_add(1, Ordering::Relaxed);
    let on_stack = Cell::new(1u64);
    let on_heap = Box::new([1u64; 100]);
    let anatomy = this_process(Fold::None);
    let kind = |address| at(&anatomy, address).kind;
    assert_eq!(kind(this_process as *const () as u64), Kind::Code);
    assert_eq!(
        kind(address(std::hint::black_box(&CONSTANT))),
        Kind::Constants
    );
    assert_eq!(kind(address(&INITIALISED)), Kind::Initialised);
    assert_eq!(kind(address(&UNINITIALISED[2048])), Kind::Uninitialised);
    // This code runs in a thread, whose stack and arena are ordinary mappings.
    assert_eq!(kind(address(&on_stack)), Kind::Anonymous);
    let heap = kind(address(&*on_heap));
    assert!(matches!(heap, Kind::Heap | Kind::Anonymous), "{heap:?}");
}

#[test]
fn the_file_names_addresses_as_they_are_here() {
    let anatomy = this_process(Fold::None);
    let marks = || anatomy.parts.iter().flat_map(|part| &part.marks);
    let section = |name: &str| {
        marks()
            .find(|mark| mark.name == name)
            .expect("in every program")
    };
    let text = section(".text").address;
    assert!(text <= this_process as *const () as u64);
    assert_eq!(at(&anatomy, text).kind, Kind::Code);
    assert!(section(".data").address <= address(&INITIALISED));
    assert!(section(".bss").address <= address(&UNINITIALISED[0]));
    for part in &anatomy.parts {
        let sorted = part
            .marks
            .windows(2)
            .all(|pair| pair[0].address >= pair[1].address);
        assert!(sorted, "{part:?}");
    }
}

#[test]
fn parts_and_gaps_fill_the_address_space() {
    for fold in [Fold::Small, Fold::None] {
        let anatomy = this_process(fold);
        assert_eq!(anatomy.parts.first().unwrap().end, u64::MAX);
        assert_eq!(anatomy.parts.first().unwrap().kind, Kind::KernelSpace);
        assert_eq!(anatomy.parts.last().unwrap().start, 0);
        for pair in anatomy.parts.windows(2) {
            assert_eq!(pair[0].start, pair[1].end);
        }
        for part in &anatomy.parts {
            assert!(part.start < part.end);
            assert_eq!(
                part.mappings == 0,
                matches!(part.kind, Kind::Gap | Kind::KernelSpace)
            );
        }
        let stack = anatomy
            .parts
            .iter()
            .position(|part| part.kind == Kind::Stack);
        let heap = anatomy
            .parts
            .iter()
            .position(|part| part.kind == Kind::Heap);
        let code = anatomy
            .parts
            .iter()
            .position(|part| part.kind == Kind::Code);
        assert!(stack < heap && heap < code, "{stack:?} {heap:?} {code:?}");
    }
}

#[test]
fn a_list_has_every_mapping() {
    let pid = std::process::id() as i32;
    let shown = Shown::live(pid, AskKernel::Never, Smaps::Never).unwrap();
    let maps = Maps::new(&shown);
    assert_eq!(maps.mappings.len(), shown.process.mappings.len());
    let mut out = Vec::new();
    maps.write_text(&mut out, &|n| n.to_string()).unwrap();
    let text = String::from_utf8(out).unwrap();
    for mapping in &shown.process.mappings {
        assert!(
            text.contains(&format!("{:012x}", mapping.entry.start)),
            "{text}"
        );
    }
}

#[test]
fn a_process_that_is_not_there_is_an_error() {
    let nobody = Shown::live(i32::MAX, AskKernel::Never, Smaps::Never);
    assert!(matches!(nobody, Err(ProcessError::NoProcess(_))));
}
