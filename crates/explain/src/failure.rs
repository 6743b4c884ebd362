//! What a failed call says about the limit on mappings.
//!
//! `ENOMEM` has several causes, of which the limit is one. `EAGAIN` can be due to the limit as well:
//! `madvise` gives it since Linux 6.3, and `pthread_create` whenever it cannot map a stack.

use serde::Serialize;
use vmarea_process::Process;
use vmarea_process::pasted::FailedCall;
use vmarea_process::processes::DEFAULT_MAX_MAP_COUNT;

/// Reason why a call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// The process has as many mappings as it may have.
    MapCount,
    /// The size of the address space reached `RLIMIT_AS`.
    AddressSpace,
    /// The machine's committed memory reached its limit.
    Overcommit,
    /// Something else: the process has fewer mappings than it may have.
    Other,
}

/// A failed call and the reason for its failure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failure {
    /// Name of the call.
    pub call: String,
    /// Error number, if known.
    pub errno: Option<i32>,
    /// Reason for the failure.
    pub because: Because,
    /// The finding as a sentence.
    pub text: String,
}

/// Mappings that the process may lack to the limit when a call needs more than one.
const NEAR: u64 = 8;

/// Judges the call that failed in a process, if its file describes one.
pub fn failure(process: &Process) -> Option<Failure> {
    let failed = process.failed.as_ref()?;
    let because = because(process, failed);
    let name = match failed.errno {
        Some(libc::ENOMEM) => " with ENOMEM",
        Some(libc::EAGAIN) => " with EAGAIN",
        _ => "",
    };
    let why = match because {
        Because::MapCount => "the process had as many mappings as it may have",
        Because::AddressSpace => {
            "the size of the address space was at RLIMIT_AS; the number of mappings was not the \
             reason"
        }
        Because::Overcommit => {
            "the machine's committed memory was at its limit (vm.overcommit_memory); the number of \
             mappings was not the reason"
        }
        Because::Other if failed.errno == Some(libc::EAGAIN) => {
            "the process had fewer mappings than it may have: see the limits on threads, memory and \
             locked memory"
        }
        Because::Other => "the process had fewer mappings than it may have: look elsewhere",
    };
    Some(Failure {
        text: format!("{} failed{name}: {why}", failed.call),
        call: failed.call.clone(),
        errno: failed.errno,
        because,
    })
}

fn because(process: &Process, failed: &FailedCall) -> Because {
    let size = |mappings: &[vmarea_process::Mapping]| {
        let sizes = mappings.iter().map(|mapping| mapping.range().len_bytes());
        sizes.fold(0, u64::saturating_add)
    };
    // Without a limit in the file, a list near Linux's default most probably met that one.
    let assumed = || Some(DEFAULT_MAX_MAP_COUNT).filter(|limit| process.total <= limit + NEAR);
    let limit = process.limit.or_else(assumed);
    if limit.is_some_and(|limit| process.total + NEAR >= limit) {
        return Because::MapCount;
    }
    if failed.errno == Some(libc::EAGAIN) {
        return Because::Other;
    }
    // The refused mapping is not in the list, so a limit that is nearly reached counts.
    let nearly = |used: u64, limit: u64| used >= limit - limit / 16;
    if failed
        .rlimit_as
        .is_some_and(|limit| nearly(size(&process.mappings), limit))
    {
        return Because::AddressSpace;
    }
    match failed.committed_kib {
        Some((limit, used)) if nearly(used, limit) => Because::Overcommit,
        _ => Because::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(limit: u64, errno: i32, rlimit_as: Option<u64>, committed: (u64, u64)) -> Because {
        let text: String = (0..20)
            .map(|n| {
                format!(
                    "{:x}-{:x} rw-p 00000000 00:00 0 \n",
                    n * 0x3000,
                    n * 0x3000 + 0x2000
                )
            })
            .collect();
        let mut process = Process::from_text("x".to_owned(), text.as_bytes()).unwrap();
        process.limit = Some(limit);
        process.failed = Some(FailedCall {
            call: "mmap".to_owned(),
            errno: Some(errno),
            rlimit_as,
            committed_kib: Some(committed),
        });
        failure(&process).unwrap().because
    }

    #[test]
    fn each_reason_is_told_from_the_others() {
        let (none, full) = ((1000, 10), (1000, 990));
        assert_eq!(judged(21, libc::ENOMEM, None, none), Because::MapCount);
        assert_eq!(
            judged(65_530, libc::ENOMEM, Some(0x28000), none),
            Because::AddressSpace
        );
        assert_eq!(
            judged(65_530, libc::ENOMEM, Some(1 << 40), full),
            Because::Overcommit
        );
        assert_eq!(judged(65_530, libc::ENOMEM, None, none), Because::Other);
        assert_eq!(judged(65_530, libc::EAGAIN, None, full), Because::Other);
    }
}
