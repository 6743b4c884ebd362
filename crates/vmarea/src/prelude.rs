//! The types that most embedders need: `use vmarea::prelude::*`.

pub use crate::fault::{Access, Faulted, NeedPage};
pub use crate::mm::{Layout, Limits, Mapped};
pub use crate::policy::Policy;
pub use crate::syscall::Syscall;
pub use crate::syscall::mmap::MmapRequest;
pub use crate::syscall::mremap::MremapRequest;
pub use crate::types::call_flags::{MapFlags, MremapFlags, Prot};
pub use crate::types::platform::Environment;
pub use crate::types::{
    Errno, FrameId, MmId, PAGE_SIZE, Platform, System, VmFlags, VmRange, VmaId,
};
pub use crate::{Space, vma::VmaView};
