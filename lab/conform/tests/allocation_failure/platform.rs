//! Makes each call to the platform fail in turn, in every step of a set of sequences; also tests
//! how faults and calls respond to I/O errors.

use super::{PROCESSES, RUNS, Run, check, end, for_each_step, play};
use std::collections::BTreeMap;
use vmarea::System;
use vmarea::fault::Faulted;
use vmarea::mm::{Layout, Limits};
use vmarea::page::Pte;
use vmarea::policy::Policy;
use vmarea::syscall::madvise::Advice;
use vmarea::syscall::mmap::MmapRequest;
use vmarea::types::call_flags::{MapFlags, MlockFlags, Prot};
use vmarea::types::{Errno, File, FileId, FileKind, MmId, PAGE_SIZE};
use vmarea_conform::model::{Look, Model};
use vmarea_conform::op::{Op, Step};
use vmarea_soft_platform::Machine;

/// Approximate number of calls to make fail in a step that makes more calls than this (for example,
/// one call for each part of a huge page).
const SOME: usize = 6;

/// Returns the indices of the platform calls in `step` that are to fail.
fn calls(run: Run, before: &[Step], step: &Step) -> impl Iterator<Item = usize> {
    let mut model = play(run, before);
    let first = model.machine().memory().failure().calls();
    model.apply(step);
    let count = model.machine().memory().failure().calls() - first;
    let every = count.div_ceil(SOME).max(1);
    (0..count).filter(move |nth| nth % every == 0 || nth + 1 == count)
}

/// Returns the first bytes of every present page.
fn bytes(model: &Model) -> Vec<(usize, u64, u64)> {
    let stamp = |process, addr| {
        let page = model.page(process, addr);
        u64::from_ne_bytes(page[..8].try_into().unwrap())
    };
    let of = |process| {
        let present = model.present(process, Look::All).into_iter();
        present.map(move |addr| (process, addr, stamp(process, addr)))
    };
    (0..PROCESSES).flat_map(of).collect()
}

/// Makes the `nth` call to the platform in `step` fail; returns its name and the check's result.
fn check_call(run: Run, before: &[Step], step: &Step, nth: usize) -> (String, Result<(), String>) {
    let mut model = play(run, before);
    let was = bytes(&model);
    let checked = check(&mut model, step, |model| {
        model
            .machine()
            .memory()
            .failure()
            .choose(nth, Errno::ENOMEM);
        model.apply(step)
    });
    let name = model.machine().memory().failure().failed();
    let same = || match step.op {
        // Calls may have changed pages before the failure, and another access may have succeeded.
        Op::Background(_) if bytes(&model) != was => Err("other bytes than before".into()),
        _ => Ok(()),
    };
    let found = checked.and_then(|()| same()).and_then(|()| end(&mut model));
    (name.expect("the call was made").into(), found)
}

#[test]
fn every_call_of_the_platform_may_fail() {
    let mut failures: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for run in RUNS {
        for seed in 0..run.seeds {
            for_each_step(run, seed, |steps, step| {
                for nth in calls(run, steps, step) {
                    let (name, found) = check_call(run, steps, step, nth);
                    if let Err(found) = found {
                        let (policy, after) = (run.policy.name, steps.len());
                        wrong.push(format!(
                            "{policy}, seed {seed}: {name} fails in {step} (after {after} steps): {found}"
                        ));
                    }
                    *failures.entry(name).or_default() += 1;
                }
            });
        }
    }
    println!("{failures:#?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
    let met: Vec<&str> = failures.keys().map(String::as_str).collect();
    let all = [
        "copy",
        "copy_file",
        "file_bring",
        "shared_anon",
        "swap_in",
        "swap_out",
        "zero",
    ];
    assert_eq!(met, all);
}

const BASE: u64 = 0x10_0000_0000;

/// Creates a process with a mapping of a file or of anonymous memory.
fn mapping(file: Option<File>) -> (Machine, MmId) {
    let system = System {
        swap: true,
        ..System::default()
    };
    let machine = Machine::new(Policy::LINUX, system);
    let mm = machine
        .space()
        .mm_create(Layout::default(), Limits::default());
    let mm = mm.unwrap();
    let kind = match file {
        Some(_) => MapFlags::SHARED,
        None => MapFlags::PRIVATE | MapFlags::ANONYMOUS,
    };
    let request = MmapRequest {
        addr: BASE,
        len: 4 * PAGE_SIZE,
        prot: Prot::READ | Prot::WRITE,
        flags: kind | MapFlags::FIXED,
        file,
        ..MmapRequest::default()
    };
    machine.space().mmap(mm, &request).unwrap();
    (machine, mm)
}

fn file() -> File {
    File::read_write(FileId(7), 7, FileKind::Shmem)
}

fn load(machine: &Machine, mm: MmId) -> (Faulted, u8) {
    let mut byte = [0];
    let faulted = machine.load(mm, BASE, &mut byte).unwrap();
    (faulted, byte[0])
}

#[test]
fn a_page_that_cannot_be_read_raises_sigbus() {
    let (machine, mm) = mapping(Some(file()));
    machine.memory().with_files(|files| files.resize(7, 4));
    let fails = |error| machine.memory().failure().choose(0, error);
    for (error, answer) in [
        (Errno::EIO, Faulted::NoPage),
        (Errno::EHWPOISON, Faulted::NoPage),
        (Errno::ENOMEM, Faulted::OutOfMemory),
    ] {
        fails(error);
        assert_eq!(load(&machine, mm).0, answer);
        machine.validate().unwrap();
    }
    assert_eq!(load(&machine, mm), (Faulted::Done, 0));
}

#[test]
fn a_swap_device_that_fails_loses_no_page() {
    let (machine, mm) = mapping(None);
    let space = machine.space();
    machine.store(mm, BASE, &[7]).unwrap();
    let child = space.fork(mm).unwrap();
    let fails = |error| machine.memory().failure().choose(0, error);
    fails(Errno::EIO);
    assert_eq!(space.swap_out(mm, BASE), Err(Errno::EIO));
    machine.validate().unwrap();
    assert_eq!(space.swap_slots_in_use(), 0);
    assert_eq!(load(&machine, mm).1, 7);
    let slot = space.swap_out(mm, BASE).unwrap();
    for process in [mm, child] {
        fails(Errno::EIO);
        assert_eq!(load(&machine, process).0, Faulted::NoPage);
        machine.validate().unwrap();
        let entry = space.mmap_read_lock(process).unwrap().pages().get(BASE);
        assert_eq!(entry, Pte::Swap { slot });
    }
    for process in [mm, child] {
        assert_eq!(load(&machine, process), (Faulted::Done, 7));
    }
    assert_eq!(space.swap_slots_in_use(), 0);
}

/// `mlock` returns EAGAIN if memory is short while it faults pages in, and ENOMEM on an I/O error.
#[test]
fn mlock_says_whether_another_attempt_may_succeed() {
    let (machine, mm) = mapping(None);
    let space = machine.space();
    let fails = |error| machine.memory().failure().choose(0, error);
    let lock = || space.mlock(mm, BASE, PAGE_SIZE, MlockFlags::empty());
    fails(Errno::ENOMEM);
    assert_eq!(lock(), Err(Errno::EAGAIN));
    assert_eq!(lock(), Ok(()));
    assert_eq!(space.munlock(mm, BASE, PAGE_SIZE), Ok(()));
    space.swap_out(mm, BASE).unwrap();
    fails(Errno::EIO);
    assert_eq!(lock(), Err(Errno::ENOMEM));
    assert_eq!(lock(), Ok(()));
    machine.validate().unwrap();
}

#[test]
fn a_hole_that_cannot_be_punched_leaves_the_pages() {
    let (machine, mm) = mapping(Some(file()));
    machine.memory().with_files(|files| files.resize(7, 4));
    machine.store(mm, BASE, &[7]).unwrap();
    machine.memory().failure().choose(0, Errno::EIO);
    let punch = || machine.space().madvise(mm, BASE, PAGE_SIZE, Advice::Remove);
    assert_eq!(punch(), Err(Errno::EIO));
    assert_eq!(load(&machine, mm).1, 7);
    assert_eq!(punch(), Ok(()));
    assert_eq!(load(&machine, mm).1, 0);
}
