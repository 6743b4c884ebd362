//! Reasons why a result is undecided, or why a list of mappings was imported again.

use std::fmt;

/// Reason why the trace does not determine a result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Doubt {
    /// The base of the search for free addresses was derived from this result.
    Base,
    /// Threads ran while the kernel's list of mappings was read.
    ListInMotion,
    /// Calls or faults overlapped.
    Order,
    /// The recorder had no permission to observe all page faults.
    Faults,
    /// Events were lost.
    Lost,
    /// The recorder had no permission to read the kernel's own view of the mappings.
    KernelView,
    /// A call with this name is not modelled.
    Opaque(&'static str),
    /// A setting of the machine was written at that time.
    Setting,
    /// A userfaultfd may have filled pages.
    Userfault,
    /// A thread may have changed its rights to memory with a protection key, by `WRPKRU`.
    Key,
    /// Something may have written to memory that is not writable, through `/proc/PID/mem`.
    Forced,
    /// The open file description of a mapping is not known.
    File,
    /// Not a doubt: the core's list differed from the kernel's.
    Difference,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doubt::Base => "the base of the search for free addresses is not recorded",
            Doubt::ListInMotion => "threads ran while the list of mappings was read",
            Doubt::Order => "calls or faults overlapped in an unknown order",
            Doubt::Faults => "not all page faults are recorded",
            Doubt::Lost => "events were lost",
            Doubt::KernelView => "the kernel's own view of the mappings is not recorded",
            Doubt::Opaque(what) => return write!(f, "a call is not modelled: {what}"),
            Doubt::Setting => "a setting of the machine was written at that time",
            Doubt::Userfault => "a userfaultfd may have filled pages",
            Doubt::Key => "the rights of a protection key are not recorded",
            Doubt::Forced => "writes through /proc/PID/mem are not recorded",
            Doubt::File => "the open file of a mapping is not known",
            Doubt::Difference => "the list of mappings differed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Replayer;
    use super::super::report::{Unsettled, Verify};
    use super::*;
    use std::collections::BTreeMap;
    use vmarea::types::VmFlags;
    use vmarea_trace::event::{
        Access, Call, Event, Fault, FaultSource, Header, KernelVma, MmId, MmStart, Order, Origin,
        Perms, SnapKind, SnapReason, SnapVma, Snapshot, Tid,
    };
    use vmarea_trace::sysno;

    const MM: MmId = MmId(1);
    const THERE: u64 = 0x10_0000;

    /// Returns a page of private anonymous memory with these of the flags of a VMA.
    fn page(start: u64, flags: VmFlags) -> SnapVma {
        SnapVma {
            start,
            end: start + 4096,
            perms: Perms {
                read: true,
                write: flags.contains(VmFlags::WRITE),
                exec: flags.contains(VmFlags::EXEC),
                shared: false,
            },
            offset: 0,
            inode: None,
            kind: SnapKind::Plain,
            kernel: None,
        }
    }

    /// Returns a page as the kernel's own view shows it.
    fn seen(flags: VmFlags, anon_vma: u64) -> SnapVma {
        let kernel = KernelVma {
            pgoff: THERE >> 12,
            flags: (flags | VmFlags::READ | VmFlags::MAYRWX).bits(),
            anon_vma,
            root: anon_vma,
            chain_singular: true,
            file: 0,
            policy: false,
        };
        SnapVma {
            kernel: Some(kernel),
            ..page(THERE, flags)
        }
    }

    fn list(reason: SnapReason, exact: bool, vmas: Vec<SnapVma>) -> Event {
        Event::Snapshot(Snapshot {
            mm: MM,
            reason,
            t: 0,
            exact,
            info: None,
            vmas,
        })
    }

    fn call(nr: u32, args: [u64; 6], ret: i64) -> Event {
        Event::Call(Call {
            tid: Tid(1),
            mm: MM,
            nr,
            args,
            ret,
            t: 0,
            order: Order::Exact,
            file: None,
            data: Vec::new(),
        })
    }

    fn write() -> Event {
        Event::Fault(Fault {
            tid: Tid(1),
            mm: MM,
            addr: THERE,
            access: Access::Write,
            kernel: false,
            t: 0,
            order: Order::Exact,
        })
    }

    /// Replays a complete recording that begins with this list; returns the comparison.
    fn replay(first: Vec<SnapVma>, events: &[Event]) -> Verify {
        let (mm, origin) = (MM, Origin::Exec);
        let begin = [
            Event::MmStart(MmStart { mm, origin, t: 0 }),
            list(SnapReason::Exec, true, first),
        ];
        let header = Header {
            page_size: 4096,
            faults: FaultSource::Tracepoints,
            ..Header::default()
        };
        Replayer::report(&header, begin.iter().chain(events)).verify
    }

    /// Replays these events and a last list of one page; returns the number of differences, and that
    /// of undecided results for this reason.
    fn judged(doubt: Doubt, first: SnapVma, events: &[Event], last: SnapVma) -> (u64, u64) {
        let last = [list(SnapReason::Exit, true, vec![last])];
        let verify = replay(vec![first], &[events, &last].concat());
        let reason = verify.reasons.get(&doubt.to_string());
        (verify.differences, reason.map_or(0, |r| r.undecided))
    }

    #[test]
    fn each_undecided_result_and_each_resync_is_counted_under_its_reason() {
        use SnapReason::{Checkpoint, Exit};
        let pages = |addresses: &[u64]| {
            addresses
                .iter()
                .map(|at| page(*at, VmFlags::WRITE))
                .collect()
        };
        let events = [
            list(Checkpoint, false, pages(&[0x20_0000])),
            list(Checkpoint, true, pages(&[0x20_0000])),
            call(sysno::MAP_SHADOW_STACK, [0, 4096, 0, 0, 0, 0], 0x30_0000),
            list(Exit, true, pages(&[0x20_0000, 0x30_0000])),
        ];
        let verify = replay(pages(&[THERE]), &events);
        let expected = [
            (Doubt::ListInMotion, 2, 0),
            (Doubt::Difference, 0, 1),
            (Doubt::Opaque("map_shadow_stack"), 1, 1),
        ];
        let expected = expected.map(|(doubt, undecided, resyncs)| {
            (doubt.to_string(), Unsettled { undecided, resyncs })
        });
        assert_eq!(verify.reasons, BTreeMap::from(expected));
        assert_eq!((verify.undecided, verify.resyncs), (3, 2));
    }

    #[test]
    fn only_memory_that_is_not_writable_may_have_been_written_unseen() {
        let forced = |flags| judged(Doubt::Forced, seen(flags, 0), &[], seen(flags, 5));
        assert_eq!(forced(VmFlags::EXEC), (0, 1));
        assert_eq!(forced(VmFlags::WRITE), (1, 0));
    }

    #[test]
    fn a_write_to_memory_with_a_key_may_have_been_refused() {
        let refused = |flags| judged(Doubt::Key, seen(flags, 0), &[write()], seen(flags, 0));
        assert_eq!(refused(VmFlags::WRITE | VmFlags::from_pkey(1)), (0, 1));
        assert_eq!(refused(VmFlags::WRITE), (1, 0));
    }

    #[test]
    fn advice_about_sealed_memory_with_a_key_may_be_refused() {
        const DONTNEED: u64 = 4;
        const EPERM: i64 = -1;
        let advised = |flags: VmFlags, ret| {
            let sealed = || seen(flags | VmFlags::WRITE | VmFlags::SEALED, 0);
            let advice = [call(sysno::MADVISE, [THERE, 4096, DONTNEED, 0, 0, 0], ret)];
            judged(Doubt::Key, sealed(), &advice, sealed())
        };
        // A thread has no rights to a key that it has not allocated, unless by WRPKRU.
        assert_eq!(advised(VmFlags::from_pkey(1), 0), (0, 1));
        assert_eq!(advised(VmFlags::empty(), EPERM), (1, 0));
    }
}
