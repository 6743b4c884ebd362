//! The open file behind a descriptor of the current task, as BPF programs find it.
//!
//! The kernel's address of a `struct file` identifies an open file description while a descriptor
//! or a mapping refers to it. Unlike a duplicate of the descriptor, it does not keep the file open.
//!
//! # Linux
//! `task_struct.files`, `files_struct.fdt`, `fdtable.fd` (Linux 2.6.14). `bpf_probe_read_kernel`
//! (5.5), which the lockdown mode `confidentiality` forbids.

use super::bpf::tracepoint::offset;
use super::bpf::{Assembler, Reg, Width};
use super::btf::Btf;
use std::io;

/// `bpf_get_current_task()`.
const HELPER_CURRENT_TASK: i32 = 35;
/// `bpf_probe_read_kernel(to, size, from)`.
const HELPER_PROBE_READ_KERNEL: i32 = 113;

/// Offsets of the pointers that lead from a task to its descriptors.
pub(super) struct OpenFiles([i32; 3]);

impl OpenFiles {
    pub(super) fn find(btf: &Btf) -> io::Result<OpenFiles> {
        let path = [
            ("task_struct", "files"),
            ("files_struct", "fdt"),
            ("fdtable", "fd"),
        ];
        let mut offsets = [0; 3];
        for (to, (of, name)) in offsets.iter_mut().zip(path) {
            *to = offset(btf, of, name, 8)?.into();
        }
        Ok(OpenFiles(offsets))
    }

    /// Writes the address of the `struct file` behind the descriptor in the low half of the word at
    /// `Frame + descriptor` to `Frame + to`; something else if no file is open there.
    ///
    /// Overwrites R0 to R5.
    pub(super) fn address(&self, code: &mut Assembler, descriptor: i16, to: i16) {
        code.call(HELPER_CURRENT_TASK);
        for offset in self.0 {
            code.add(Reg::R0, offset);
            read(code, to);
        }
        // The array of pointers to the files.
        code.load(Width::Word, Reg::R1, Reg::Frame, descriptor);
        code.shift_left(Reg::R1, 3);
        code.add_register(Reg::R0, Reg::R1);
        read(code, to);
    }
}

/// Reads the word at the kernel's address in R0 to `Frame + to` and to R0; 0 if there is none.
fn read(code: &mut Assembler, to: i16) {
    code.copy(Reg::R1, Reg::Frame);
    code.add(Reg::R1, to.into());
    code.set(Reg::R2, 8);
    code.copy(Reg::R3, Reg::R0);
    code.call(HELPER_PROBE_READ_KERNEL);
    code.load(Width::Double, Reg::R0, Reg::Frame, to);
}
