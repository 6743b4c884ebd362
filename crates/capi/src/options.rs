//! What an embedder chooses when it creates a space.

use crate::boundary::{WithSize, optional, sized};
use crate::changes::Changes;
use crate::mmu::{Mmu, Tables};
use crate::platform::{Memory, Platform};
use alloc::string::String;
use core::ffi::c_char;
use vmarea::types::{Errno, HugePages, Overcommit, PAGE_SIZE};

/// Properties of the machine. vmarea_system_init sets Linux's defaults.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct System {
    /// End of user addresses: the first address that no process may map, at most 2^63.
    pub task_size: u64,
    /// vm.mmap_min_addr, in bytes.
    pub mmap_min_addr: u64,
    /// Size of the gap below a stack, in bytes.
    pub stack_guard_gap: u64,
    /// Limit on committed pages if vm.overcommit_memory is 2; otherwise UINT64_MAX.
    pub commit_limit: u64,
    /// vm.max_map_count.
    pub max_map_count: u32,
    /// transparent_hugepage/enabled: 0 never, 1 madvise, 2 always.
    pub huge_pages: u32,
    /// 1 if the processor has protection keys.
    pub protection_keys: u32,
    /// 1 if there is a swap device. A platform then needs `swap_out`, `swap_in` and `swap_free`.
    pub swap: u32,
}

impl System {
    fn checked(&self) -> Result<vmarea::System, String> {
        let is_set = |name: &str, value: u32| match value {
            0 | 1 => Ok(value == 1),
            _ => Err(alloc::format!(
                "vmarea_system.{name} is {value}, not 0 or 1"
            )),
        };
        if self.task_size == 0 || !self.task_size.is_multiple_of(PAGE_SIZE) {
            return Err("vmarea_system.task_size is not a number of whole pages".into());
        }
        if self.task_size > 1 << 63 {
            return Err("vmarea_system.task_size is above 2^63".into());
        }
        Ok(vmarea::System {
            task_size: self.task_size,
            max_map_count: self.max_map_count,
            mmap_min_addr: self.mmap_min_addr,
            built_in_min_addr: self.mmap_min_addr,
            stack_guard_gap: self.stack_guard_gap,
            overcommit: match self.commit_limit {
                u64::MAX => Overcommit::Guess(u64::MAX),
                pages => Overcommit::Never(pages),
            },
            huge_pages: match self.huge_pages {
                0 => HugePages::Never,
                1 => HugePages::Madvise,
                2 => HugePages::Always,
                other => {
                    return Err(alloc::format!(
                        "vmarea_system.huge_pages is {other}, not 0, 1 or 2"
                    ));
                }
            },
            protection_keys: is_set("protection_keys", self.protection_keys)?,
            swap: is_set("swap", self.swap)?,
            ..vmarea::System::default()
        })
    }
}

impl From<vmarea::System> for System {
    fn from(system: vmarea::System) -> System {
        System {
            task_size: system.task_size,
            mmap_min_addr: system.mmap_min_addr,
            stack_guard_gap: system.stack_guard_gap,
            commit_limit: u64::MAX,
            max_map_count: system.max_map_count,
            huge_pages: system.huge_pages as u32,
            protection_keys: system.protection_keys.into(),
            swap: system.swap.into(),
        }
    }
}

/// What an embedder chooses for a space. Members that are 0 or NULL have defaults.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Options {
    /// sizeof(struct vmarea_options).
    pub size: usize,
    /// Name of a merge policy, such as "linux-6.12" or "vmarea+copy_budget=64". NULL for "linux".
    pub policy: *const c_char,
    /// Properties of the machine.
    pub system: *const System,
    /// Memory. NULL for pages without bytes.
    pub platform: *const Platform,
    /// MMU. NULL for none.
    pub mmu: *const Mmu,
    /// Observer of changes of mappings. NULL for none.
    pub changes: *const Changes,
    /// Buffer for a message that says why creation failed.
    pub message: *mut c_char,
    /// Size of `message` in bytes. A longer message is truncated.
    pub message_size: usize,
}

// SAFETY: `size` is the first member.
unsafe impl WithSize for Options {}

/// Options whose structures have been checked.
#[derive(Debug)]
pub struct Checked {
    pub system: vmarea::System,
    pub memory: Memory,
    pub tables: Tables,
    pub changes: Option<Changes>,
}

impl Options {
    /// Checks the structures that the options point to.
    ///
    /// # Errors
    /// EFAULT for a misaligned pointer, EINVAL for a wrong value; with a message.
    ///
    /// # Safety
    /// The pointers are NULL, or lead to structures of their type or of the size that they say.
    pub unsafe fn checked(&self) -> Result<Checked, (Errno, String)> {
        let failed = |name| move |errno| (errno, unreadable(errno, name));
        let wrong = |message: &str| (Errno::EINVAL, message.into());
        // SAFETY: the caller's promise, here and for the others.
        let system = unsafe { optional(self.system) }.map_err(failed("vmarea_system"))?;
        // SAFETY: as above.
        let platform = unsafe { sized(self.platform) }.map_err(failed("vmarea_platform"))?;
        // SAFETY: as above.
        let mmu = unsafe { sized(self.mmu) }.map_err(failed("vmarea_mmu"))?;
        // SAFETY: as above.
        let changes = unsafe { sized(self.changes) }.map_err(failed("vmarea_changes"))?;
        let system = system.map_or_else(
            || Ok(vmarea::System::default()),
            |system| system.checked().map_err(|message| wrong(&message)),
        )?;
        if system.swap && platform.is_some_and(|platform| !platform.has_swap()) {
            return Err(wrong(
                "vmarea_system.swap needs swap_out, swap_in and swap_free",
            ));
        }
        Ok(Checked {
            system,
            memory: platform
                .map_or(Ok(Memory::NONE), |platform| Memory::new(*platform))
                .map_err(wrong)?,
            tables: mmu.map_or(Tables::NONE, |mmu| Tables(*mmu)),
            changes: changes.copied(),
        })
    }
}

/// Says why a structure cannot be read.
fn unreadable(errno: Errno, name: &str) -> String {
    match errno {
        Errno::EFAULT => alloc::format!("the pointer to struct {name} is misaligned"),
        _ => alloc::format!("{name}.size is not sizeof(struct {name})"),
    }
}
