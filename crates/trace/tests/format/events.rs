//! Arbitrary headers and events for property tests.
//!
//! Values are close to each other, as in real traces, or at the limits of their types.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use vmarea_trace::event::*;

pub fn headers() -> impl Strategy<Value = Header> {
    (
        (".*", ".*", any::<u32>()),
        btree_map(".*", ".*", 0..4),
        vec(".*", 0..4),
        prop_oneof![
            Just(FaultSource::None),
            Just(FaultSource::Tracepoints),
            Just(FaultSource::SoftwareUser)
        ],
        any::<bool>(),
        ".*",
        option::of(any::<u64>()),
    )
        .prop_map(
            |(
                (kernel_release, machine, page_size),
                settings,
                command,
                faults,
                kernel_view,
                writer,
                started_unix_ms,
            )| {
                Header {
                    kernel_release,
                    machine,
                    page_size,
                    settings,
                    command,
                    faults,
                    kernel_view,
                    writer,
                    started_unix_ms,
                }
            },
        )
}

/// Generates the events of a few threads, ending like a complete trace.
pub fn traces(len: usize) -> impl Strategy<Value = Vec<Event>> {
    (vec(events(), 0..len), any::<i32>(), numbers()).prop_map(|(mut events, status, t)| {
        events.push(Event::End { status, t });
        events
    })
}

pub fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        10 => faults().prop_map(Event::Fault),
        5 => calls().prop_map(Event::Call),
        2 => touches().prop_map(Event::Touch),
        1 => snapshots().prop_map(Event::Snapshot),
        3 => rare(),
    ]
}

/// Generates small numbers, numbers near a heap page, and arbitrary ones.
fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..64,
        (0u64..1 << 20).prop_map(|n| 0x7f00_0000_0000 + n),
        any::<u64>(),
        Just(u64::MAX),
    ]
}

fn tids() -> impl Strategy<Value = Tid> {
    prop_oneof![10 => (1i32..5).prop_map(Tid), 1 => any::<i32>().prop_map(Tid)]
}

fn mms() -> impl Strategy<Value = MmId> {
    prop_oneof![10 => (1u32..4).prop_map(MmId), 1 => any::<u32>().prop_map(MmId)]
}

fn orders() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Exact), Just(Order::Overlapping)]
}

fn accesses() -> impl Strategy<Value = Access> {
    prop_oneof![
        Just(Access::Read),
        Just(Access::Write),
        Just(Access::Exec),
        Just(Access::Unknown)
    ]
}

fn faults() -> impl Strategy<Value = Fault> {
    (
        tids(),
        mms(),
        numbers(),
        accesses(),
        any::<bool>(),
        numbers(),
        orders(),
    )
        .prop_map(|(tid, mm, addr, access, kernel, t, order)| Fault {
            tid,
            mm,
            addr,
            access,
            kernel,
            t,
            order,
        })
}

fn touches() -> impl Strategy<Value = Touch> {
    (
        tids(),
        mms(),
        numbers(),
        numbers(),
        accesses(),
        numbers(),
        orders(),
    )
        .prop_map(|(tid, mm, addr, len, access, t, order)| Touch {
            tid,
            mm,
            addr,
            len,
            access,
            t,
            order,
        })
}

fn file_refs() -> impl Strategy<Value = FileRef> {
    (
        any::<u32>(),
        any::<u32>(),
        any::<u32>(),
        any::<u32>(),
        numbers(),
    )
        .prop_map(|(inode, file, open_flags, seals, size)| FileRef {
            inode: InodeId(inode),
            file: FileId(file),
            open_flags,
            seals,
            size,
        })
}

fn calls() -> impl Strategy<Value = Call> {
    (
        (tids(), mms()),
        prop_oneof![10 => 0u32..12, 1 => any::<u32>()],
        proptest::array::uniform6(numbers()),
        prop_oneof![-40i64..40, any::<i64>()],
        numbers(),
        orders(),
        option::of(file_refs()),
        prop_oneof![3 => Just(Vec::new()), 1 => vec(any::<u8>(), 0..40)],
    )
        .prop_map(|((tid, mm), nr, args, ret, t, order, file, data)| Call {
            tid,
            mm,
            nr,
            args,
            ret,
            t,
            order,
            file,
            data,
        })
}

fn kernel_vmas() -> impl Strategy<Value = KernelVma> {
    (
        numbers(),
        numbers(),
        numbers(),
        numbers(),
        any::<bool>(),
        numbers(),
        any::<bool>(),
    )
        .prop_map(
            |(pgoff, flags, anon_vma, root, chain_singular, file, policy)| KernelVma {
                pgoff,
                flags,
                anon_vma,
                root,
                chain_singular,
                file,
                policy,
            },
        )
}

fn snap_vmas() -> impl Strategy<Value = SnapVma> {
    let kinds = prop_oneof![
        Just(SnapKind::Plain),
        Just(SnapKind::Heap),
        Just(SnapKind::Stack),
        ".*".prop_map(SnapKind::Special),
        ".*".prop_map(SnapKind::Named),
    ];
    let perms = any::<(bool, bool, bool, bool)>().prop_map(|(read, write, exec, shared)| Perms {
        read,
        write,
        exec,
        shared,
    });
    (
        numbers(),
        numbers(),
        perms,
        numbers(),
        option::of((0u32..4).prop_map(InodeId)),
        kinds,
        option::of(kernel_vmas()),
    )
        .prop_map(|(start, end, perms, offset, inode, kind, kernel)| SnapVma {
            start,
            end,
            perms,
            offset,
            inode,
            kind,
            kernel,
        })
}

fn mm_infos() -> impl Strategy<Value = MmInfo> {
    let some = || option::of(numbers());
    (
        (some(), some(), some(), some(), some(), some(), some()),
        (some(), some(), some()),
        (some(), some(), some(), some()),
        (option::of(any::<bool>()), option::of(any::<bool>())),
    )
        .prop_map(|(layout, counts, limits, flags)| MmInfo {
            mmap_base: layout.0,
            start_brk: layout.1,
            brk: layout.2,
            start_data: layout.3,
            end_data: layout.4,
            start_stack: layout.5,
            def_flags: layout.6,
            total_vm: counts.0,
            locked_vm: counts.1,
            personality: counts.2,
            rlimit_as: limits.0,
            rlimit_data: limits.1,
            rlimit_stack: limits.2,
            rlimit_memlock: limits.3,
            cap_ipc_lock: flags.0,
            thp_disabled: flags.1,
        })
}

fn snapshots() -> impl Strategy<Value = Snapshot> {
    let reasons = prop_oneof![
        Just(SnapReason::Exec),
        Just(SnapReason::Attach),
        Just(SnapReason::Checkpoint),
        Just(SnapReason::Exit)
    ];
    (
        mms(),
        reasons,
        numbers(),
        any::<bool>(),
        option::of(mm_infos()),
        vec(snap_vmas(), 0..6),
    )
        .prop_map(|(mm, reason, t, exact, info, vmas)| Snapshot {
            mm,
            reason,
            t,
            exact,
            info,
            vmas,
        })
}

fn inodes() -> impl Strategy<Value = Inode> {
    let kinds = prop_oneof![
        Just(InodeKind::Regular),
        Just(InodeKind::Shmem),
        Just(InodeKind::SharedAnon),
        Just(InodeKind::Hugetlb),
        Just(InodeKind::DevZero),
        Just(InodeKind::Device),
        Just(InodeKind::Other),
    ];
    (
        (any::<u32>(), numbers(), numbers()),
        kinds,
        (numbers(), numbers(), numbers()),
        ".*",
    )
        .prop_map(
            |((id, dev, ino), kind, (fs_magic, mount_flags, size), path)| Inode {
                id: InodeId(id),
                dev,
                ino,
                kind,
                fs_magic,
                mount_flags,
                size,
                path,
            },
        )
}

/// Generates the events that are encoded in postcard, except [`Event::End`].
fn rare() -> impl Strategy<Value = Event> {
    let origins = prop_oneof![
        Just(Origin::Exec),
        mms().prop_map(|parent| Origin::Fork { parent }),
        Just(Origin::Attach)
    ];
    prop_oneof![
        inodes().prop_map(Event::Inode),
        (mms(), origins, numbers()).prop_map(|(mm, origin, t)| Event::MmStart(MmStart {
            mm,
            origin,
            t
        })),
        (mms(), numbers()).prop_map(|(mm, t)| Event::MmEnd { mm, t }),
        (tids(), tids(), mms(), numbers()).prop_map(|(tid, pid, mm, t)| Event::TaskStart {
            tid,
            pid,
            mm,
            t
        }),
        (tids(), any::<i32>(), numbers()).prop_map(|(tid, status, t)| Event::TaskEnd {
            tid,
            status,
            t
        }),
        (numbers(), numbers()).prop_map(|(count, t)| Event::Lost { count, t }),
        ".*".prop_map(Event::Note),
    ]
}
