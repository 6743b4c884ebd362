//! Puts calls of unknown order into an order that fits the addresses that the kernel chose.
//!
//! The address that the kernel chose for a mapping shows which ranges were free at that moment: the
//! mapping came after the call that freed the chosen range, and before any call that freed a range
//! that the search would have preferred. Therefore a mapping that does not fit yet is deferred
//! until later calls in the trace make it fit. An unmapping is deferred until a mapping needs the
//! range that it frees, or until the next event of its thread.

use super::Replayer;
use super::action::Action;
use super::apply::place;
use vmarea::syscall::Syscall;
use vmarea::syscall::mmap::Placement;
use vmarea_trace::event::{Call, MmId, Tid};

type Waiting = (Action, Call);

impl Replayer {
    /// Checks whether an overlapping call has to wait; defers the call if it has to.
    ///
    /// Applies the deferred unmappings that must have come before the call.
    pub(super) fn waits(&mut self, action: &Action, call: &Call) -> bool {
        if let Some(placed) = placed(action, call) {
            self.act_deferred(call.mm, |(action, _)| meets(unmapped(action), placed));
        }
        let waits = match unmapped(action) {
            // The call is deferred unless a deferred mapping needs this range.
            range @ Some(_) if call.ret == 0 => !self.known.get(&call.mm).is_some_and(|known| {
                let mut waiting = known.deferred.iter();
                waiting.any(|(action, call)| placed(action, call).is_some_and(|p| meets(range, p)))
            }),
            _ => !self.worlds[0].is_plausible(action, call),
        };
        if waits && let Some(known) = self.known.get_mut(&call.mm) {
            known.deferred.push((action.clone(), call.clone()));
            self.waiting += 1;
        }
        waits
    }

    /// Applies the deferred mappings that fit now.
    pub(super) fn retry(&mut self, mm: MmId) {
        while self.waiting > 0 {
            let (Some(known), world) = (self.known.get_mut(&mm), &mut self.worlds[0]) else {
                return;
            };
            let fits = |(action, call): &Waiting| {
                unmapped(action).is_none() && world.is_plausible(action, call)
            };
            let Some(at) = known.deferred.iter().position(fits) else {
                return;
            };
            let (action, call) = known.deferred.remove(at);
            self.waiting -= 1;
            self.act(&action, &call);
        }
    }

    /// Applies the calls that are still deferred: all, or only those of thread `of`.
    pub(super) fn settle(&mut self, mm: MmId, of: Option<Tid>) {
        self.act_deferred(mm, |(_, call)| of.is_none_or(|tid| call.tid == tid));
    }

    /// Applies all deferred unmappings, because the next call is known to have come after them.
    pub(super) fn settle_unmaps(&mut self, mm: MmId) {
        self.act_deferred(mm, |(action, _)| unmapped(action).is_some());
    }

    fn act_deferred(&mut self, mm: MmId, which: impl Fn(&Waiting) -> bool) {
        if self.waiting == 0 {
            return;
        }
        while let Some(known) = self.known.get_mut(&mm)
            && let Some(at) = known.deferred.iter().position(&which)
        {
            let (action, call) = known.deferred.remove(at);
            self.waiting -= 1;
            self.act(&action, &call);
        }
    }
}

/// First address of a range, and the address after its last byte.
type Range = (u64, u64);

/// Returns the range that a call frees.
fn unmapped(action: &Action) -> Option<Range> {
    match *action {
        Action::Call(Syscall::Munmap { addr, len }) => Some((addr, addr.saturating_add(len))),
        _ => None,
    }
}

/// Returns the range that the kernel chose for a mapping.
fn placed(action: &Action, call: &Call) -> Option<Range> {
    let len = match *action {
        Action::Call(Syscall::Mmap(ref request)) => request.len,
        Action::Call(Syscall::Shmat(ref request)) => request.len,
        Action::Call(Syscall::Mremap(ref request)) => request.new_len,
        _ => return None,
    };
    match place(call.ret) {
        Placement::At(there) => Some((there, there.saturating_add(len))),
        Placement::Search | Placement::Arena(_) => None,
    }
}

fn meets(freed: Option<Range>, placed: Range) -> bool {
    freed.is_some_and(|freed| freed.0 < placed.1 && placed.0 < freed.1)
}

#[cfg(test)]
mod tests {
    use super::super::Report;
    use super::*;
    use vmarea_trace::event::{
        Event, FileId, FileRef, Header, Inode, InodeId, InodeKind, MmInfo, MmStart, Order, Origin,
        SnapReason, Snapshot,
    };
    use vmarea_trace::sysno;

    const MM: MmId = MmId(1);
    const BASE: u64 = 0x7f00_0010_0000;
    const PAGE: u64 = 0x1000;
    const HUGE: u64 = 0x20_0000;

    fn call(tid: i32, nr: u32, args: [u64; 6], ret: u64, order: Order) -> Event {
        Event::Call(Call {
            tid: Tid(tid),
            mm: MM,
            nr,
            args,
            ret: ret as i64,
            t: 0,
            order,
            file: None,
            data: Vec::new(),
        })
    }

    fn map(tid: i32, pages: u64, there: u64, order: Order) -> Event {
        let args = [0, pages * PAGE, 3, 0x22, u64::MAX, 0];
        call(tid, sysno::MMAP, args, there, order)
    }

    fn unmap(tid: i32, addr: u64, pages: u64, order: Order) -> Event {
        let args = [addr, pages * PAGE, 0, 0, 0, 0];
        call(tid, sysno::MUNMAP, args, 0, order)
    }

    /// Returns an event that attaches a segment as large as two huge pages, with hint `wish`.
    fn attach((tid, file): (i32, u32), wish: u64, there: u64, order: Order) -> Event {
        let args = [9, wish, 0, 0, 0, 0];
        let mut event = call(tid, sysno::SHMAT, args, there, order);
        if let Event::Call(call) = &mut event {
            call.file = Some(FileRef {
                inode: InodeId(1),
                file: FileId(file),
                open_flags: 2,
                seals: 0,
                size: 2 * HUGE,
            });
        }
        event
    }

    fn detach(tid: i32, addr: u64, ret: i64, order: Order) -> Event {
        call(tid, sysno::SHMDT, [addr, 0, 0, 0, 0, 0], ret as u64, order)
    }

    /// Replays calls in an empty address space whose mappings are placed top-down from `BASE`.
    fn replay(calls: &[Event]) -> Report {
        let header = Header {
            page_size: 4096,
            ..Header::default()
        };
        let start = MmStart {
            mm: MM,
            origin: Origin::Exec,
            t: 0,
        };
        let info = MmInfo {
            mmap_base: Some(BASE),
            ..MmInfo::default()
        };
        let snapshot = Snapshot {
            mm: MM,
            reason: SnapReason::Exec,
            t: 0,
            exact: true,
            info: Some(info),
            vmas: Vec::new(),
        };
        let segment = Inode {
            id: InodeId(1),
            dev: 0,
            ino: 9,
            kind: InodeKind::Hugetlb,
            fs_magic: 0x9584_58f6,
            mount_flags: 0,
            size: 2 * HUGE,
            path: "/SYSV00000000 (deleted)".to_owned(),
        };
        let begin = [
            Event::Inode(segment),
            Event::MmStart(start),
            Event::Snapshot(snapshot),
        ];
        Replayer::report(&header, begin.iter().chain(calls))
    }

    fn judged(calls: &[Event]) -> (u64, u64) {
        let verify = replay(calls).verify;
        assert!(verify.results_compared >= calls.len() as u64, "{verify:?}");
        (verify.differences, verify.undecided)
    }

    #[test]
    fn a_mapping_that_does_not_use_a_hole_came_before_it() {
        let (exact, both) = (Order::Exact, Order::Overlapping);
        let calls = [
            map(1, 4, BASE - 4 * PAGE, exact),
            unmap(2, BASE - 3 * PAGE, 1, both),
            map(1, 1, BASE - 5 * PAGE, both),
            map(1, 1, BASE - 3 * PAGE, exact),
        ];
        assert_eq!(judged(&calls), (0, 0));
    }

    #[test]
    fn a_mapping_that_uses_a_hole_came_after_it() {
        let (exact, both) = (Order::Exact, Order::Overlapping);
        let hole = BASE - 3 * PAGE;
        let begin = map(1, 4, BASE - 4 * PAGE, exact);
        for calls in [
            [
                begin.clone(),
                unmap(2, hole, 1, both),
                map(1, 1, hole, both),
            ],
            [begin, map(1, 1, hole, both), unmap(2, hole, 1, both)],
        ] {
            let calls = [&calls[..], &[map(2, 1, BASE - 5 * PAGE, exact)]].concat();
            assert_eq!(judged(&calls), (0, 0), "{calls:?}");
        }
    }

    #[test]
    fn what_waited_in_vain_is_done() {
        let both = Order::Overlapping;
        let calls = [
            map(1, 4, BASE - 4 * PAGE, Order::Exact),
            unmap(2, BASE - 4 * PAGE, 4, both),
            map(2, 1, BASE - PAGE, Order::Exact),
        ];
        assert_eq!(judged(&calls), (0, 0));
    }

    #[test]
    fn a_segment_of_huge_pages_is_detached_where_it_was_attached_last() {
        const EINVAL: i64 = -22;
        let exact = Order::Exact;
        let top = (BASE - 1) & !(HUGE - 1);
        let (first, second) = (top - 2 * HUGE, top - 4 * HUGE);
        let calls = [
            map(1, 1, BASE - PAGE, exact),
            attach((1, 1), 0, first, exact),
            attach((1, 2), 0, second, exact),
            detach(1, first, 0, exact),
            // The segment is no longer attached.
            detach(1, first, EINVAL, exact),
            attach((1, 3), first, first, exact),
            detach(1, second, 0, exact),
            detach(1, first, 0, exact),
        ];
        assert_eq!(judged(&calls), (0, 0));
    }

    #[test]
    fn a_segment_attached_in_the_place_of_another_came_after_it() {
        let (exact, both) = (Order::Exact, Order::Overlapping);
        let top = (BASE - 1) & !(HUGE - 1);
        let there = top - 2 * HUGE;
        let begin = [map(1, 1, BASE - PAGE, exact), map(1, 2 * 512, there, exact)];
        let fits = [attach((2, 1), 0, there, both), unmap(1, there, 1024, both)];
        let calls = [&begin[..], &fits, &[detach(2, there, 0, exact)]].concat();
        assert_eq!(judged(&calls), (0, 0));
    }
}
