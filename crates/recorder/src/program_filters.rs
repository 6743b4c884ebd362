//! Seccomp filters of the traced program.
//!
//! A filter that returns `SECCOMP_RET_TRACE` makes a call fail with `ENOSYS` if there is no tracer.
//! The program's filter is not meant for the recorder, so under the recorder the call must fail
//! with `ENOSYS` as well. The value that the filter returned distinguishes such a stop from one
//! caused by the recorder's filter ([`super::filter`]). If the value is that of the recorder's
//! filter, a filter of the program may have returned `TRACE` as well, so the recorder evaluates the
//! program's filters. For this purpose, the recorder keeps a copy of each thread's filters that can
//! return `TRACE`, and updates the copies when filters are installed or inherited.
//!
//! # Linux
//! `seccomp(2)`. If several filters return the same action, the value is that of the filter
//! installed last, which is never the recorder's filter. A filter installed before the recording is
//! unknown, but its value matters only at calls that the recorder's filter does not stop.

use libc::sock_filter;
use std::collections::HashMap;
use std::rc::Rc;

/// Size of `struct seccomp_data` in bytes.
const DATA_LEN: usize = 64;
/// Number of words in a filter's scratch memory: `BPF_MEMWORDS`.
const MEMORY: usize = 16;
/// Size of one instruction in bytes.
const STEP: usize = 8;

/// Input of a filter: `struct seccomp_data`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallData {
    /// System call number.
    pub nr: u32,
    /// Architecture of the call, one of `AUDIT_ARCH_*`.
    pub arch: u32,
    /// Instruction pointer of the call.
    pub ip: u64,
    /// Arguments of the call.
    pub args: [u64; 6],
}

impl CallData {
    fn to_bytes(self) -> [u8; DATA_LEN] {
        let mut bytes = [0; DATA_LEN];
        bytes[..4].copy_from_slice(&self.nr.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.arch.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.ip.to_ne_bytes());
        for (place, arg) in bytes[16..].chunks_exact_mut(8).zip(self.args) {
            place.copy_from_slice(&arg.to_ne_bytes());
        }
        bytes
    }
}

/// A classic BPF program.
#[derive(Clone, Debug)]
pub(crate) struct Filter(Vec<sock_filter>);

impl Filter {
    /// Creates a filter from its instructions.
    pub(crate) fn new(steps: Vec<sock_filter>) -> Filter {
        Filter(steps)
    }

    /// Creates a filter from its bytes in memory.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Filter {
        let step = |b: &[u8]| sock_filter {
            code: u16::from_ne_bytes([b[0], b[1]]),
            jt: b[2],
            jf: b[3],
            k: u32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
        };
        Filter(bytes.chunks_exact(STEP).map(step).collect())
    }

    /// True if the filter can return `TRACE`.
    fn may_trace(&self) -> bool {
        let (k, a) = (libc::BPF_RET | libc::BPF_K, libc::BPF_RET | libc::BPF_A);
        self.0.iter().any(|s| match u32::from(s.code) {
            code if code == k => is_trace(s.k),
            code => code == a,
        })
    }

    /// Returns the filter's return value; `None` for a program that the kernel would reject.
    pub(crate) fn answer(&self, data: &CallData) -> Option<u32> {
        let data = data.to_bytes();
        let word = |at: u32| {
            let bytes = data.get(at as usize..)?.first_chunk::<4>()?;
            Some(u32::from_ne_bytes(*bytes))
        };
        let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; MEMORY]);
        let mut at = 0usize;
        // Jumps only go forward, so the loop ends.
        while let Some(step) = self.0.get(at) {
            at += 1;
            let code = u32::from(step.code);
            let operand = if code & 0x08 == libc::BPF_X {
                x
            } else {
                step.k
            };
            match code & 0x07 {
                libc::BPF_LD | libc::BPF_LDX => {
                    let value = match code & 0xe0 {
                        libc::BPF_ABS => word(step.k)?,
                        libc::BPF_LEN => DATA_LEN as u32,
                        libc::BPF_IMM => step.k,
                        libc::BPF_MEM => *memory.get(step.k as usize)?,
                        _ => return None,
                    };
                    *(if code & 0x07 == libc::BPF_LD {
                        &mut a
                    } else {
                        &mut x
                    }) = value;
                }
                libc::BPF_ST => *memory.get_mut(step.k as usize)? = a,
                libc::BPF_STX => *memory.get_mut(step.k as usize)? = x,
                libc::BPF_ALU => a = computed(code & 0xf0, a, operand)?,
                libc::BPF_JMP if code & 0xf0 == libc::BPF_JA => at += step.k as usize,
                libc::BPF_JMP => {
                    let holds = compared(code & 0xf0, a, operand)?;
                    at += usize::from(if holds { step.jt } else { step.jf });
                }
                libc::BPF_RET => {
                    let from_a = code & 0x18 == libc::BPF_A;
                    return Some(if from_a { a } else { step.k });
                }
                libc::BPF_MISC if code & 0xf8 == libc::BPF_TXA => a = x,
                libc::BPF_MISC => x = a,
                _ => return None,
            }
        }
        None
    }
}

fn computed(operation: u32, a: u32, operand: u32) -> Option<u32> {
    Some(match operation {
        libc::BPF_ADD => a.wrapping_add(operand),
        libc::BPF_SUB => a.wrapping_sub(operand),
        libc::BPF_MUL => a.wrapping_mul(operand),
        // A division by zero ends the program with 0.
        libc::BPF_DIV => a.checked_div(operand)?,
        libc::BPF_AND => a & operand,
        libc::BPF_OR => a | operand,
        libc::BPF_XOR => a ^ operand,
        libc::BPF_LSH => a.wrapping_shl(operand),
        libc::BPF_RSH => a.wrapping_shr(operand),
        libc::BPF_NEG => a.wrapping_neg(),
        _ => return None,
    })
}

fn compared(operation: u32, a: u32, operand: u32) -> Option<bool> {
    Some(match operation {
        libc::BPF_JEQ => a == operand,
        libc::BPF_JGT => a > operand,
        libc::BPF_JGE => a >= operand,
        libc::BPF_JSET => a & operand != 0,
        _ => return None,
    })
}

/// True for a filter return value whose action is `SECCOMP_RET_TRACE`.
fn is_trace(answer: u32) -> bool {
    answer & libc::SECCOMP_RET_ACTION_FULL == libc::SECCOMP_RET_TRACE
}

/// Filters that can return `TRACE`, for each thread.
#[derive(Debug, Default)]
pub(crate) struct ProgramFilters {
    of: HashMap<i32, Vec<Rc<Filter>>>,
}

impl ProgramFilters {
    /// Adds a filter to the threads that installed it: one thread, or all threads of a process.
    pub(crate) fn set(&mut self, bytes: &[u8], tids: impl Iterator<Item = i32>) {
        let filter = Rc::new(Filter::from_bytes(bytes));
        if filter.may_trace() {
            for tid in tids {
                self.of.entry(tid).or_default().push(Rc::clone(&filter));
            }
        }
    }

    /// Copies the filters of a new thread's creator to the new thread.
    pub(crate) fn inherit(&mut self, parent: i32, child: i32) {
        match self.of.get(&parent).cloned() {
            Some(filters) => self.of.insert(child, filters),
            None => self.of.remove(&child),
        };
    }

    /// Moves the filters of a thread that continues under another thread ID to that ID.
    pub(crate) fn rename(&mut self, from: i32, to: i32) {
        match self.of.remove(&from) {
            Some(filters) => self.of.insert(to, filters),
            None => self.of.remove(&to),
        };
    }

    /// Forgets a thread that has exited.
    pub(crate) fn gone(&mut self, tid: i32) {
        self.of.remove(&tid);
    }

    /// True if a filter of the thread returns `TRACE` for a call.
    pub(crate) fn trace(&self, tid: i32, data: &CallData) -> bool {
        let filters = self.of.get(&tid);
        filters.is_some_and(|filters| {
            let mut answers = filters.iter().filter_map(|filter| filter.answer(data));
            answers.any(is_trace)
        })
    }

    /// True if the thread has filters that can return `TRACE`.
    pub(crate) fn has(&self, tid: i32) -> bool {
        self.of.contains_key(&tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GETPPID: u32 = libc::SYS_getppid as u32;

    fn step(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
        let code = code as u16;
        sock_filter { code, jt, jf, k }
    }

    fn call(nr: u32, first: u64) -> CallData {
        CallData {
            nr,
            arch: 7,
            ip: 9,
            args: [first, 0, 0, 0, 0, 0],
        }
    }

    /// Creates a filter that returns `TRACE` for `getppid` if `args[0] << 4` is above 4096.
    fn filter() -> Vec<sock_filter> {
        use libc::*;
        vec![
            step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
            step(BPF_JMP | BPF_JEQ | BPF_K, GETPPID, 0, 7),
            step(BPF_LD | BPF_W | BPF_ABS, 16, 0, 0),
            step(BPF_ALU | BPF_LSH | BPF_K, 4, 0, 0),
            step(BPF_ST, 3, 0, 0),
            step(BPF_LDX | BPF_IMM, 4096, 0, 0),
            step(BPF_LD | BPF_MEM, 3, 0, 0),
            step(BPF_JMP | BPF_JGT | BPF_X, 0, 0, 1),
            step(BPF_RET | BPF_K, SECCOMP_RET_TRACE | 5, 0, 0),
            step(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0),
        ]
    }

    #[test]
    fn a_filter_is_evaluated_as_the_kernel_does() {
        let filter = Filter::new(filter());
        let trace = libc::SECCOMP_RET_TRACE | 5;
        assert_eq!(filter.answer(&call(GETPPID, 257)), Some(trace));
        let allow = Some(libc::SECCOMP_RET_ALLOW);
        assert_eq!(filter.answer(&call(GETPPID, 256)), allow);
        assert_eq!(filter.answer(&call(GETPPID + 1, 257)), allow);
        assert_eq!(Filter::new(Vec::new()).answer(&call(0, 0)), None);
    }

    #[test]
    fn threads_have_the_filters_of_those_that_made_them() {
        let bytes: Vec<u8> = filter()
            .iter()
            .flat_map(|s| {
                let mut bytes = s.code.to_ne_bytes().to_vec();
                bytes.extend([s.jt, s.jf]);
                bytes.extend(s.k.to_ne_bytes());
                bytes
            })
            .collect();
        let mut all = ProgramFilters::default();
        all.set(&bytes, [7].into_iter());
        all.inherit(7, 8);
        all.inherit(1, 9);
        let hit = call(GETPPID, 1000);
        assert!(all.trace(7, &hit) && all.trace(8, &hit));
        assert!(!all.trace(8, &call(GETPPID, 0)) && !all.has(9));
        all.rename(8, 7);
        all.gone(7);
        assert!(!all.has(7) && !all.has(8));
    }

    #[test]
    fn filters_that_never_trace_are_not_kept() {
        let allow = step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0);
        assert!(!Filter::new(vec![allow]).may_trace());
        let from_a = step(libc::BPF_RET | libc::BPF_A, 0, 0, 0);
        assert!(Filter::new(vec![from_a]).may_trace());
    }
}
