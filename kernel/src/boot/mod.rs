//! The information that the boot loader passes (PVH): memory, the initramfs and the command line.

use crate::cpu::direct_map::{direct, pointer_to};
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::ops::Range;

core::arch::global_asm!(include_str!("start.s"));

/// The structure that the boot loader passes according to PVH (`hvm_start_info`, version 1).
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_entries: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct MemoryEntry {
    start: u64,
    len: u64,
    kind: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Module {
    start: u64,
    len: u64,
    command_line: u64,
    reserved: u64,
}

/// Type of a memory-map entry that describes RAM.
const RAM: u32 = 1;
/// First physical address that the direct map does not cover.
const DIRECT_END: u64 = 4 << 30;

/// The information from the boot loader; all addresses are physical.
#[derive(Debug)]
pub struct BootInfo {
    /// The rest of the memory region that contains the kernel, starting at the kernel's end.
    pub memory: Range<u64>,
    /// The initramfs.
    pub initramfs: Range<u64>,
    /// The command line.
    pub command_line: &'static str,
}

impl BootInfo {
    /// Reads the structure at the physical address `info`.
    ///
    /// # Safety
    /// The boot loader has stored a `hvm_start_info` there, and memory has not been changed since.
    pub unsafe fn read(info: u64) -> BootInfo {
        unsafe extern "C" {
            static kernel_end: u8;
        }
        let begin = (&raw const kernel_end as u64).next_multiple_of(4096);
        // SAFETY: as the caller promises, for this structure and for those that it points to.
        unsafe {
            let info = &*pointer_to::<StartInfo>(info);
            let entries = core::slice::from_raw_parts(
                pointer_to::<MemoryEntry>(info.memory_map),
                info.memory_entries as usize,
            );
            let holds_kernel =
                |e: &&MemoryEntry| e.kind == RAM && e.start <= begin && begin < e.start + e.len;
            let end = entries
                .iter()
                .find(holds_kernel)
                .map_or(begin, |e| (e.start + e.len).min(DIRECT_END));
            let initramfs = match info.modules {
                0 => 0..0,
                _ => {
                    let module = *pointer_to::<Module>(info.module_list);
                    module.start..module.start + module.len
                }
            };
            let command_line = match info.command_line {
                0 => "",
                at => CStr::from_ptr(direct(at) as *const _)
                    .to_str()
                    .unwrap_or(""),
            };
            BootInfo {
                memory: begin..end,
                initramfs,
                command_line,
            }
        }
    }
}

/// Settings from the kernel command line: `name=value` words before `--`.
#[derive(Debug)]
pub struct Options {
    /// Name of the policy that the VMA layer follows.
    pub policy: String,
    /// Number of busy-wait iterations before each TLB flush (`widen`), to reveal missing flushes.
    pub widen: u64,
    /// Whether the TLBs of other CPUs are not flushed (`flush=local`).
    pub flush_local: bool,
    /// Whether each system call and fault is printed (`trace=1`).
    pub trace: bool,
    /// Memory for program and file pages, in bytes (`memory`); 0 for all available memory.
    pub memory: u64,
    /// Size of the swap device in bytes (`swap`).
    pub swap: u64,
    /// Whether pages are swapped out even while memory is free (`reclaim=always`), for tests.
    pub reclaim_always: bool,
    /// Arguments of `/init`.
    pub arguments: Vec<String>,
}

impl Options {
    /// Parses the options; prints every unknown word.
    pub fn parse(command_line: &str) -> Options {
        let mut options = Options {
            policy: "linux-6.12".into(),
            widen: 0,
            flush_local: false,
            trace: false,
            memory: 0,
            swap: 0,
            reclaim_always: false,
            arguments: Vec::new(),
        };
        let mut words = command_line.split_whitespace();
        while let Some(word) = words.next() {
            match word.split_once('=') {
                Some(("policy", name)) => options.policy = name.into(),
                Some(("widen", turns)) => options.widen = turns.parse().unwrap_or(0),
                Some(("flush", which)) => options.flush_local = which == "local",
                Some(("memory", size)) => options.memory = bytes(size),
                Some(("swap", size)) => options.swap = bytes(size),
                Some(("reclaim", when)) => options.reclaim_always = when == "always",
                Some(("trace", on)) => options.trace = on == "1",
                _ if word == "--" => options.arguments.extend(words.by_ref().map(Into::into)),
                _ => crate::say!("no option {word}"),
            }
        }
        options
    }
}

/// Returns the value of a number with an optional suffix K, M or G; 0 if `size` is invalid.
fn bytes(size: &str) -> u64 {
    let shift = match size.bytes().last() {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        _ => 0,
    };
    let number = size.trim_end_matches(['K', 'M', 'G']).parse().unwrap_or(0);
    u64::checked_shl(number, shift).unwrap_or(0)
}
