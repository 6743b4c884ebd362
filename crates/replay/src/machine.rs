//! Settings and policy of the machine on which a trace was recorded.

use vmarea::policy::{Policy, name};
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

/// Returns the recorded kernel's rules. If there are no verified rules for that kernel's version,
/// returns those of another version, and a remark.
pub fn policy(header: &Header) -> (Policy, Option<String>) {
    let Some(version) = version(&header.kernel_release) else {
        let what = match header.kernel_release.as_str() {
            "" => "the trace does not name its kernel".to_owned(),
            release => format!("the kernel of the trace ({release:?}) is unknown"),
        };
        let note = format!("{what}: using the rules of Linux 7.3");
        return (Policy::LINUX, Some(note));
    };
    let mut policy = Policy::for_kernel(version);
    if policy.rules.version == version {
        policy.rules = policy.rules.repaired(patch(&header.kernel_release));
    }
    let note = name::doubt(&policy.rules, version);
    (policy, note)
}

/// Returns the major and minor version of a release such as `6.18.44-amd64`.
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Returns the third number of a release such as `6.12.107+deb13-amd64`; 0 if it has none.
pub fn patch(release: &str) -> u32 {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    parts.nth(2).and_then(|p| p.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version("6.18.44-amd64"), Some((6, 18)));
        assert_eq!(version("5.10.0"), Some((5, 10)));
        assert_eq!(version(""), None);
        assert_eq!(version("weird"), None);
        assert_eq!(patch("6.12.107+deb13-amd64"), 107);
        assert_eq!(patch("6.18"), 0);
    }

    #[test]
    fn lists_of_nodes() {
        assert_eq!(nodes("0"), 1);
        assert_eq!(nodes("0-1,3"), 0b1011);
        assert_eq!(nodes("x,62-70"), 3 << 62);
    }

    #[test]
    fn rules_that_are_not_verified_are_named() {
        let header = |release: &str| Header {
            kernel_release: release.into(),
            ..Header::default()
        };
        let rules = |release| {
            let (policy, note) = policy(&header(release));
            (policy.rules.version, note.unwrap_or_default())
        };
        let (version, note) = rules("6.15.2");
        assert_eq!(version, (6, 14));
        assert!(
            note.ends_with("for Linux 6.15: using those of Linux 6.14"),
            "{note}"
        );
        let (version, note) = rules("6.14.2");
        assert_eq!(version, (6, 14));
        assert!(
            note.ends_with("6.14 are known from its sources only"),
            "{note}"
        );
        assert_eq!(rules("6.18.1"), ((6, 18), String::new()));
    }
}
