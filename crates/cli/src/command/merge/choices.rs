//! The choices that `--by` and `--fix` offer. The crate `repair`, whose choices they are, knows no
//! command line.

use clap::ValueEnum;
use vmarea_repair::{Fix, Way};

/// How pages get into the fresh mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum By {
    /// The kernel moves the pages; since Linux 6.8, and the default there
    Move,
    /// The pages are copied: takes longer, splits huge pages, and refuses a process with memory that
    /// a device could write to (pinned memory, io_uring, GPUs)
    Copy,
}

impl From<By> for Way {
    fn from(by: By) -> Way {
        match by {
            By::Move => Way::Move,
            By::Copy => Way::Copy,
        }
    }
}

/// A repair before the merge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum First {
    /// Turns guard pages made with mprotect into guard markers; needs Linux 6.13; not for a program
    /// that later makes guard pages writable
    Guards,
    /// Clears MADV_DONTFORK and MADV_DONTDUMP where mappings with and without the flag alternate; a
    /// fork then copies that memory
    Flags,
    /// Merges adjacent reserved ranges that have no pages
    Empties,
    /// Touches and drops one page of each reservation, so that memory committed there later can merge
    Priming,
}

impl From<First> for Fix {
    fn from(first: First) -> Fix {
        match first {
            First::Guards => Fix::Guards,
            First::Flags => Fix::Flags,
            First::Empties => Fix::Empties,
            First::Priming => Fix::Priming,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_choice_has_the_name_that_reports_give_it() {
        let name = |choice: &First| choice.to_possible_value().unwrap().get_name().to_owned();
        let fixes: Vec<_> = First::value_variants()
            .iter()
            .map(|&f| Fix::from(f))
            .collect();
        assert_eq!(fixes, Fix::ALL);
        let names: Vec<_> = First::value_variants().iter().map(name).collect();
        assert_eq!(names, Fix::ALL.map(Fix::name));
        for by in By::value_variants() {
            let value = by.to_possible_value().unwrap();
            assert_eq!(value.get_name(), super::super::name((*by).into()));
        }
    }
}
