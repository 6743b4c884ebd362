//! Hand-assembled BPF programs: instructions, maps, loading, iterators.
//!
//! This module supports only the features that an iterator over a task's VMAs and the programs of
//! [`super::call_trace`] and [`super::fault_trace`] need: loads, moves, a few kinds of jump, helper
//! calls, and maps. It supports no relocations and contains no compiler; the caller takes member
//! offsets from `btf`. The kernel's verifier proves each program safe before the program runs.
//!
//! # Linux
//! `bpf(2)` with `BPF_PROG_LOAD`, `BPF_LINK_CREATE`, `BPF_ITER_CREATE`, and `BPF_MAP_CREATE` and
//! `BPF_MAP_UPDATE_ELEM` for the number; restricting an iterator to one task needs Linux 6.1.

mod map;
pub(super) mod tracepoint;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::btf::TypeId;
use super::own_process::NoSignals;
pub use map::Number;
pub(super) use map::{Counter, MAP_TYPE_ARRAY, Map};

const CMD_PROG_LOAD: libc::c_int = 5;
const CMD_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const CMD_LINK_CREATE: libc::c_int = 28;
const CMD_ITER_CREATE: libc::c_int = 33;
const PROG_TYPE_TRACEPOINT: u32 = 5;
const PROG_TYPE_TRACING: u32 = 26;
/// Attach type of a program that runs at a tracepoint.
pub(super) const TRACE_RAW_TP: u32 = 23;
const TRACE_ITER: u32 = 28;
/// `bpf_map_lookup_elem(map, key)`.
const HELPER_MAP_LOOKUP: i32 = 1;
/// `bpf_seq_write(seq, data, len)`.
const HELPER_SEQ_WRITE: i32 = 127;
/// Size in bytes of the buffer for the verifier's log.
const LOG_BYTES: usize = 1 << 16;

/// A BPF register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reg {
    /// `r0`: the result of a helper call.
    R0 = 0,
    /// `r1`: the first argument of a helper call; on entry, the program's context.
    R1 = 1,
    /// `r2`: the second argument of a helper call.
    R2 = 2,
    /// `r3`: the third argument of a helper call.
    R3 = 3,
    /// `r4`: the fourth argument of a helper call.
    R4 = 4,
    /// `r5`: the fifth argument of a helper call.
    R5 = 5,
    /// `r6`, which helper calls preserve.
    R6 = 6,
    /// `r7`, which helper calls preserve.
    R7 = 7,
    /// `r8`, which helper calls preserve.
    R8 = 8,
    /// `r9`, which helper calls preserve.
    R9 = 9,
    /// `r10`, the frame pointer; the stack is below it.
    Frame = 10,
}

/// Width of a memory load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// 1 byte.
    Byte,
    /// 2 bytes.
    Half,
    /// 4 bytes.
    Word,
    /// 8 bytes.
    Double,
}

impl Width {
    /// Returns the width of a load of `bytes` bytes; `None` if no single load has that width.
    pub fn of(bytes: u32) -> Option<Width> {
        match bytes {
            1 => Some(Width::Byte),
            2 => Some(Width::Half),
            4 => Some(Width::Word),
            8 => Some(Width::Double),
            _ => None,
        }
    }
}

/// A jump whose target is not yet known.
#[must_use]
pub struct Jump(usize);

/// A BPF program under construction.
#[derive(Default)]
pub struct Assembler {
    insns: Vec<u64>,
}

impl Assembler {
    pub(super) fn push(&mut self, code: u8, dst: Reg, src: Reg, offset: i16, imm: i32) {
        self.insns.push(
            u64::from(code)
                | (dst as u64) << 8
                | (src as u64) << 12
                | u64::from(offset as u16) << 16
                | u64::from(imm as u32) << 32,
        );
    }

    /// Loads with zero extension: `dst = *(src + offset)`.
    pub fn load(&mut self, width: Width, dst: Reg, src: Reg, offset: i16) {
        let code = match width {
            Width::Word => 0x61,
            Width::Half => 0x69,
            Width::Byte => 0x71,
            Width::Double => 0x79,
        };
        self.push(code, dst, src, offset, 0);
    }

    /// Stores a register: `*(u64 *)(dst + offset) = src`.
    pub fn store(&mut self, dst: Reg, offset: i16, src: Reg) {
        self.push(0x7b, dst, src, offset, 0);
    }

    /// Copies a register: `dst = src`.
    pub fn copy(&mut self, dst: Reg, src: Reg) {
        self.push(0xbf, dst, src, 0, 0);
    }

    /// Sets a register to a constant: `dst = value`.
    pub fn set(&mut self, dst: Reg, value: i32) {
        self.push(0xb7, dst, Reg::R0, 0, value);
    }

    /// Sets the low half of a register to a constant, and the high half to 0.
    pub(super) fn set_low(&mut self, dst: Reg, value: i32) {
        self.push(0xb4, dst, Reg::R0, 0, value);
    }

    /// Masks a register: `dst &= src`.
    pub(super) fn and(&mut self, dst: Reg, src: Reg) {
        self.push(0x5f, dst, src, 0, 0);
    }

    /// Adds a constant to a register: `dst += value`.
    pub fn add(&mut self, dst: Reg, value: i32) {
        self.push(0x07, dst, Reg::R0, 0, value);
    }

    /// Adds a register: `dst += src`.
    pub(super) fn add_register(&mut self, dst: Reg, src: Reg) {
        self.push(0x0f, dst, src, 0, 0);
    }

    /// Shifts a register: `dst <<= bits`.
    pub(super) fn shift_left(&mut self, dst: Reg, bits: i32) {
        self.push(0x67, dst, Reg::R0, 0, bits);
    }

    /// Jumps if `reg` is 0.
    pub fn jump_if_zero(&mut self, reg: Reg) -> Jump {
        self.push(0x15, reg, Reg::R0, 0, 0);
        Jump(self.insns.len() - 1)
    }

    /// Jumps if `reg` is a constant.
    pub(super) fn jump_if(&mut self, reg: Reg, value: i32) -> Jump {
        self.push(0x15, reg, Reg::R0, 0, value);
        Jump(self.insns.len() - 1)
    }

    /// Adds a register to a word in memory, atomically: `*(u64 *)dst += src`.
    pub(super) fn add_atomically(&mut self, dst: Reg, src: Reg) {
        self.push(0xdb, dst, src, 0, 0);
    }

    /// Jumps if `reg` is not 0.
    pub fn jump_unless_zero(&mut self, reg: Reg) -> Jump {
        self.push(0x55, reg, Reg::R0, 0, 0);
        Jump(self.insns.len() - 1)
    }

    /// Jumps if two registers differ.
    pub fn jump_unless_same(&mut self, one: Reg, other: Reg) -> Jump {
        self.push(0x5d, one, other, 0, 0);
        Jump(self.insns.len() - 1)
    }

    /// Returns the index of the next instruction, for [`back_unless_zero`](Self::back_unless_zero).
    pub fn here(&self) -> usize {
        self.insns.len()
    }

    /// Jumps back to `to` if `reg` is not 0.
    pub fn back_unless_zero(&mut self, reg: Reg, to: usize) {
        let distance = to as i64 - self.insns.len() as i64 - 1;
        self.push(0x55, reg, Reg::R0, distance as i16, 0);
    }

    /// Looks up `number`: sets `R0` to the number's address or to null. The verifier requires a
    /// null check.
    ///
    /// Overwrites R1 to R3 and the 8 bytes at the top of the stack.
    pub fn find(&mut self, number: &Number) {
        self.set(Reg::R1, 0);
        self.store(Reg::Frame, -8, Reg::R1);
        self.look_up(&number.map);
    }

    /// Looks up the element whose key is on the stack at `Frame - 8`: sets `R0` to its address or
    /// to null. Overwrites R1 and R2.
    pub(super) fn look_up(&mut self, map: &Map) {
        self.load_map(Reg::R1, map);
        self.copy(Reg::R2, Reg::Frame);
        self.add(Reg::R2, -8);
        self.call(HELPER_MAP_LOOKUP);
    }

    /// Loads the address of a map.
    pub(super) fn load_map(&mut self, dst: Reg, map: &Map) {
        const PSEUDO_MAP_FD: u8 = 1;
        // A 64-bit load takes two instructions; the first contains the descriptor.
        let code = 0x18 | (dst as u64) << 8 | u64::from(PSEUDO_MAP_FD) << 12;
        self.insns.push(code | (map.fd.as_raw_fd() as u64) << 32);
        self.insns.push(0);
    }

    /// Calls a helper function.
    pub(super) fn call(&mut self, helper: i32) {
        self.push(0x85, Reg::R0, Reg::R0, 0, helper);
    }

    /// Makes the next instruction the target of `jump`.
    pub fn land(&mut self, jump: Jump) {
        let distance = (self.insns.len() - jump.0 - 1) as u16;
        self.insns[jump.0] |= u64::from(distance) << 16;
    }

    /// Writes `len` bytes from the stack, starting at `Frame + offset`, to the iterator's reader.
    ///
    /// The register `seq` must contain the `seq_file`. Overwrites R0 to R3.
    pub fn write_to_reader(&mut self, seq: Reg, offset: i32, len: i32) {
        self.copy(Reg::R1, seq);
        self.copy(Reg::R2, Reg::Frame);
        self.add(Reg::R2, offset);
        self.set(Reg::R3, len);
        self.call(HELPER_SEQ_WRITE);
    }

    /// Emits the exit instruction, after which the iterator continues with the next object.
    pub fn exit(&mut self) {
        self.set(Reg::R0, 0);
        self.push(0x95, Reg::R0, Reg::R0, 0, 0);
    }
}

/// The kernel's reason for rejecting a program.
#[derive(Debug)]
pub struct LoadError {
    /// Error of `bpf(2)`.
    pub cause: io::Error,
    /// Last meaningful line of the verifier's log; empty if there is none.
    pub verdict: String,
}

/// What a program is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// Attaches to the object with this type, as this attach type.
    Traces(u32, TypeId),
    /// Reads the records of a tracepoint of perf.
    ReadsRecords,
}

/// A loaded program.
#[derive(Debug)]
pub struct Program {
    pub(super) fd: OwnedFd,
}

// The leading fields of `union bpf_attr` that the commands read.

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct LoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct InfoAttr {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct LinkAttr {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    iter_info: u64,
    iter_info_len: u32,
    padding: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct IterAttr {
    link_fd: u32,
    flags: u32,
}

/// Linux's `union bpf_iter_link_info`, with only the members for task iterators.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct IterTask {
    tid: u32,
    tgid: u32,
    pid_fd: u32,
    padding: u32,
}

/// Tasks over which an iterator runs, by ids in the caller's pid namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tasks {
    /// One thread.
    Thread(u32),
    /// The threads of one process. The kernel leaves out those that share the leader's descriptors,
    /// so it finds no memory for the moment in which an exiting leader has descriptors but none.
    Process(u32),
}

impl Program {
    /// Loads an iterator program that attaches to the kernel function `target`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF` and `CAP_PERFMON`, `EACCES` or `EINVAL` if the verifier rejects
    /// the program, `ENOSYS` without BPF.
    pub fn load(
        code: &Assembler,
        name: &CStr,
        license: &CStr,
        target: TypeId,
    ) -> Result<Program, LoadError> {
        Program::load_for(Purpose::Traces(TRACE_ITER, target), code, name, license)
    }

    /// Loads a program for a purpose.
    pub(super) fn load_for(
        purpose: Purpose,
        code: &Assembler,
        name: &CStr,
        license: &CStr,
    ) -> Result<Program, LoadError> {
        let (prog_type, attach_type, target) = match purpose {
            Purpose::Traces(attach_type, target) => (PROG_TYPE_TRACING, attach_type, target.0),
            Purpose::ReadsRecords => (PROG_TYPE_TRACEPOINT, 0, 0),
        };
        // The verifier fails with EAGAIN if a signal arrives.
        let _quiet = NoSignals::begin();
        let mut attr = LoadAttr {
            prog_type,
            insn_cnt: code.insns.len() as u32,
            insns: code.insns.as_ptr() as u64,
            license: license.as_ptr() as u64,
            expected_attach_type: attach_type,
            attach_btf_id: target,
            ..LoadAttr::default()
        };
        for (to, from) in attr.prog_name[..15].iter_mut().zip(name.to_bytes()) {
            *to = *from;
        }
        // SAFETY: `attr` points to the instructions and the licence, which live across the call and
        // have the lengths given in `attr`.
        if let Ok(fd) = unsafe { bpf(CMD_PROG_LOAD, &mut attr) } {
            return Ok(Program { fd });
        }
        // Repeat the call with the verifier's log, which is off at first because it takes time.
        let mut log = vec![0u8; LOG_BYTES];
        attr.log_level = 1;
        attr.log_size = log.len() as u32;
        attr.log_buf = log.as_mut_ptr() as u64;
        // SAFETY: as above, and `log` lives across the call as well.
        let fd = unsafe { bpf(CMD_PROG_LOAD, &mut attr) };
        fd.map(|fd| Program { fd }).map_err(|cause| LoadError {
            cause,
            verdict: last_line(&log),
        })
    }

    /// Returns how often the kernel skipped the program, because it was running already.
    ///
    /// # Errors
    /// The call cannot fail for a valid descriptor.
    pub(super) fn skipped(&self) -> io::Result<u64> {
        /// Offset of `recursion_misses` in `struct bpf_prog_info` (Linux 5.12).
        const SKIPPED: usize = 208 / 8;
        let mut info = [0u64; SKIPPED + 1];
        let mut attr = InfoAttr {
            bpf_fd: self.fd.as_raw_fd() as u32,
            info_len: size_of_val(&info) as u32,
            info: info.as_mut_ptr() as u64,
        };
        // SAFETY: `attr` points to `info`, which lives across the call and has the given length. It
        // contains no pointer and no length of a list.
        unsafe { command(CMD_OBJ_GET_INFO_BY_FD, &mut attr) }?;
        Ok(info[SKIPPED])
    }

    /// Opens an iterator of this program over some tasks. Reading the iterator runs the program.
    ///
    /// # Errors
    /// `ESRCH` if there are no such tasks, `EINVAL` if the kernel cannot restrict an iterator to
    /// them, `EMFILE`.
    pub fn iterate(&self, tasks: Tasks) -> io::Result<OwnedFd> {
        let mut task = IterTask::default();
        match tasks {
            Tasks::Thread(tid) => task.tid = tid,
            Tasks::Process(tgid) => task.tgid = tgid,
        }
        let mut attr = LinkAttr {
            prog_fd: self.fd.as_raw_fd() as u32,
            attach_type: TRACE_ITER,
            iter_info: &raw const task as u64,
            iter_info_len: size_of::<IterTask>() as u32,
            ..LinkAttr::default()
        };
        // SAFETY: `attr` points to `task`, which lives across the call and has the given length.
        unsafe { open(&mut attr) }
    }

    /// Opens an iterator of this program over all tasks. Reading the iterator runs the program.
    ///
    /// # Errors
    /// `EINVAL` if the program is not a task iterator, `EMFILE`.
    pub fn iterate_all(&self) -> io::Result<OwnedFd> {
        let mut attr = LinkAttr {
            prog_fd: self.fd.as_raw_fd() as u32,
            attach_type: TRACE_ITER,
            ..LinkAttr::default()
        };
        // SAFETY: `attr` has no pointers.
        unsafe { open(&mut attr) }
    }
}

/// Opens an iterator for `link`.
///
/// # Safety
/// The safety requirements of [`bpf`].
unsafe fn open(link: &mut LinkAttr) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees this.
    let link = unsafe { bpf(CMD_LINK_CREATE, link) }?;
    let mut attr = IterAttr {
        link_fd: link.as_raw_fd() as u32,
        flags: 0,
    };
    // SAFETY: `attr` has no pointers. The iterator keeps its own reference to the link.
    unsafe { bpf(CMD_ITER_CREATE, &mut attr) }
}

/// Calls `bpf(2)` with a command that returns a descriptor.
///
/// # Safety
/// `attr` must be the structure that `cmd` reads, and its pointers must be valid for the command.
pub(super) unsafe fn bpf<T>(cmd: libc::c_int, attr: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees this.
    let fd = unsafe { command(cmd, attr) }?;
    // SAFETY: the kernel has just created this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Calls `bpf(2)`.
///
/// # Safety
/// The safety requirements of [`bpf`].
unsafe fn command<T>(cmd: libc::c_int, attr: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the call passes the length of `attr`; the caller guarantees that its pointers are
    // valid.
    let result = unsafe { libc::syscall(libc::SYS_bpf, cmd, &raw mut *attr, size_of::<T>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Returns the last line of the verifier's log that does not contain statistics.
fn last_line(log: &[u8]) -> String {
    let end = log.iter().position(|&b| b == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end])
        .lines()
        .rev()
        .find(|line| !line.is_empty() && !line.starts_with("processed "))
        .unwrap_or_default()
        .to_owned()
}
