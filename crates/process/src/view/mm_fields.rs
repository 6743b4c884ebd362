//! Fields of `mm_struct` in the kernel view, and the subset of them that a trace stores.

use vmarea_trace::event::MmInfo;

/// Fields of `mm_struct`. A field is `None` if the running kernel lacks it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MmFields {
    /// Kernel address of the `mm_struct`, as in the recorder's `Sample::LockTaken`.
    pub mm: u64,
    /// `mmap_base`: the address at which the top-down search for free ranges begins.
    pub mmap_base: Option<u64>,
    /// `start_brk`: start address of the heap.
    pub start_brk: Option<u64>,
    /// `brk`: end address of the heap.
    pub brk: Option<u64>,
    /// `start_data`: start address of the program's data.
    pub start_data: Option<u64>,
    /// `end_data`: end address of the program's data.
    pub end_data: Option<u64>,
    /// `start_stack`: start address of the stack's contents.
    pub start_stack: Option<u64>,
    /// `def_flags`: flags that every new mapping gets.
    pub def_flags: Option<u64>,
    /// `total_vm`, in pages.
    pub total_vm: Option<u64>,
    /// `locked_vm`, in pages.
    pub locked_vm: Option<u64>,
    /// `map_count`.
    pub map_count: Option<u64>,
    /// The `MMF_` bits; on 6.18, the first word of the bitmap.
    pub flags: Option<u64>,
    /// `start_code`, in bytes.
    pub start_code: Option<u64>,
    /// `end_code`, in bytes.
    pub end_code: Option<u64>,
    /// `arg_start`, in bytes.
    pub arg_start: Option<u64>,
    /// `arg_end`, in bytes.
    pub arg_end: Option<u64>,
    /// `env_start`, in bytes.
    pub env_start: Option<u64>,
    /// `env_end`, in bytes.
    pub env_end: Option<u64>,
}

impl MmFields {
    /// Copies the known fields to `info` and leaves its other fields unchanged.
    pub fn fill(&self, info: &mut MmInfo) {
        let MmFields {
            mm: _,
            mmap_base,
            start_brk,
            brk,
            start_data,
            end_data,
            start_stack,
            def_flags,
            total_vm,
            locked_vm,
            map_count: _,
            flags: _,
            start_code: _,
            end_code: _,
            arg_start: _,
            arg_end: _,
            env_start: _,
            env_end: _,
        } = *self;
        for (to, from) in [
            (&mut info.mmap_base, mmap_base),
            (&mut info.start_brk, start_brk),
            (&mut info.brk, brk),
            (&mut info.start_data, start_data),
            (&mut info.end_data, end_data),
            (&mut info.start_stack, start_stack),
            (&mut info.def_flags, def_flags),
            (&mut info.total_vm, total_vm),
            (&mut info.locked_vm, locked_vm),
        ] {
            *to = from.or(*to);
        }
    }
}
