//! Tests with real children whose faults are known, read through real rings.

use super::sizes::parse_cpu_list;
use super::*;
use vmarea_linux_sys::child::{Child, Inside};
use vmarea_process::view::{KernelView, View};

const PAGES: u64 = 5_000;

fn page() -> u64 {
    rustix::param::page_size() as u64
}

/// Accesses pages in order; every third access is a read.
fn touch(inside: &Inside, base: u64, pages: u64) {
    for n in 0..pages {
        let addr = base + n * page() + n % page();
        if n % 3 == 0 {
            inside.read(addr);
        } else {
            inside.write(addr);
        }
    }
}

/// Starts a child that accesses a fresh mapping after it is told to continue.
fn toucher() -> (Child, u64) {
    let mut child = Child::start(|inside| {
        let base = inside.map(PAGES as usize);
        inside.say(base);
        inside.wait();
        touch(inside, base, PAGES);
        inside.say(0);
        inside.wait();
    });
    let base = child.hear();
    (child, base)
}

/// Returns the tracepoint source for root, or prints why it cannot be tested here.
fn tracepoints() -> Option<Source> {
    match Tracepoints::find() {
        Ok(points) if rustix::process::geteuid().is_root() => Some(Source::Tracepoints(points)),
        Ok(_) => {
            eprintln!("skipped: not root");
            None
        }
        Err(why) => {
            eprintln!("skipped: {why}");
            None
        }
    }
}

/// Returns both sources that show everything, for root.
fn whole_sources() -> Vec<Source> {
    let points = tracepoints();
    points
        .into_iter()
        .flat_map(|points| [points, Source::Programs])
        .collect()
}

fn open_with(pid: i32, source: Source, bytes: usize) -> Result<Samples, SamplesError> {
    match source {
        Source::Programs => Samples::by_programs(pid, bytes),
        _ => Samples::open_source(pid, Start::Now, source, bytes),
    }
}

fn open(pid: i32, source: Source) -> Option<Samples> {
    match open_with(pid, source, 1 << 20) {
        Ok(samples) => Some(samples),
        Err(error @ (SamplesError::Permission { .. } | SamplesError::Unsupported)) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns the faults in the `pages` pages at `base`. Panics if any sample was lost.
fn faults(samples: &[Sample], base: u64, pages: u64) -> Vec<Sample> {
    let within = base..base + pages * page();
    assert!(samples.is_sorted_by_key(Sample::t));
    samples
        .iter()
        .filter(|sample| match sample {
            Sample::Fault { addr, .. } => within.contains(addr),
            Sample::LockTaken { .. } => false,
            Sample::Lost { .. } => panic!("{sample:?}"),
        })
        .copied()
        .collect()
}

fn expect_touches(faults: &[Sample], base: u64, child: i32, write: impl Fn(u64) -> Option<bool>) {
    assert_eq!(faults.len() as u64, PAGES);
    for (n, fault) in (0..).zip(faults) {
        let expected = Sample::Fault {
            t: fault.t(),
            pid: child,
            tid: child,
            addr: base + n * page() + n % page(),
            write: write(n),
            exec: false,
            present: false,
            kernel: false,
        };
        assert_eq!(*fault, expected);
    }
}

#[test]
fn every_touch_of_a_fresh_page_is_one_sample() {
    whole_sources()
        .into_iter()
        .for_each(every_touch_of_a_fresh_page_is_one_sample_of);
}

fn every_touch_of_a_fresh_page_is_one_sample_of(source: Source) {
    let (mut child, base) = toucher();
    let Some(mut samples) = open(child.pid(), source) else {
        return;
    };
    child.go_on();
    child.hear();
    assert_eq!(samples.source(), FaultSource::Tracepoints);
    let mut out = Vec::new();
    samples.finish(&mut out).unwrap();
    let seen = faults(&out, base, PAGES);
    expect_touches(&seen, base, child.pid(), |n| Some(n % 3 != 0));
}

#[test]
fn an_added_task_is_seen_like_the_first() {
    whole_sources()
        .into_iter()
        .for_each(an_added_task_is_seen_like_the_first_of);
}

fn an_added_task_is_seen_like_the_first_of(source: Source) {
    let mut both = [toucher(), toucher()];
    let Some(mut samples) = open(both[0].0.pid(), source) else {
        return;
    };
    samples.add(both[1].0.pid()).unwrap();
    both.iter_mut().for_each(|(child, _)| child.go_on());
    both.iter_mut()
        .for_each(|(child, _)| assert_eq!(child.hear(), 0));
    let mut out = Vec::new();
    samples.finish(&mut out).unwrap();
    for (child, base) in &both {
        let own: Vec<_> = out
            .iter()
            .filter(|s| matches!(s, Sample::Fault { pid, .. } if *pid == child.pid()))
            .copied()
            .collect();
        let seen = faults(&own, *base, PAGES);
        expect_touches(&seen, *base, child.pid(), |n| Some(n % 3 != 0));
    }
    assert!(
        !out.iter()
            .any(|sample| matches!(sample, Sample::Lost { .. }))
    );
}

#[test]
fn a_ring_that_fills_wakes_its_reader() {
    whole_sources()
        .into_iter()
        .for_each(a_ring_that_fills_wakes_its_reader_of);
}

fn a_ring_that_fills_wakes_its_reader_of(source: Source) {
    let (mut child, _) = toucher();
    let samples = open_with(child.pid(), source, 1 << 16).unwrap();
    child.go_on();
    let fds: Vec<_> = samples.poll_fds().collect();
    let mut fds: Vec<_> = fds
        .iter()
        .map(|fd| rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN))
        .collect();
    let ready = rustix::event::poll(&mut fds, None).unwrap();
    assert!(ready >= 1);
    child.hear();
}

#[test]
fn the_software_event_sees_the_same_but_for_the_access() {
    let (mut child, base) = toucher();
    let Some(mut samples) = open(child.pid(), Source::SoftwareUser) else {
        return;
    };
    child.go_on();
    child.hear();
    let mut out = Vec::new();
    samples.finish(&mut out).unwrap();
    expect_touches(&faults(&out, base, PAGES), base, child.pid(), |_| None);
}

#[test]
fn drains_while_it_runs_give_the_same_in_order() {
    whole_sources()
        .into_iter()
        .for_each(drains_while_it_runs_give_the_same_in_order_of);
}

fn drains_while_it_runs_give_the_same_in_order_of(source: Source) {
    let (mut child, base) = toucher();
    let Some(mut samples) = open(child.pid(), source) else {
        return;
    };
    child.go_on();
    let (mut out, mut before) = (Vec::new(), 0);
    let within = base..base + PAGES * page();
    let mut found = 0;
    while found < PAGES {
        let from = out.len();
        let watermark = samples.drain(&mut out);
        let new = &out[from..];
        assert!(new.iter().all(|s| before <= s.t() && s.t() < watermark));
        before = watermark;
        found += new
            .iter()
            .filter(|s| matches!(s, Sample::Fault { addr, .. } if within.contains(addr)))
            .count() as u64;
    }
    samples.finish(&mut out).unwrap();
    let seen = faults(&out, base, PAGES);
    expect_touches(&seen, base, child.pid(), |n| Some(n % 3 != 0));
    assert_eq!(samples.late(), 0);
}

#[test]
fn a_fork_is_included_and_breaks_copy_on_write() {
    whole_sources()
        .into_iter()
        .for_each(a_fork_is_included_and_breaks_copy_on_write_of);
}

fn a_fork_is_included_and_breaks_copy_on_write_of(source: Source) {
    let mut child = Child::start(|inside| {
        let base = inside.map(20);
        (0..20).for_each(|n| inside.write(base + n * page()));
        inside.say(base);
        inside.wait();
        inside.fork(|inside| {
            (0..20).for_each(|n| inside.write(base + n * page()));
            inside.say(std::process::id().into());
        });
        inside.say(0);
        inside.wait();
    });
    let base = child.hear();
    let Some(mut samples) = open(child.pid(), source) else {
        return;
    };
    child.go_on();
    let grandchild = child.hear() as i32;
    child.hear();
    let mut out = Vec::new();
    samples.finish(&mut out).unwrap();
    let copied: Vec<_> = faults(&out, base, 20)
        .into_iter()
        .filter_map(|sample| match sample {
            Sample::Fault {
                pid,
                addr,
                write,
                present,
                ..
            } => Some((pid, addr, write, present)),
            _ => None,
        })
        .collect();
    let expected: Vec<_> = (0..20)
        .map(|n| (grandchild, base + n * page(), Some(true), true))
        .collect();
    assert_eq!(copied, expected);
    // Forking takes the lock of the old mm for writing.
    let mut locked = out.iter().filter_map(|sample| match sample {
        Sample::LockTaken {
            pid,
            write: true,
            mm,
            ..
        } if *pid == child.pid() => Some(*mm),
        _ => None,
    });
    match KernelView::open() {
        Ok(kernel) => {
            let mut view = View::default();
            kernel.read(child.pid(), &mut view).unwrap();
            assert!(locked.any(|mm| mm == view.mm.mm));
        }
        Err(_) => assert!(locked.any(|mm| mm != 0)),
    }
}

#[test]
fn what_does_not_fit_is_counted_to_the_last() {
    whole_sources()
        .into_iter()
        .for_each(what_does_not_fit_is_counted_to_the_last_of);
}

fn what_does_not_fit_is_counted_to_the_last_of(source: Source) {
    let (mut child, base) = toucher();
    let samples = open_with(child.pid(), source, page() as usize);
    let mut samples = samples.unwrap();
    child.go_on();
    child.hear();
    let mut out = Vec::new();
    samples.finish(&mut out).unwrap();
    let within = base..base + PAGES * page();
    let (mut seen, mut lost) = (0, 0);
    for sample in &out {
        match sample {
            Sample::Fault { addr, .. } if within.contains(addr) => seen += 1,
            Sample::Lost { count, .. } => lost += count,
            _ => {}
        }
    }
    assert!(seen < PAGES, "the ring was not small enough");
    assert!(seen + lost >= PAGES, "{seen} seen, {lost} lost");
}

#[test]
fn nothing_is_sampled_before_the_exec() {
    let Some(source) = tracepoints() else { return };
    let mut child = Child::start(|inside| {
        let base = inside.map(10);
        inside.say(base);
        inside.wait();
        (0..10).for_each(|n| inside.write(base + n * page()));
        inside.exec(c"/bin/true");
    });
    let base = child.hear();
    let mut samples = Samples::open_source(child.pid(), Start::Exec, source, 1 << 20).unwrap();
    child.go_on();
    let pid = child.pid();
    child.wait();
    let mut out = Vec::new();
    samples.finish(&mut out).unwrap();
    assert!(faults(&out, base, 10).is_empty());
    assert!(
        out.iter()
            .any(|s| matches!(s, Sample::Fault { pid: p, exec: true, .. } if *p == pid))
    );
}

#[test]
fn a_task_that_has_gone_is_an_error() {
    let error = Samples::open(i32::MAX).unwrap_err();
    assert!(matches!(
        error,
        SamplesError::NoSuchTask(_) | SamplesError::Permission { .. }
    ));
}

#[test]
fn cpu_lists() {
    assert_eq!(parse_cpu_list("0-2,5"), Some(vec![0, 1, 2, 5]));
    assert_eq!(parse_cpu_list("0"), Some(vec![0]));
    assert_eq!(parse_cpu_list("0-99999999999"), None);
    assert_eq!(parse_cpu_list("0-4000000000"), None);
    assert_eq!(parse_cpu_list(""), None);
}
