//! A Java virtual machine's error file, `hs_err_pidN.log`.
//!
//! HotSpot copies `/proc/self/maps` into the section `Dynamic libraries:`, and prints the limit on
//! mappings, resource limits, and `/proc/meminfo`. If native memory was refused, the head of the
//! file says which call failed.

use super::{FailedCall, Listed, Pasted, junk};
use std::borrow::Cow;

/// Returns the list and the error; `None` if the text is not such a file.
pub fn read(file: &[u8]) -> Option<Pasted<'_>> {
    let text = String::from_utf8_lossy(file);
    let is_java = text
        .lines()
        .take(60)
        .any(|line| line.contains("Java Runtime Environment") || line.contains("# JRE version:"));
    if !is_java {
        return None;
    }
    let mut notes = Vec::new();
    let list = match text.split_once("Dynamic libraries:") {
        Some((_, rest)) => {
            let lines = rest.lines().skip(1).map(str::trim_end);
            let lines = lines.take_while(|line| !line.is_empty());
            lines.collect::<Vec<_>>().join("\n")
        }
        None => {
            notes.push("the error file has no section \"Dynamic libraries:\"".to_owned());
            String::new()
        }
    };
    let found = junk::extracted(list.as_bytes());
    let was_cut = found.cuts.any();
    let (marks, more) = found.cuts.into_parts();
    notes.extend(more);
    let is_whole = text.trim_end().ends_with("END.");
    if !is_whole {
        notes.push("the error file is cut off: what follows is unknown".to_owned());
    }
    Some(Pasted {
        list: Listed::Text(Cow::Owned(found.text)),
        marks,
        incomplete: !is_whole || was_cut,
        limit: number_after(&text, "/proc/sys/vm/max_map_count", ':'),
        // With a part of the list, the number of mappings says nothing about the failure.
        failed: (is_whole && !was_cut).then(|| failed(&text)).flatten(),
        notes,
        ..Pasted::default()
    })
}

/// Returns the number after `mark` in the first line that contains `name`, or in the next line.
fn number_after(text: &str, name: &str, mark: char) -> Option<u64> {
    let at = text.find(name)?;
    let rest = &text[at + name.len()..];
    let rest = &rest[rest.find(mark)? + mark.len_utf8()..];
    rest.split_ascii_whitespace().next()?.parse().ok()
}

fn failed(text: &str) -> Option<FailedCall> {
    let head: Vec<_> = text.lines().take(40).collect();
    let about = |words: &str| head.iter().find(|line| line.contains(words));
    let call = if let Some(line) = about("Native memory allocation (") {
        let (_, rest) = line.split_once("Native memory allocation (")?;
        rest.split(')').next()?.to_owned()
    } else if about("unable to create native thread").is_some() {
        "pthread_create".to_owned()
    } else if about("Failed to map memory").is_some() {
        "mmap".to_owned()
    } else {
        return None;
    };
    let meminfo = |name: &str| number_after(text, &format!("\n{name}"), ':');
    Some(FailedCall {
        call,
        errno: errno(&head),
        rlimit_as: rlimit_as(text),
        committed_kib: meminfo("CommitLimit").zip(meminfo("Committed_AS")),
    })
}

/// Returns the error number, which HotSpot prints as a number, a name or a message.
fn errno(head: &[&str]) -> Option<i32> {
    let names = [
        ("ENOMEM", libc::ENOMEM),
        ("Cannot allocate memory", libc::ENOMEM),
        ("Not enough space", libc::ENOMEM),
        ("EAGAIN", libc::EAGAIN),
        ("Resource temporarily unavailable", libc::EAGAIN),
    ];
    head.iter().find_map(|line| {
        if let Some((_, rest)) = line.split_once("errno=") {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            return digits.parse().ok();
        }
        let name = names.iter().find(|(name, _)| line.contains(name));
        name.map(|(_, errno)| *errno)
    })
}

/// Returns the finite soft limit in `AS 8388608k/infinity` of the line `rlimit`.
fn rlimit_as(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("rlimit"))?;
    let (_, rest) = line.split_once(" AS ")?;
    let soft = rest.split(['/', ' ', ',']).next()?;
    let kib: u64 = soft.strip_suffix('k')?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps;

    const FILE: &str = "#\n# There is insufficient memory for the Java Runtime Environment to continue.\n\
        # Native memory allocation (mmap) failed to map 16384 bytes. Error detail: committing\n\
        # Possible reasons:\n#\n# JRE version: OpenJDK (17.0.15)\n\n\
        Dynamic libraries:\n1000-2000 rw-p 00000000 00:00 0 \n\
        2000-3000 r-xp 00000000 08:01 7                          /usr/lib/libjvm.so\n\n\
        rlimit (soft/hard): STACK 8192k/infinity , CORE 0k/infinity , AS 4194304k/infinity , DATA infinity\n\
        CommitLimit:     2000 kB\nCommitted_AS:    1000 kB\n\
        /proc/sys/vm/max_map_count (maximum number of memory map areas a process may have): 262144\n\nEND.\n";

    /// Returns the number of mappings.
    fn listed(pasted: &Pasted<'_>) -> usize {
        match &pasted.list {
            Listed::Text(text) => maps::parse(text).unwrap().len(),
            Listed::Entries(entries) => entries.len(),
        }
    }

    #[test]
    fn the_list_the_limit_and_the_error_are_found() {
        let pasted = read(FILE.as_bytes()).unwrap();
        assert_eq!(listed(&pasted), 2);
        assert_eq!(pasted.limit, Some(262_144));
        let failed = pasted.failed.unwrap();
        assert_eq!(failed.call, "mmap");
        assert_eq!(failed.rlimit_as, Some(4 << 30));
        assert_eq!(failed.committed_kib, Some((2000, 1000)));
        assert!(pasted.notes.is_empty(), "{:?}", pasted.notes);
    }

    #[test]
    fn a_file_that_is_cut_off_anywhere_gives_what_it_has() {
        for at in 0..FILE.len() {
            let Some(pasted) = read(&FILE.as_bytes()[..at]) else {
                continue;
            };
            listed(&pasted);
            let whole = FILE[..at].trim_end().ends_with("END.");
            assert_eq!(pasted.notes.is_empty(), whole, "{at}: {:?}", pasted.notes);
        }
    }
}
