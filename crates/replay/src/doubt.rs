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
    /// A userfaultfd may have filled pages.
    Userfault,
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
            Doubt::Userfault => "a userfaultfd may have filled pages",
            Doubt::File => "the open file of a mapping is not known",
            Doubt::Difference => "the list of mappings differed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Unsettled;
    use super::super::{Options, Replayer};
    use super::*;
    use std::collections::BTreeMap;
    use vmarea_trace::event::{
        Call, Event, Header, MmId, MmStart, Order, Origin, Perms, SnapKind, SnapReason, SnapVma,
        Snapshot, Tid,
    };
    use vmarea_trace::sysno;

    const MM: MmId = MmId(1);

    /// Returns a list of mappings with one page at each of these addresses.
    fn list(reason: SnapReason, exact: bool, addresses: &[u64]) -> Event {
        let perms = Perms {
            read: true,
            write: true,
            exec: false,
            shared: false,
        };
        let vma = |&start: &u64| SnapVma {
            start,
            end: start + 4096,
            perms,
            offset: 0,
            inode: None,
            kind: SnapKind::Plain,
            kernel: None,
        };
        Event::Snapshot(Snapshot {
            mm: MM,
            reason,
            t: 0,
            exact,
            info: None,
            vmas: addresses.iter().map(vma).collect(),
        })
    }

    fn map_shadow_stack() -> Event {
        Event::Call(Call {
            tid: Tid(1),
            mm: MM,
            nr: sysno::MAP_SHADOW_STACK,
            args: [0, 4096, 0, 0, 0, 0],
            ret: 0x30_0000,
            t: 0,
            order: Order::Exact,
            file: None,
            data: Vec::new(),
        })
    }

    #[test]
    fn each_undecided_result_and_each_resync_is_counted_under_its_reason() {
        use SnapReason::{Checkpoint, Exec, Exit};
        let (mm, origin) = (MM, Origin::Exec);
        let events = [
            Event::MmStart(MmStart { mm, origin, t: 0 }),
            list(Exec, true, &[0x10_0000]),
            list(Checkpoint, false, &[0x20_0000]),
            list(Checkpoint, true, &[0x20_0000]),
            map_shadow_stack(),
            list(Exit, true, &[0x20_0000, 0x30_0000]),
        ];
        let header = Header {
            page_size: 4096,
            ..Header::default()
        };
        let mut replayer = Replayer::new(&header, &Options::default()).unwrap();
        for event in &events {
            replayer.event(event).unwrap();
        }
        let verify = replayer.finish().verify;
        let opaque = Doubt::Opaque("map_shadow_stack");
        let expected = [
            (Doubt::ListInMotion, 2, 0),
            (Doubt::Difference, 0, 1),
            (opaque, 1, 1),
        ];
        let expected = expected.map(|(doubt, undecided, resyncs)| {
            (doubt.to_string(), Unsettled { undecided, resyncs })
        });
        assert_eq!(verify.reasons, BTreeMap::from(expected));
        assert_eq!((verify.undecided, verify.resyncs), (3, 2));
    }
}
