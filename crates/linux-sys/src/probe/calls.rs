//! Experiments about the flags and limits of `mmap`, and about calls that a kernel may lack.

use super::area::memfd;
use super::area::{Area, HUGE, PAGE, PRIVATE, READ, WRITE, dev_zero};
use super::lists;
use super::syscall::{call, is_filtered, is_known};
use libc::{EINVAL, ENOMEM, ENOSPC, ENOSYS, EOPNOTSUPP, MAP_PRIVATE, MAP_SHARED, c_int};

const MAP_DROPPABLE: c_int = 8;
const MAP_ABOVE4G: c_int = 0x80;
const PR_GET_MDWE: usize = 66;
const PR_GET_MEMORY_MERGE: usize = 68;
const PR_THP_DISABLE_EXCEPT_ADVISED: usize = 2;
const SYS_MSEAL: libc::c_long = 462;

pub(super) fn huge_aligned_anon(_: &Area) -> Option<bool> {
    is_aligned(PRIVATE, usize::MAX)
}

pub(super) fn huge_aligned_zero(_: &Area) -> Option<bool> {
    is_aligned(MAP_PRIVATE | libc::MAP_NORESERVE, dev_zero()?)
}

/// True if the kernel aligns mappings of the size of a huge page, and not just by chance: a single
/// page before each one makes the next free address another one.
fn is_aligned(flags: c_int, fd: usize) -> Option<bool> {
    let map = |len, flags: c_int, fd| {
        let args = [0, len, 0, flags as usize, fd, 0];
        call(libc::SYS_mmap, &args).ok()
    };
    let mut aligned = true;
    for _ in 0..3 {
        map(PAGE, PRIVATE, usize::MAX)?;
        aligned &= map(HUGE, flags, fd)?.is_multiple_of(HUGE);
    }
    Some(aligned)
}

/// A mapping that refuses flags that the kernel does not know.
pub(super) fn map_above_4g(_: &Area) -> Option<bool> {
    let fd = memfd(1, libc::MFD_CLOEXEC)?;
    let flags = (libc::MAP_SHARED_VALIDATE | MAP_ABOVE4G) as usize;
    let args = [0, PAGE, READ as usize, flags, fd, 0];
    is_known(call(libc::SYS_mmap, &args), EOPNOTSUPP)
}

pub(super) fn map_droppable(_: &Area) -> Option<bool> {
    let flags = (MAP_DROPPABLE | libc::MAP_ANONYMOUS) as usize;
    let args = [0, PAGE, WRITE as usize, flags, usize::MAX, 0];
    is_known(call(libc::SYS_mmap, &args), EINVAL)
}

/// A page in the middle is mapped over while the address space may not grow at all.
pub(super) fn mmap_limits(area: &Area) -> Option<usize> {
    area.map(0, 3, WRITE, PRIVATE)?;
    let limit = libc::RLIMIT_AS as usize;
    let mut before = [0usize; 2];
    call(
        libc::SYS_prlimit64,
        &[0, limit, 0, before.as_mut_ptr() as usize],
    )
    .ok()?;
    let tight = [PAGE, before[1]];
    call(libc::SYS_prlimit64, &[0, limit, tight.as_ptr() as usize, 0]).ok()?;
    let mapped = area.map(1, 1, WRITE, PRIVATE);
    call(
        libc::SYS_prlimit64,
        &[0, limit, before.as_ptr() as usize, 0],
    )
    .ok()?;
    match mapped {
        None => area.is_joined(1).map(|whole| usize::from(!whole)),
        Some(()) => None,
    }
}

/// Memory without access is locked on fault; that locking is possible at all is tried before.
pub(super) fn onfault_asks_access(area: &Area) -> Option<bool> {
    const ONFAULT: usize = 1;
    area.map(0, 1, WRITE, PRIVATE)?;
    let lock = |page| call(libc::SYS_mlock2, &[area.at(page), PAGE, ONFAULT]);
    lock(0).ok()?;
    call(libc::SYS_munlock, &[area.at(0), PAGE]).ok()?;
    is_known(lock(10), ENOMEM).map(|allowed| !allowed)
}

/// Returns the memory nodes that this process may use, for a call about policies.
fn nodes() -> Option<[usize; 16]> {
    const MEMS_ALLOWED: usize = 4;
    let mut nodes = [0; 16];
    let args = [0, nodes.as_mut_ptr() as usize, 1024, 0, MEMS_ALLOWED];
    call(libc::SYS_get_mempolicy, &args).ok()?;
    Some(nodes)
}

/// Tells whether the kernel knows a memory policy, and takes it back.
fn knows_policy(mode: usize) -> Option<bool> {
    let nodes = nodes()?;
    let set = call(
        libc::SYS_set_mempolicy,
        &[mode, nodes.as_ptr() as usize, 1025],
    );
    call(libc::SYS_set_mempolicy, &[0, 0, 0]).ok()?;
    is_known(set, EINVAL)
}

pub(super) fn mempolicy_modes(_: &Area) -> Option<usize> {
    const PREFERRED_MANY: usize = 5;
    const WEIGHTED_INTERLEAVE: usize = 6;
    let known = [
        knows_policy(PREFERRED_MANY)?,
        knows_policy(WEIGHTED_INTERLEAVE)?,
    ];
    Some(known.into_iter().take_while(|known| *known).count())
}

pub(super) fn numa_balancing(_: &Area) -> Option<bool> {
    const BIND: usize = 2;
    const NUMA_BALANCING: usize = 1 << 13;
    knows_policy(BIND | NUMA_BALANCING)
}

/// The first key of this address space is allocated. With protection keys there is no answer.
pub(super) fn no_keys_is_none_left(_: &Area) -> Option<bool> {
    match call(libc::SYS_pkey_alloc, &[0, 0]) {
        Err(EINVAL) => Some(false),
        Err(ENOSPC) => Some(true),
        _ => None,
    }
}

pub(super) fn mseal(area: &Area) -> Option<bool> {
    is_known(call(SYS_MSEAL, &[area.at(0), 0, 0]), ENOSYS).filter(|known| *known || !is_filtered())
}

/// Sealed zeros are discarded.
pub(super) fn seal_guards_dev_zero(area: &Area) -> Option<bool> {
    area.map_file(0, 1, READ, MAP_PRIVATE, (dev_zero()?, 0))?;
    call(SYS_MSEAL, &[area.at(0), PAGE, 0]).ok()?;
    is_known(area.advise(0, 1, libc::MADV_DONTNEED), libc::EPERM).map(|allowed| !allowed)
}

pub(super) fn memory_merge(_: &Area) -> Option<bool> {
    is_known(call(libc::SYS_prctl, &[PR_GET_MEMORY_MERGE]), EINVAL)
}

pub(super) fn mdwe(_: &Area) -> Option<bool> {
    is_known(call(libc::SYS_prctl, &[PR_GET_MDWE]), EINVAL)
}

pub(super) fn thp_disable_except_advised(_: &Area) -> Option<bool> {
    let set = libc::PR_SET_THP_DISABLE as usize;
    let args = [set, 1, PR_THP_DISABLE_EXCEPT_ADVISED];
    is_known(call(libc::SYS_prctl, &args), EINVAL)
}

/// Secret memory is mapped.
pub(super) fn secret_locked(area: &Area) -> Option<bool> {
    let fd = call(libc::SYS_memfd_secret, &[0]).ok()?;
    call(libc::SYS_ftruncate, &[fd, PAGE]).ok()?;
    let before = lists::locked_kib()?;
    area.map_file(0, 1, WRITE, MAP_SHARED, (fd, 0))?;
    Some(lists::locked_kib()? > before)
}

/// Returns the start of `[vdso]`, a special mapping that every process has.
pub(super) fn vdso() -> Option<usize> {
    // SAFETY: the function reads what the kernel passed at the start of the program.
    let start = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    (lists::mapping_at(start) == Some(start)).then_some(start)
}

/// The first page of a special mapping of several pages gets other rights, and then its old ones.
pub(super) fn special_splits(_: &Area) -> Option<bool> {
    let start = vdso()?;
    if lists::mapping_at(start + PAGE) != Some(start) {
        return None;
    }
    let protect = |prot: c_int| call(libc::SYS_mprotect, &[start, PAGE, prot as usize]);
    let split = is_known(protect(READ), EINVAL);
    let _ = protect(READ | libc::PROT_EXEC);
    split
}

/// A huge page is mapped near an address that is not aligned to one.
pub(super) fn hugetlb_placement(area: &Area) -> Option<usize> {
    let huge_of_2_mib = libc::MFD_HUGETLB | libc::MFD_HUGE_2MB | libc::MFD_CLOEXEC;
    let fd = memfd(2 * HUGE / PAGE, huge_of_2_mib)?;
    area.unmap(0, 2048)?;
    let below = area.at(HUGE / PAGE);
    let flags = (MAP_SHARED | libc::MAP_NORESERVE) as usize;
    let args = [below + PAGE, HUGE, READ as usize, flags, fd, 0];
    match call(libc::SYS_mmap, &args) {
        Ok(at) if at == below => Some(0),
        Ok(at) if at == below + HUGE => Some(1),
        _ => None,
    }
}
