//! Calls of the standard core, compiled once.
//!
//! The core is generic over its environment, so every crate that makes its calls gets a compiled copy
//! of them, some 100 KB each. These functions are not generic: a crate that calls them shares the
//! replay's copy.

use vmarea::fault::{Access, Faulted};
use vmarea::mm::{Layout, Limits};
use vmarea::policy::Policy;
use vmarea::syscall::Syscall;
use vmarea::types::{Errno, MmId};
use vmarea::{Space, System};

/// Creates a core without address spaces, as [`Space::new`].
pub fn space(policy: Policy, system: System) -> Space {
    Space::new(policy, system)
}

/// Creates an address space, as [`Space::mm_create`].
///
/// # Errors
/// Those of [`Space::mm_create`].
pub fn mm_create(space: &Space, layout: Layout, limits: Limits) -> Result<MmId, Errno> {
    space.mm_create(layout, limits)
}

/// Ends an address space, as [`Space::mm_exit`].
///
/// # Errors
/// Those of [`Space::mm_exit`].
pub fn mm_exit(space: &Space, mm: MmId) -> Result<(), Errno> {
    space.mm_exit(mm)
}

/// Forks an address space, as [`Space::fork`].
///
/// # Errors
/// Those of [`Space::fork`].
pub fn fork(space: &Space, parent: MmId) -> Result<MmId, Errno> {
    space.fork(parent)
}

/// Makes a system call, as [`Space::syscall`].
///
/// # Errors
/// Those of [`Space::syscall`].
pub fn syscall(space: &Space, mm: MmId, call: &Syscall) -> Result<u64, Errno> {
    space.syscall(mm, call)
}

/// Accesses memory, as [`Space::fault`].
///
/// # Errors
/// Those of [`Space::fault`].
pub fn fault(space: &Space, mm: MmId, addr: u64, access: Access) -> Result<Faulted, Errno> {
    space.fault(mm, addr, access)
}
