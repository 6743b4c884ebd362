//! Settings and policy of the machine on which a trace was recorded.

use vmarea::policy::kernel::KernelRules;
use vmarea::{HugePages, Overcommit, System};
use vmarea_trace::event::Header;

/// Returns the machine's settings from the trace header.
pub fn system(header: &Header) -> System {
    let text = |name: &str| header.settings.get(name).map(String::as_str);
    let number = |name: &str| text(name).and_then(|s| s.trim().parse::<u64>().ok());
    let default = System::default();
    // The setting for the one modelled huge page size overrides the general one (since 6.8).
    let own_size = text("thp.2048kB").filter(|word| *word != "inherit");
    let overcommit = match number("vm.overcommit_memory") {
        Some(1) => Overcommit::Always,
        // The commit limit of overcommit mode 2 applies to all processes on the machine together,
        // and the trace does not contain all of them.
        Some(2) => Overcommit::Always,
        _ => Overcommit::Guess(number("mem.total_pages").unwrap_or(u64::MAX)),
    };
    System {
        max_map_count: number("vm.max_map_count").map_or(default.max_map_count, |n| n as u32),
        mmap_min_addr: number("vm.mmap_min_addr").unwrap_or(default.mmap_min_addr),
        built_in_min_addr: number("mm.lowest_addr").unwrap_or(default.built_in_min_addr),
        stack_guard_gap: number("stack_guard_gap")
            .map_or(default.stack_guard_gap, |pages| pages << 12),
        overcommit,
        huge_pages: match own_size.or(text("thp.enabled")) {
            Some("always") => HugePages::Always,
            Some("madvise") => HugePages::Madvise,
            _ => HugePages::Never,
        },
        shmem_huge: !matches!(text("thp.shmem_enabled"), None | Some("never" | "deny")),
        protection_keys: text("cpu.ospke") == Some("1"),
        nodes: text("node.online").map_or(default.nodes, nodes),
        ..default
    }
}

/// Converts a list such as `0-1,3` to a bit mask; numbers above 63 are ignored.
fn nodes(list: &str) -> u64 {
    let number = |s: &str| s.trim().parse::<u32>().ok();
    let mut bits = 0;
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Some(first), Some(last)) = (number(first), number(last)) {
            (first..=last.min(63)).for_each(|n| bits |= 1u64 << n);
        }
    }
    bits
}

/// Returns the recorded kernel's rules: those of its version, corrected by what the recorder found
/// out on the kernel.
pub fn rules(header: &Header) -> KernelRules {
    let setting = |name| header.settings.get(name).map(String::as_str);
    // The release names the version of Debian's kernels, but not that of their stable updates.
    let release = setting("kernel.build").unwrap_or(&header.kernel_release);
    let answer = |(name, value): (&String, &String)| {
        let rule = name.strip_prefix("rules.")?;
        Some(format!("{rule}={value}"))
    };
    let answers: Vec<_> = header.settings.iter().filter_map(answer).collect();
    KernelRules::of(release, &answers.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes() {
        assert_eq!(nodes("0"), 1);
        assert_eq!(nodes("0-1,3"), 0b1011);
        assert_eq!(nodes("x,62-70"), 3 << 62);
    }

    fn header(release: &str, settings: &[(&str, &str)]) -> Header {
        let settings = settings.iter();
        Header {
            kernel_release: release.into(),
            settings: settings
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            ..Header::default()
        }
    }

    #[test]
    fn the_recorded_answers_take_precedence() {
        let vendor = rules(&header(
            "5.14.0-503.el9",
            &[("rules.mdwe", "on"), ("rules.mseal", "on")],
        ));
        assert!(vendor.policy.rules.mseal && vendor.policy.rules.mdwe);
        assert_eq!(vendor.differing, ["mdwe", "mseal"]);
        assert!(vendor.remark().is_some());
        assert!(!rules(&header("5.14.0-503.el9", &[])).policy.rules.mseal);
    }

    #[test]
    fn the_build_names_the_stable_update() {
        let rules = |settings| rules(&header("6.12.0-50-amd64", settings)).policy.rules;
        assert!(!rules(&[]).dontunmap.cuts_locked);
        assert!(rules(&[("kernel.build", "6.12.117")]).dontunmap.cuts_locked);
    }
}
