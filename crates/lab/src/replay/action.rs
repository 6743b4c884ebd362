//! What a recorded call means: numbers and raw arguments as something that a world can do.

use std::collections::HashMap;
use vmarea::call::mlock::LockPages;
use vmarea::values::call_flags::{MapFlags, MclFlags, MremapFlags, from_register};
use vmarea::values::{File, FileId, FileKind};
use vmarea_trace::event::{Call, FileRef, Inode, InodeId, InodeKind, Tid};
use vmarea_trace::sysno;

/// What to do. The arguments have the names of the manual pages.
#[expect(missing_docs, reason = "the names are those of the manual pages")]
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// `mmap`.
    Mmap {
        addr: u64,
        len: u64,
        prot: u32,
        flags: u32,
        file: Option<File>,
        offset: u64,
    },
    /// `munmap`.
    Munmap { addr: u64, len: u64 },
    /// `mprotect`, `pkey_mprotect`.
    Mprotect {
        addr: u64,
        len: u64,
        prot: u32,
        pkey: i32,
    },
    /// `pkey_alloc`.
    PkeyAlloc { flags: u64, denied: u64 },
    /// `pkey_free`.
    PkeyFree { pkey: i32 },
    /// `mremap`.
    Mremap {
        addr: u64,
        old_len: u64,
        new_len: u64,
        flags: MremapFlags,
        new_addr: u64,
    },
    /// `brk`.
    Brk { addr: u64 },
    /// `madvise`.
    Madvise { addr: u64, len: u64, advice: i32 },
    /// `mlock`, `mlock2`.
    Mlock {
        addr: u64,
        len: u64,
        pages: LockPages,
    },
    /// `munlock`.
    Munlock { addr: u64, len: u64 },
    /// `mlockall`.
    Mlockall { flags: MclFlags },
    /// `munlockall`.
    Munlockall,
    /// `mseal`.
    Mseal { addr: u64, len: u64, flags: u64 },
    /// `shmat`, that succeeded: a segment appears at `addr`.
    Shmat {
        addr: u64,
        file: File,
        read_only: bool,
        exec: bool,
    },
    /// `shmdt`, that succeeded: the segment at `addr` goes.
    Shmdt { addr: u64 },
    /// `setrlimit`, `prlimit64`: a soft and a hard limit of a process: the caller's own, or that
    /// of number `of`.
    Limit {
        resource: u32,
        soft: u64,
        hard: u64,
        of: Option<Tid>,
    },
    /// `setuid` and its kin, `capset`, `unshare`, `setns`: the capabilities of the calling thread
    /// from here on.
    Capabilities { mask: u64 },
    /// `prctl` and `personality`, as far as they matter.
    Setting(Setting),
    /// Nothing for an address space, or nothing that shows before another event.
    Nothing,
    /// Not modelled; the text says what.
    Opaque(&'static str),
}

/// The files of a trace.
#[derive(Debug, Default)]
pub struct Files {
    inodes: HashMap<InodeId, Inode>,
    /// Our numbers of nameless files, and the inode that the kernel showed for them.
    pub(crate) nameless: HashMap<u64, InodeId>,
}

/// The file system of `memfd_secret`.
const SECRETMEM: u64 = 0x5345_434d;
/// File systems that place their files for huge pages: ext4, btrfs, xfs, bcachefs.
const HUGE_ALIGNED: [u64; 4] = [0xef53, 0x9123_683e, 0x5846_5342, 0xca45_1a4e];

const ST_NOEXEC: u64 = 8;
const O_ACCMODE: u32 = 3;
const F_SEAL_WRITE: u32 = 8;
const F_SEAL_FUTURE_WRITE: u32 = 16;

impl Files {
    /// Learns of a file.
    pub fn inode(&mut self, inode: &Inode) {
        self.inodes.insert(inode.id, inode.clone());
    }

    /// What is known of a file.
    pub fn get(&self, id: InodeId) -> Option<&Inode> {
        self.inodes.get(&id)
    }

    /// True for a file without a name, made by the core for a shared anonymous mapping.
    pub fn is_nameless(inode: u64) -> bool {
        FileId(inode).is_nameless()
    }

    /// How the files of this inode map.
    pub fn kind(&self, id: InodeId) -> FileKind {
        let Some(inode) = self.get(id) else {
            return FileKind::Regular;
        };
        match inode.kind {
            InodeKind::Regular if HUGE_ALIGNED.contains(&inode.fs_magic) => {
                FileKind::RegularHugeAligned
            }
            InodeKind::Regular if inode.fs_magic == SECRETMEM => FileKind::Secret,
            InodeKind::Regular | InodeKind::Other => FileKind::Regular,
            InodeKind::Shmem => FileKind::Shmem,
            InodeKind::SharedAnon if inode.path.starts_with("/SYSV") => FileKind::SysvShm,
            InodeKind::SharedAnon => FileKind::SharedAnon,
            InodeKind::Hugetlb => FileKind::Hugetlb,
            InodeKind::DevZero => FileKind::DevZero,
            InodeKind::Device => FileKind::Device,
        }
    }

    fn file(&self, r: &FileRef) -> File {
        let mode = r.open_flags & O_ACCMODE;
        let noexec = self
            .get(r.inode)
            .is_some_and(|i| i.mount_flags & ST_NOEXEC != 0);
        File {
            id: FileId(u64::from(r.file.0)),
            inode: u64::from(r.inode.0),
            kind: self.kind(r.inode),
            readable: mode != 1,
            writable: mode != 0,
            noexec,
            append_only: false,
            write_sealed: r.seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE) != 0,
        }
    }

    /// The meaning of a call.
    pub fn action(&mut self, call: &Call) -> Action {
        let [a, b, c, d, e, _] = call.args;
        match call.nr {
            sysno::MMAP => self.mmap(call),
            sysno::MUNMAP => Action::Munmap { addr: a, len: b },
            sysno::MPROTECT => Action::Mprotect {
                addr: a,
                len: b,
                prot: from_register(c),
                pkey: -1,
            },
            sysno::PKEY_MPROTECT => Action::Mprotect {
                addr: a,
                len: b,
                prot: from_register(c),
                pkey: d as i32,
            },
            sysno::PKEY_ALLOC => Action::PkeyAlloc {
                flags: a,
                denied: b,
            },
            sysno::PKEY_FREE => Action::PkeyFree { pkey: a as i32 },
            sysno::MREMAP => Action::Mremap {
                addr: a,
                old_len: b,
                new_len: c,
                flags: MremapFlags::from_bits_retain(from_register(d)),
                new_addr: e,
            },
            sysno::BRK => Action::Brk { addr: a },
            sysno::MADVISE => Action::Madvise {
                addr: a,
                len: b,
                advice: c as i32,
            },
            sysno::MLOCK => Action::Mlock {
                addr: a,
                len: b,
                pages: LockPages::Now,
            },
            // An `int`.
            sysno::MLOCK2 if c as u32 > 1 => Action::Nothing,
            sysno::MLOCK2 => {
                let pages = if c as u32 == 1 {
                    LockPages::OnFault
                } else {
                    LockPages::Now
                };
                Action::Mlock {
                    addr: a,
                    len: b,
                    pages,
                }
            }
            sysno::MUNLOCK => Action::Munlock { addr: a, len: b },
            sysno::MLOCKALL => Action::Mlockall {
                flags: MclFlags::from_bits_retain(a as u32),
            },
            sysno::MUNLOCKALL => Action::Munlockall,
            sysno::MSEAL => Action::Mseal {
                addr: a,
                len: b,
                flags: c,
            },
            sysno::SHMAT => self.shmat(call),
            sysno::SHMDT if call.ret == 0 => Action::Shmdt { addr: a },
            sysno::PRLIMIT64 => limit(call, b as u32),
            sysno::SETRLIMIT => limit(call, a as u32),
            sysno::PRCTL => prctl(call),
            sysno::SETUID
            | sysno::SETREUID
            | sysno::SETRESUID
            | sysno::CAPSET
            | sysno::UNSHARE
            | sysno::SETNS => match call.data.first_chunk() {
                Some(mask) if call.ret >= 0 => Action::Capabilities {
                    mask: u64::from_le_bytes(*mask),
                },
                _ => Action::Nothing,
            },
            sysno::PERSONALITY if call.ret >= 0 && a != 0xffff_ffff => {
                Action::ReadImpliesExec(a & 0x40_0000 != 0)
            }
            sysno::MBIND if call.ret == 0 => Action::Opaque("mbind"),
            sysno::REMAP_FILE_PAGES if call.ret == 0 => Action::Opaque("remap_file_pages"),
            sysno::PROCESS_MADVISE if call.ret > 0 => Action::Opaque("process_madvise"),
            sysno::IOCTL if call.ret == 0 => Action::Opaque("userfaultfd"),
            _ => Action::Nothing,
        }
    }

    fn mmap(&mut self, call: &Call) -> Action {
        let [addr, len, prot, flags, _, offset] = call.args;
        let anonymous = MapFlags::from_bits_retain(flags as u32).contains(MapFlags::ANONYMOUS);
        let file = call.file.as_ref().map(|r| self.file(r));
        if !anonymous && file.is_none() {
            // Without a file the kernel refused it before any address space was looked at.
            return if call.ret < 0 {
                Action::Nothing
            } else {
                Action::Opaque("mmap of an unknown file")
            };
        }
        let hugetlb = MapFlags::from_bits_retain(flags as u32).contains(MapFlags::HUGETLB);
        if anonymous && hugetlb {
            return if call.ret < 0 {
                Action::Nothing
            } else {
                Action::Opaque("MAP_HUGETLB")
            };
        }
        Action::Mmap {
            addr,
            len,
            prot: from_register(prot),
            flags: from_register(flags),
            file: file.filter(|_| !anonymous),
            offset,
        }
    }

    fn shmat(&mut self, call: &Call) -> Action {
        match (&call.file, call.ret) {
            (Some(r), addr) if addr >= 0 => Action::Shmat {
                addr: addr as u64,
                file: File {
                    kind: FileKind::SysvShm,
                    readable: true,
                    writable: true,
                    ..self.file(r)
                },
                read_only: call.args[2] & 0o10000 != 0,
                exec: call.args[2] & 0o100000 != 0,
            },
            (None, addr) if addr >= 0 => Action::Opaque("shmat"),
            _ => Action::Nothing,
        }
    }
}

fn limit(call: &Call, resource: u32) -> Action {
    let mut words = call.data.chunks_exact(8).map(|word| {
        let word = word.first_chunk().expect("a chunk of eight bytes");
        u64::from_le_bytes(*word)
    });
    let (Some(soft), hard, target) = (words.next(), words.next(), words.next()) else {
        return Action::Nothing;
    };
    // Without the third word (`setrlimit`, an import) all there is is the number that was named.
    let named = if call.nr == sysno::PRLIMIT64 {
        call.args[0]
    } else {
        0
    };
    let of = match (named, target) {
        (0, _) => None,
        (_, Some(0)) => return Action::Nothing,
        (_, Some(pid)) | (pid, None) => Some(Tid(pid as i32)),
    };
    if call.ret != 0 {
        return Action::Nothing;
    }
    Action::Limit {
        resource,
        soft,
        hard: hard.unwrap_or(u64::MAX),
        of,
    }
}

fn prctl(call: &Call) -> Action {
    const SET_MM: u64 = 35;
    const SET_THP_DISABLE: u64 = 41;
    const SET_MDWE: u64 = 65;
    const SET_MEMORY_MERGE: u64 = 67;
    const SET_VMA: u64 = 0x5356_4d41;
    if call.ret != 0 {
        return Action::Nothing;
    }
    let [what, a, b, c, d, _] = call.args;
    match what {
        SET_THP_DISABLE | SET_MDWE | SET_MEMORY_MERGE => Action::Prctl {
            args: [what, a, b, c, d],
        },
        SET_MM => Action::Opaque("PR_SET_MM"),
        SET_VMA => Action::Opaque("PR_SET_VMA"),
        _ => Action::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea_trace::event::{MmId, Order};

    #[test]
    fn the_offset_of_an_anonymous_mapping_is_kept_because_it_is_checked() {
        let call = Call {
            tid: Tid(1),
            mm: MmId(1),
            nr: sysno::MMAP,
            args: [0, u64::MAX, 3, 0x22, u64::MAX, 1],
            ret: -22,
            t: 0,
            order: Order::Exact,
            file: None,
            data: Vec::new(),
        };
        let action = Files::default().action(&call);
        assert!(
            matches!(action, Action::Mmap { offset: 1, .. }),
            "{action:?}"
        );
    }
}
