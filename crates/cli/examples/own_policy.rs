//! The vmarea command with a policy of one's own, written in Rust: see docs/policies.md.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use vmarea::policy::{MergePolicy, Policy};
use vmarea::types::VmFlags;
use vmarea::vma::VmaView;
use vmarea::vma::merge::{Proposal, Refusal};

/// Linux 6.12, in which `MADV_DONTDUMP` keeps no VMAs apart, and no merge makes a VMA larger than
/// 64 MiB.
struct Mine;

impl MergePolicy for Mine {
    fn name(&self) -> &'static str {
        "mine"
    }

    fn base(&self) -> Policy {
        Policy::LINUX_6_12
    }

    fn sticky(&self) -> VmFlags {
        VmFlags::DONTDUMP
    }

    fn refuses(&self, range: &Proposal, neighbour: &VmaView) -> Option<Refusal> {
        let pages = range.range.pages() + neighbour.range.pages();
        (pages > 1 << 14).then_some(Refusal::Special)
    }
}

fn main() -> ExitCode {
    vmarea_cli::run_with(&[&Mine])
}
