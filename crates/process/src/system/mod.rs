//! Properties of a machine, task or file system that affect an address space.
//!
//! A replay needs properties that the recorded program's system calls do not reveal: kernel
//! settings, a task's limits and capabilities, and the type of a file's file system. Each property
//! is read from the interface through which Linux provides it; a property that cannot be read is
//! omitted, not guessed. The module [`crate::maps`] reads mappings, and [`crate::view`] reads data
//! that `/proc` does not show.

mod limit;
mod task;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::probed;
use vmarea_trace::event::Header;

pub use limit::{Assignment, LimitFiles, limit_files};
pub use task::{capabilities, mm_info};

const THP: &str = "/sys/kernel/mm/transparent_hugepage";
/// Default number of pages in the gap between a stack and the mapping below it. A kernel command
/// line option can change this number.
const STACK_GUARD_GAP: u32 = 256;

/// Files whose first line is the value of a setting, keyed by the setting's name in a trace.
const FILES: [(&str, &str); 19] = [
    ("kernel.numa_balancing", "/proc/sys/kernel/numa_balancing"),
    (
        "kernel.randomize_va_space",
        "/proc/sys/kernel/randomize_va_space",
    ),
    ("ksm.run", "/sys/kernel/mm/ksm/run"),
    ("node.online", "/sys/devices/system/node/online"),
    (
        "vm.admin_reserve_kbytes",
        "/proc/sys/vm/admin_reserve_kbytes",
    ),
    ("vm.hugetlb_shm_group", "/proc/sys/vm/hugetlb_shm_group"),
    ("vm.legacy_va_layout", "/proc/sys/vm/legacy_va_layout"),
    ("vm.max_map_count", "/proc/sys/vm/max_map_count"),
    ("vm.memfd_noexec", "/proc/sys/vm/memfd_noexec"),
    ("vm.mmap_min_addr", "/proc/sys/vm/mmap_min_addr"),
    ("vm.mmap_rnd_bits", "/proc/sys/vm/mmap_rnd_bits"),
    (
        "vm.mmap_rnd_compat_bits",
        "/proc/sys/vm/mmap_rnd_compat_bits",
    ),
    ("vm.nr_hugepages", "/proc/sys/vm/nr_hugepages"),
    (
        "vm.nr_overcommit_hugepages",
        "/proc/sys/vm/nr_overcommit_hugepages",
    ),
    ("vm.overcommit_kbytes", "/proc/sys/vm/overcommit_kbytes"),
    ("vm.overcommit_memory", "/proc/sys/vm/overcommit_memory"),
    ("vm.overcommit_ratio", "/proc/sys/vm/overcommit_ratio"),
    (
        "vm.unprivileged_userfaultfd",
        "/proc/sys/vm/unprivileged_userfaultfd",
    ),
    ("vm.user_reserve_kbytes", "/proc/sys/vm/user_reserve_kbytes"),
];

/// Returns the running kernel's full version, such as `6.1.176`.
///
/// Debian names releases after the kernel ABI (`6.1.0-50-amd64`); the upstream version from which
/// the package was built is in the `uname` version string.
pub fn build() -> String {
    let uname = rustix::system::uname();
    let beside = uname.version().to_string_lossy();
    let debian = beside
        .split_once("Debian ")
        .map(|(_, build)| build.split(['-', ' ']).next().unwrap_or_default());
    match debian {
        Some(build) if build.starts_with(|c: char| c.is_ascii_digit()) => build.to_owned(),
        _ => uname.release().to_string_lossy().into_owned(),
    }
}

/// Returns a trace header with all data about this machine that is known before the recording.
///
/// The header's fields about the recording itself (command, sources, writer) are empty.
pub fn header() -> Header {
    let uname = rustix::system::uname();
    Header {
        kernel_release: uname.release().to_string_lossy().into_owned(),
        machine: uname.machine().to_string_lossy().into_owned(),
        page_size: rustix::param::page_size() as u32,
        settings: settings(),
        ..Header::default()
    }
}

/// Returns the running kernel's settings that affect address spaces, keyed by their names in a
/// trace.
///
/// If a file lists alternatives like `always [madvise] never`, the value is the word in brackets.
/// In addition to the settings listed at [`Header::settings`], the map contains:
/// - `thp.<file>` for each file of `transparent_hugepage` (`thp.defrag`, `thp.use_zero_page`,
///   `thp.hpage_pmd_size`, ...)
/// - `thp.<size>` and `thp.<size>.shmem_enabled` for each size of huge page (`thp.64kB`)
/// - `mem.total_pages`
/// - `mm.lowest_addr`: the lowest address that the kernel chooses for a mapping; no file shows it
/// - `kernel.build`: the version that [`build`] returns
/// - `rules.<rule>`: what a rule of the kernel was found to be ([`probed::answers`])
/// - `cpu.ospke`: 1 if the processor has protection keys and the kernel uses them
pub fn settings() -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    for (name, path) in FILES {
        if let Some(value) = read_setting(Path::new(path)) {
            settings.insert(name.to_owned(), value);
        }
    }
    settings.extend(thp_settings(Path::new(THP)));
    if let Ok(text) = fs::read_to_string("/proc/swaps") {
        let any = text.lines().nth(1).is_some();
        settings.insert("swap".to_owned(), u8::from(any).to_string());
    }
    if let Some(pages) = total_pages() {
        settings.insert("mem.total_pages".to_owned(), pages.to_string());
    }
    if let Some(keys) = protection_keys() {
        settings.insert("cpu.ospke".to_owned(), u8::from(keys).to_string());
    }
    if let Some(lowest) = lowest_addr() {
        settings.insert("mm.lowest_addr".to_owned(), lowest.to_string());
    }
    settings.insert("kernel.build".to_owned(), build());
    let answers = probed::answers().split(',');
    for (rule, value) in answers.filter_map(|answer| answer.split_once('=')) {
        settings.insert(format!("rules.{rule}"), value.to_owned());
    }
    let command_line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let gap = stack_guard_gap(&command_line);
    settings.insert("stack_guard_gap".to_owned(), gap.to_string());
    settings
}

/// Returns the files of those settings that decide calls and that root can change at any time, with
/// their names in a trace.
pub fn deciding_files() -> [(&'static str, PathBuf); 6] {
    let sysctl = |name: &str| Path::new("/proc/sys/vm").join(name);
    let thp = |name: &str| Path::new(THP).join(name);
    [
        ("vm.max_map_count", sysctl("max_map_count")),
        ("vm.mmap_min_addr", sysctl("mmap_min_addr")),
        ("vm.overcommit_memory", sysctl("overcommit_memory")),
        ("thp.enabled", thp("enabled")),
        ("thp.2048kB", thp("hugepages-2048kB/enabled")),
        ("thp.shmem_enabled", thp("shmem_enabled")),
    ]
}

/// Determines the lowest address that the kernel itself chooses, by mapping with a lower hint.
///
/// The result is `None` if the lowest address is already mapped.
fn lowest_addr() -> Option<u64> {
    /// Upper bound for a plausible result; no kernel is built with a higher lowest address.
    const MOST: u64 = 1 << 20;
    let placed =
        vmarea_linux_sys::own_process::placed_at(rustix::param::page_size() as u64).ok()?;
    (placed <= MOST).then_some(placed)
}

fn thp_settings(directory: &Path) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(size) = name.strip_prefix("hugepages-") {
            let enabled = read_setting(&entry.path().join("enabled"));
            settings.extend(enabled.map(|value| (format!("thp.{size}"), value)));
            let shmem = read_setting(&entry.path().join("shmem_enabled"));
            settings.extend(shmem.map(|value| (format!("thp.{size}.shmem_enabled"), value)));
        } else if let Some(value) = read_setting(&entry.path()) {
            settings.push((format!("thp.{name}"), value));
        }
    }
    settings
}

/// Returns the value in the file of a setting, as [`settings`] does.
pub fn read_setting(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    Some(chosen(line).to_owned())
}

/// Returns the word in brackets, or the whole line if it contains no brackets.
fn chosen(line: &str) -> &str {
    line.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or(line, |(word, _)| word)
}

fn total_pages() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = field(&text, "MemTotal")?
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()?;
    Some((kib << 10) / rustix::param::page_size() as u64)
}

fn protection_keys() -> Option<bool> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let flags = text.lines().find(|line| line.starts_with("flags"))?;
    Some(flags.split_ascii_whitespace().any(|flag| flag == "ospke"))
}

/// Returns the value in the line `Name:   value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

fn stack_guard_gap(command_line: &str) -> u32 {
    command_line
        .split_ascii_whitespace()
        .filter_map(|word| word.strip_prefix("stack_guard_gap=")?.parse().ok())
        .next_back()
        .unwrap_or(STACK_GUARD_GAP)
}

/// Properties of a file system that affect the mapping of its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileSystem {
    /// Magic number of `statfs`.
    pub magic: u64,
    /// Flags from `statvfs`, such as `ST_NOEXEC`.
    pub mount_flags: u64,
}

impl FileSystem {
    /// Reads the properties of the file system that contains an open file.
    ///
    /// # Errors
    /// Any error of `fstatfs(2)`.
    pub fn of(file: impl AsFd) -> io::Result<FileSystem> {
        let file = file.as_fd();
        let facts = rustix::fs::fstatfs(file)?;
        let mount = rustix::fs::fstatvfs(file)?;
        Ok(FileSystem {
            magic: facts.f_type as u64,
            mount_flags: mount.f_flag.bits(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_is_taken() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(
            chosen("always defer [defer+madvise] never"),
            "defer+madvise"
        );
        assert_eq!(chosen("65530"), "65530");
        assert_eq!(chosen("broken [word"), "broken [word");
    }

    #[test]
    fn the_last_guard_gap_counts() {
        assert_eq!(stack_guard_gap("quiet ro"), 256);
        assert_eq!(
            stack_guard_gap("stack_guard_gap=1 x stack_guard_gap=16"),
            16
        );
        assert_eq!(stack_guard_gap("stack_guard_gap=many"), 256);
    }

    #[test]
    fn this_machine_is_described() {
        let header = header();
        assert!(
            header
                .kernel_release
                .starts_with(|c: char| c.is_ascii_digit())
        );
        assert!(header.page_size.is_power_of_two());
        for name in [
            "vm.max_map_count",
            "vm.overcommit_memory",
            "vm.mmap_min_addr",
            "vm.legacy_va_layout",
            "kernel.randomize_va_space",
            "mm.lowest_addr",
            "stack_guard_gap",
            "swap",
        ] {
            let value = header
                .settings
                .get(name)
                .unwrap_or_else(|| panic!("no {name}"));
            assert!(value.parse::<u64>().is_ok(), "{name}: {value}");
        }
        if Path::new(THP).exists() {
            let word = &header.settings["thp.enabled"];
            assert!(
                ["always", "madvise", "never"].contains(&word.as_str()),
                "{word}"
            );
        }
    }

    #[test]
    fn a_file_is_on_its_file_system() {
        const PROC_SUPER_MAGIC: u64 = 0x9fa0;
        let file = fs::File::open("/proc/self/maps").unwrap();
        assert_eq!(FileSystem::of(&file).unwrap().magic, PROC_SUPER_MAGIC);
    }
}
