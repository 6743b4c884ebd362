//! Files without a list of mappings that can be named, and what to send instead.

/// Bytes at the beginning of a file that show whether it is text.
const HEAD: usize = 1 << 16;

const UNPACK: &str = "unpack it first";

/// First bytes of a file, what it then is, and what to do instead.
const MAGIC: [(&[u8], &str, &str); 17] = [
    (
        b"PERFILE2",
        "a perf.data file",
        "run perf trace or perf script, and see vmarea trace import",
    ),
    (
        b"\x89vmarea\n",
        "a trace of vmarea",
        "see vmarea trace info and vmarea show maps",
    ),
    (b"\x1f\x8b", "compressed by gzip", UNPACK),
    (b"BZh", "compressed by bzip2", UNPACK),
    (b"\xfd7zXZ", "compressed by xz", UNPACK),
    (
        b"\x28\xb5\x2f\xfd",
        "compressed by zstd",
        "unpack it first (of a core: coredumpctl dump)",
    ),
    (b"\x04\x22\x4d\x18", "compressed by lz4", UNPACK),
    (b"PK\x03\x04", "a zip archive", UNPACK),
    (b"7z\xbc\xaf", "a 7z archive", UNPACK),
    (b"\xff\xfe", "text in UTF-16", "save it as UTF-8"),
    (b"\xfe\xff", "text in UTF-16", "save it as UTF-8"),
    (
        b"\xcf\xfa\xed\xfe",
        "a program or core of macOS",
        "vmarea reads lists of Linux",
    ),
    (
        b"PAGEDU",
        "a kernel dump of Windows",
        "vmarea reads lists of Linux",
    ),
    (
        b"KDUMP   ",
        "a dump of the whole kernel",
        "send a copy of /proc/PID/maps",
    ),
    (b"\x89PNG", "a picture", "send the text itself"),
    (b"\xff\xd8\xff", "a picture", "send the text itself"),
    (
        b"JAVA PROFILE",
        "a heap dump of a JVM",
        "send its hs_err file or a copy of /proc/PID/maps",
    ),
];

/// Says what a file that is not text is; `None` for text.
pub(super) fn binary(file: &[u8]) -> Option<String> {
    let magic = MAGIC.iter().find(|(magic, ..)| file.starts_with(magic));
    if let Some((_, what, instead)) = magic {
        return Some(format!("it is {what}: {instead}"));
    }
    if file.get(257..262) == Some(b"ustar") {
        return Some(format!("it is a tar archive: {UNPACK}"));
    }
    let head = &file[..file.len().min(HEAD)];
    // A log may have a few of these.
    let zeros = head.iter().filter(|&&byte| byte == 0).count();
    let is_binary = zeros * 64 > head.len();
    is_binary.then(|| "it is not text: send a copy of /proc/PID/maps".to_owned())
}

/// Marks of a text without a list that is read, what it then is, and what to do instead.
const TEXTS: [(&[&str], &str, &str); 12] = [
    (
        &["REGION TYPE", "VSIZE"],
        "the output of vmmap of macOS",
        "vmarea reads lists of Linux",
    ),
    (
        &["Base Address", "Region Size"],
        "a list of Windows",
        "vmarea reads lists of Linux",
    ),
    (
        &["BaseAddress", "RegionSize"],
        "a list of Windows",
        "vmarea reads lists of Linux",
    ),
    (
        &["PRT", "RES", "PRES", "REF"],
        "a list of FreeBSD",
        "vmarea reads lists of Linux",
    ),
    (
        &["Native Memory Tracking:"],
        "a report of jcmd VM.native_memory",
        "send jcmd PID System.map or a copy of /proc/PID/maps",
    ),
    (
        &["VmPeak:", "VmRSS:"],
        "a copy of /proc/PID/status",
        "send a copy of /proc/PID/maps",
    ),
    (
        &[" default ", "anon=", "kernelpagesize_kB="],
        "a copy of /proc/PID/numa_maps",
        "send a copy of /proc/PID/maps",
    ),
    (
        &["MemTotal:", "MemFree:"],
        "a copy of /proc/meminfo",
        "send a copy of /proc/PID/maps",
    ),
    (
        &["Max processes", "Max open files"],
        "a copy of /proc/PID/limits",
        "send a copy of /proc/PID/maps",
    ),
    (
        &["Program Headers:", "LOAD"],
        "the output of readelf",
        "give the core itself to --from",
    ),
    (
        &["COMMAND", "FD", "NODE"],
        "the output of lsof",
        "send a copy of /proc/PID/maps",
    ),
    (
        &["syscalls:sys_enter_m"],
        "a log of perf",
        "see vmarea trace import",
    ),
];

/// Says what a text without a list of mappings is; `None` if it is not known.
pub(super) fn text(file: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&file[..file.len().min(HEAD)]);
    if head.lines().take(100).any(is_strace) {
        return Some(
            "it is a log of strace: vmarea trace import --from strace LOG -o FILE.vmtrace, then --from FILE.vmtrace"
                .to_owned(),
        );
    }
    let start = head.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
    if start.starts_with('{') || start.starts_with("[{") {
        let of_explain = start.contains("\"reasons\"") && start.contains("\"joinable\"");
        return Some(match of_explain {
            true => "it is JSON of vmarea explain: give it to --since".to_owned(),
            false => "it is JSON: send a copy of /proc/PID/maps".to_owned(),
        });
    }
    let known = TEXTS
        .iter()
        .find(|(marks, ..)| marks.iter().all(|mark| head.contains(mark)));
    known.map(|(_, what, instead)| format!("it is {what}: {instead}"))
}

/// True for a line of strace, such as `[pid 7] mmap(NULL, 4096, ...) = 0x7f00`.
fn is_strace(line: &str) -> bool {
    const CALLS: [&str; 7] = [
        "mmap(",
        "munmap(",
        "mprotect(",
        "brk(",
        "madvise(",
        "execve(",
        "mremap(",
    ];
    let call = CALLS.iter().filter_map(|call| line.find(call)).min();
    let is_word = |at: usize| {
        line[..at]
            .bytes()
            .next_back()
            .is_none_or(|byte| byte.is_ascii_whitespace())
    };
    call.is_some_and(is_word) && line.contains(") ") && line.contains("= ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_with_what_to_send_instead() {
        let said = |file: &[u8]| binary(file).or_else(|| text(file)).unwrap_or_default();
        for (file, expected) in [
            (
                &b"\x1f\x8b\x08\0\0"[..],
                "it is compressed by gzip: unpack it first",
            ),
            (
                b"PERFILE2h\0\0\0",
                "it is a perf.data file: run perf trace or perf script, and see vmarea trace import",
            ),
            (
                b"\x01\x02\0\0\0\0",
                "it is not text: send a copy of /proc/PID/maps",
            ),
            (
                b"\xff\xfe0\x007\x00",
                "it is text in UTF-16: save it as UTF-8",
            ),
            (b"{\"a\": 1}", "it is JSON: send a copy of /proc/PID/maps"),
            (
                b"{\"schema\": 2, \"reasons\": [], \"joinable\": 0}",
                "it is JSON of vmarea explain: give it to --since",
            ),
            (
                b"12:00:00 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3, 0) = 0x7f0000000000\n",
                "it is a log of strace: vmarea trace import --from strace LOG -o FILE.vmtrace, then --from FILE.vmtrace",
            ),
            (
                b"Name:\tcat\nVmPeak:\t 4 kB\nVmRSS:\t 4 kB\n",
                "it is a copy of /proc/PID/status: send a copy of /proc/PID/maps",
            ),
            (
                b"REGION TYPE   START - END  [ VSIZE  RSDNT ]\n__TEXT 100-200 [ 4K ] r-x/r-x\n",
                "it is the output of vmmap of macOS: vmarea reads lists of Linux",
            ),
        ] {
            assert_eq!(said(file), expected);
        }
        assert_eq!(said(b"Hello, the mmap( call = failed\n"), "");
    }
}
