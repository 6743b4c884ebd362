//! The seccomp filter program that stops a task at the calls in the table and at no other calls.
//!
//! The recorder assembles the program by hand, because libraries generate programs that kill a task
//! that makes another architecture's system call, and a recorder must never kill a recorded task.
//! The program unconditionally allows every call that has no rule, so the kernel adds such calls to
//! its bitmap of always-allowed calls and does not run the program for them.
//!
//! The traced program may have its own filters that return `TRACE` ([`super::program_filters`]).
//! The recorder's values start at [`FIRST`], far from 0, which is common in other filters. A stop
//! counts as the recorder's only if the recorder's filter returns the stop's value for the call
//! ([`is_ours`]).
//!
//! # Picture
//! ```text
//!   arch is ours? --no--> TRACE(FOREIGN)
//!   nr of rule 0? conditions hold? --> TRACE(FIRST)
//!   nr of rule 1? conditions hold? --> TRACE(FIRST + 1)   ...   ALLOW
//! ```

use super::call_table::{ANONYMOUS, CallRule, Observable, RULES, Test};
use super::program_filters::{CallData, Filter};
use libc::sock_filter;
use std::sync::LazyLock;
use vmarea_linux_sys::arch;

/// Value that the filter returns for the first rule.
const FIRST: u32 = 0xa5c1;
/// Value that the filter returns for another architecture's call.
const FOREIGN: u32 = FIRST - 1;

/// Which calls of the table stop a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stopping {
    /// All of them.
    All,
    /// Those that are not observed: see [`Observable`].
    Others,
}

static AT_ALL: LazyLock<Filter> = LazyLock::new(|| Filter::new(program(Stopping::All)));
static AT_OTHERS: LazyLock<Filter> = LazyLock::new(|| Filter::new(program(Stopping::Others)));

/// True if the recorder's filter returns `value` for this call.
pub(crate) fn is_ours(stopping: Stopping, call: &CallData, value: u32) -> bool {
    let ours = match stopping {
        Stopping::All => &AT_ALL,
        Stopping::Others => &AT_OTHERS,
    };
    ours.answer(call) == Some(libc::SECCOMP_RET_TRACE | value)
}

/// Returns the rule for a value returned by the filter; `None` for another architecture's call.
pub(crate) fn rule_of(value: u32) -> Option<&'static CallRule> {
    RULES.get(value.checked_sub(FIRST)? as usize)
}

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const NR_AT: u32 = 0;
const ARCH_AT: u32 = 4;

/// Returns the offset of the low half of argument `n` in `struct seccomp_data`.
fn low_half_at(n: u8) -> u32 {
    16 + 8 * u32::from(n)
}

fn step(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn stop(data: u32) -> sock_filter {
    step(RETURN, libc::SECCOMP_RET_TRACE | data, 0, 0)
}

/// Assembles the filter program.
pub(crate) fn program(stopping: Stopping) -> Vec<sock_filter> {
    let mut out = vec![
        step(LOAD, ARCH_AT, 0, 0),
        step(IF_EQUAL, arch::AUDIT, 1, 0),
        stop(FOREIGN),
    ];
    for (rule, data) in RULES.iter().zip(FIRST..) {
        let when = match (stopping, rule.observable()) {
            (Stopping::All, _) | (_, Observable::Never) => rule.when,
            (_, Observable::Always) => continue,
            (_, Observable::IfAnonymous) => &[Test::Masked {
                arg: 3,
                mask: ANONYMOUS,
                value: 0,
            }],
        };
        let body = condition(when, data);
        // A rule's code is far shorter than the 255 steps that a jump can skip.
        let skip = u8::try_from(body.len()).unwrap_or(u8::MAX);
        // Reload the number: an earlier condition may have overwritten the accumulator.
        out.push(step(LOAD, NR_AT, 0, 0));
        out.push(step(IF_EQUAL, rule.nr, 0, skip));
        out.extend(body);
    }
    out.push(step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0));
    out
}

/// Assembles steps that return `TRACE(data)` if every test holds and fall through otherwise.
///
/// The steps read only the low halves of arguments. Each test is on an `int`, on a flag in the low
/// half, or on whether a pointer is null. In practice, no pointer except null has a low half of 0.
fn condition(tests: &[Test], data: u32) -> Vec<sock_filter> {
    let mut body = vec![stop(data)];
    for test in tests.iter().rev() {
        let rest = u8::try_from(body.len()).unwrap_or(u8::MAX);
        let mut out = match *test {
            Test::Masked { arg, mask, value } => vec![
                step(LOAD, low_half_at(arg), 0, 0),
                step(AND, mask, 0, 0),
                step(IF_EQUAL, value, 0, rest),
            ],
            Test::Not { arg, value } => vec![
                step(LOAD, low_half_at(arg), 0, 0),
                step(IF_EQUAL, value, rest, 0),
            ],
            Test::OneOf { arg, values } => {
                let mut out = vec![step(LOAD, low_half_at(arg), 0, 0)];
                for (value, left) in values.iter().zip((1..=values.len()).rev()) {
                    // Skip the remaining comparisons and the jump.
                    let over = u8::try_from(left).unwrap_or(u8::MAX);
                    out.push(step(IF_EQUAL, *value, over, 0));
                }
                out.push(step(JUMP, rest.into(), 0, 0));
                out
            }
        };
        out.append(&mut body);
        body = out;
    }
    body
}

#[cfg(test)]
mod tests {
    use super::super::call_table::rule_for;
    use super::*;

    fn verdict(arch: u32, nr: u32, args: [u64; 6]) -> u32 {
        let ip = 0;
        let answer = AT_ALL.answer(&CallData { nr, arch, ip, args });
        answer.expect("a program that the kernel takes")
    }

    fn stops_at(nr: i64, args: [u64; 6]) -> Option<u32> {
        let stops = match verdict(arch::AUDIT, nr as u32, args) {
            libc::SECCOMP_RET_ALLOW => None,
            v => Some(rule_of(v & 0xffff).expect("a rule")),
        };
        // A tracer without a filter must stop at the same calls.
        let found = rule_for(nr as u64, &args);
        let same = match (stops, found) {
            (Some(a), Some(b)) => std::ptr::eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        assert!(same, "{stops:?} {found:?}");
        stops.map(|rule| rule.nr)
    }

    #[test]
    fn stops_at_the_calls_of_the_table_and_lets_others_pass() {
        assert_eq!(
            stops_at(libc::SYS_mmap, [0; 6]),
            Some(libc::SYS_mmap as u32)
        );
        for nr in [libc::SYS_read, libc::SYS_getpid, libc::SYS_futex, 100_000] {
            assert_eq!(stops_at(nr, [0; 6]), None, "{nr}");
        }
    }

    #[test]
    fn conditions_look_at_arguments() {
        let name = [0x53_56_4d_41, 0, 0, 0, 0, 0];
        assert!(stops_at(libc::SYS_prctl, name).is_some());
        let set_name = [15, 0, 0, 0, 0, 0];
        assert!(stops_at(libc::SYS_prctl, set_name).is_none());
        let set = [0, libc::RLIMIT_DATA.into(), 0x7ffe_0000_1000, 0, 0, 0];
        assert!(stops_at(libc::SYS_prlimit64, set).is_some());
        let ask = [0, libc::RLIMIT_DATA.into(), 0, 0, 0, 0];
        assert!(stops_at(libc::SYS_prlimit64, ask).is_none());
        assert!(stops_at(libc::SYS_ioctl, [3, 0xc018_aa3f, 0, 0, 0, 0]).is_some());
        assert!(stops_at(libc::SYS_ioctl, [3, 0x5401, 0, 0, 0, 0]).is_none());
        let direct = (libc::O_DIRECT | libc::O_RDWR) as u64;
        assert!(stops_at(libc::SYS_openat, [0, 0, direct, 0, 0, 0]).is_some());
        assert!(stops_at(libc::SYS_openat, [0, 0, 0, 0, 0, 0]).is_none());
        assert!(stops_at(libc::SYS_setrlimit, [9, 0, 0, 0, 0, 0]).is_some());
        assert!(stops_at(libc::SYS_setrlimit, [2, 0, 0, 0, 0, 0]).is_some());
        assert!(stops_at(libc::SYS_setrlimit, [7, 0, 0, 0, 0, 0]).is_none());
    }

    #[test]
    fn a_call_of_another_architecture_is_reported_not_killed() {
        let v = verdict(0x4000_0003, 90, [0; 6]);
        assert_eq!(v, libc::SECCOMP_RET_TRACE | FOREIGN);
        assert!(rule_of(FOREIGN).is_none());
    }

    #[test]
    fn a_value_is_ours_with_its_own_call_only() {
        let call = |nr: i64| CallData {
            nr: nr as u32,
            arch: arch::AUDIT,
            ip: 0,
            args: [0; 6],
        };
        assert!(is_ours(Stopping::All, &call(libc::SYS_mmap), FIRST));
        assert!(!is_ours(Stopping::All, &call(libc::SYS_mmap), FIRST + 1));
        assert!(!is_ours(Stopping::All, &call(libc::SYS_getppid), FIRST));
        assert!(!is_ours(Stopping::All, &call(libc::SYS_mmap), FOREIGN));
    }
}
