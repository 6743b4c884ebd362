//! Advice for a caller whose operation was not permitted.
//!
//! For most users, the advice is "run as root". Root needs different advice. If a process run by
//! root lacks a capability, it probably runs in a container, which must be granted the capability.
//! If the process has every capability, a security module or another user namespace forbids the
//! operation.

use std::fs;
use vmarea_linux_sys::task_status::TaskStatus;

/// A capability that vmarea may need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capability {
    /// Permits inspecting and tracing the processes of other users.
    SysPtrace = 19,
    /// Permits opening performance counters.
    Perfmon = 38,
    /// Permits loading BPF programs.
    Bpf = 39,
}

impl Capability {
    /// Returns the name of the capability.
    pub fn name(self) -> &'static str {
        match self {
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        }
    }
}

/// Returns Yama's setting `kernel.yama.ptrace_scope`; empty if the kernel has no Yama.
pub fn ptrace_scope() -> String {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    scope.unwrap_or_default().trim().to_owned()
}

/// Returns advice for this process after an operation failed for lack of the `needed` capabilities.
pub fn remedy(needed: &[Capability]) -> String {
    let status = TaskStatus::own();
    let is_root = status.numbers::<u32>("Uid").nth(1) == Some(0);
    remedy_of(is_root, status.mask("CapEff").unwrap_or(0), needed)
}

fn remedy_of(root: bool, held: u64, needed: &[Capability]) -> String {
    if !root {
        return "run as root".to_owned();
    }
    let lacks = needed.iter().filter(|cap| held >> **cap as u32 & 1 == 0);
    let lacks: Vec<_> = lacks.map(|cap| cap.name()).collect();
    if lacks.is_empty() {
        let why = "a security module, or a user namespace that is not the first, forbids it";
        return why.to_owned();
    }
    let names = lacks.join(" and ");
    format!("root lacks {names} here, as in a container: grant the missing capabilities")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_told_to_run_as_root() {
        let needed = [Capability::Bpf, Capability::Perfmon];
        assert_eq!(remedy_of(false, 0, &needed), "run as root");
        let text = remedy_of(true, 1 << 38, &needed);
        assert!(text.contains("lacks CAP_BPF here"), "{text}");
        let text = remedy_of(true, 0, &needed);
        assert!(text.contains("CAP_BPF and CAP_PERFMON"), "{text}");
        let text = remedy_of(true, u64::MAX, &needed);
        assert!(text.contains("security module"), "{text}");
    }
}
