//! What this kernel's rules were found to be: the answers of a probe, made once per boot.
//!
//! A probe takes some ten milliseconds (`vmarea_linux_sys::probe`), so its answers are kept in a file
//! that names the boot: in `/run/vmarea` for root, and in `$XDG_RUNTIME_DIR/vmarea` for an ordinary
//! user. A file is believed only if nobody else can have written it: it and its folder belong to
//! this user, and others may write to neither. A file that is damaged, of another boot or of another
//! version of vmarea is replaced, as is one that lacks the answers of a probe that ended early. Without
//! such a folder, each process probes.

use rustix::fs::{AtFlags, Mode, OFlags, RawMode};
use rustix::fs::{fchmod, fstat, mkdirat, open, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use vmarea_linux_sys::probe;

/// Name of the file in its folder.
const NAME: &str = "rules";
/// First and last line, around that with the boot and those of the answers.
const FIRST: &str = concat!("vmarea ", env!("CARGO_PKG_VERSION"));
const LAST: &str = "end";
/// More bytes than a file has.
const MOST_BYTES: u64 = 16 << 10;
/// Permission bits for others to write.
const WRITE_BY_OTHERS: RawMode = 0o022;
/// Value of a rule for which the experiment had no answer.
const NONE: &str = "?";

/// Returns the answers of a probe of this kernel as `name=value`, separated by commas. Rules without
/// an answer are left out.
///
/// The probe is made at the first call, unless an earlier process has made it since the system was
/// started.
pub fn answers() -> &'static str {
    static ANSWERS: OnceLock<String> = OnceLock::new();
    ANSWERS.get_or_init(|| {
        let kept = folder().zip(boot());
        let kept = kept
            .as_ref()
            .map(|(folder, boot)| (folder.as_path(), boot.as_str()));
        kept_or_new(kept, make)
    })
}

/// Probes the kernel, whatever is kept.
pub fn probe() -> String {
    kept_or_new(None, make)
}

/// Returns the answers that are kept in a folder for a boot. If there are none, those of `make`,
/// which are then kept.
fn kept_or_new(kept: Option<(&Path, &str)>, make: impl FnOnce() -> Vec<String>) -> String {
    let of_boot = |folder| kept.and_then(|(_, boot)| read(folder, boot));
    let folder = kept.and_then(|(folder, _)| trusted(folder));
    let found = folder.as_ref().and_then(of_boot);
    let lines = found.unwrap_or_else(|| {
        let lines = make();
        if let Some((folder, (_, boot))) = folder.as_ref().zip(kept) {
            // Without the file, the next process probes again.
            let _ = write(folder, boot, &lines);
        }
        lines
    });
    let known: Vec<_> = lines
        .iter()
        .map(String::as_str)
        .filter(|line| !is_unknown(line))
        .collect();
    known.join(",")
}

/// Probes; returns a line for each experiment.
fn make() -> Vec<String> {
    let answers = probe::probe().unwrap_or_default();
    let lines = answers.into_iter();
    lines
        .map(|(name, value)| format!("{name}={}", value.unwrap_or(NONE)))
        .collect()
}

fn is_unknown(line: &str) -> bool {
    line.split_once('=').is_none_or(|(_, value)| value == NONE)
}

/// Returns the folder in which this user keeps the answers.
fn folder() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/run/vmarea"));
    }
    let runtime = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    runtime.is_absolute().then(|| runtime.join("vmarea"))
}

/// Returns the id of this boot.
fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Opens a folder, which is made if it is missing; `None` if others could have written to it.
fn trusted(folder: &Path) -> Option<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let parent = open(folder.parent()?, flags & !OFlags::NOFOLLOW, Mode::empty()).ok()?;
    let name = folder.file_name()?;
    match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(_) => return None,
    }
    let folder = openat(&parent, name, flags, Mode::empty()).ok()?;
    is_own(&folder).then_some(folder)
}

/// True if a file or folder belongs to this user, and others may not write to it.
fn is_own(file: &OwnedFd) -> bool {
    fstat(file).is_ok_and(|stat| {
        stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & WRITE_BY_OTHERS == 0
    })
}

/// Reads the answers of a boot; `None` if the file is not this user's, or not whole.
fn read(folder: &OwnedFd, boot: &str) -> Option<Vec<String>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(folder, NAME, flags, Mode::empty()).ok()?;
    if !is_own(&file) {
        return None;
    }
    let mut text = String::new();
    File::from(file)
        .take(MOST_BYTES)
        .read_to_string(&mut text)
        .ok()?;
    let mut lines = text.lines();
    if (lines.next()?, lines.next()?, lines.next_back()?) != (FIRST, boot, LAST) {
        return None;
    }
    let lines: Vec<_> = lines.map(str::to_owned).collect();
    let names = lines.iter().filter_map(|line| line.split('=').next());
    names.eq(probe::names()).then_some(lines)
}

/// Replaces the file by one with these answers.
fn write(folder: &OwnedFd, boot: &str, lines: &[String]) -> std::io::Result<()> {
    let new = format!("{NAME}.{}", std::process::id());
    let _ = unlinkat(folder, new.as_str(), AtFlags::empty());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(folder, new.as_str(), flags, Mode::from_raw_mode(0o644))?;
    // The umask may leave less, but never more.
    fchmod(&file, Mode::from_raw_mode(0o644))?;
    let text = format!("{FIRST}\n{boot}\n{}\n{LAST}\n", lines.join("\n"));
    File::from(file).write_all(text.as_bytes())?;
    Ok(renameat(folder, new.as_str(), folder, NAME)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use tempfile::TempDir;

    const BOOT: &str = "6d0e2ac4-4a4e-4f5c-8d5b-6a2f4bb0a1b2";

    /// Answers that no probe gives: all rules are `value`.
    fn all(value: &str) -> Vec<String> {
        probe::names()
            .map(|name| format!("{name}={value}"))
            .collect()
    }

    /// A folder that keeps the answers `kept`.
    fn filled() -> (TempDir, PathBuf) {
        let room = TempDir::new().unwrap();
        let folder = room.path().join("vmarea");
        let first = kept_or_new(Some((&folder, BOOT)), || all("kept"));
        assert!(first.starts_with("anon_pgoff_of_files=kept,"), "{first}");
        (room, folder)
    }

    /// Returns the answers from the folder: `kept` ones, or `new` ones if it is not believed.
    fn from(folder: &Path) -> &'static str {
        let found = kept_or_new(Some((folder, BOOT)), || all("new"));
        if found == all("kept").join(",") {
            "kept"
        } else {
            "new"
        }
    }

    #[test]
    fn answers_are_kept_for_a_boot() {
        let (_room, folder) = filled();
        assert_eq!(from(&folder), "kept");
        let other = "0b54d7a9-3c47-4f0c-9a55-0e2b90c7f1aa";
        let found = kept_or_new(Some((&folder, other)), || all("new"));
        assert_eq!(found, all("new").join(","));
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            1,
            "nothing else is left"
        );
    }

    #[test]
    fn what_had_no_answer_is_kept_and_left_out() {
        let (_room, folder) = filled();
        fs::remove_file(folder.join(NAME)).unwrap();
        let mut lines = all("on");
        lines[1] = lines[1].replace("=on", "=?");
        let shown = kept_or_new(Some((&folder, BOOT)), || lines.clone());
        assert!(
            shown.contains("anon_pgoff_of_files=on,close_hook=on"),
            "{shown}"
        );
        let again = kept_or_new(Some((&folder, BOOT)), || panic!("they were kept"));
        assert_eq!(again, shown);
    }

    #[test]
    fn a_probe_that_ended_early_is_made_again() {
        let (_room, folder) = filled();
        fs::remove_file(folder.join(NAME)).unwrap();
        let some = kept_or_new(Some((&folder, BOOT)), || all("on")[..2].to_vec());
        assert_eq!(some, "anon_pgoff_of_files=on,one_sided=on");
        assert_eq!(from(&folder), "new");
    }

    #[test]
    fn a_damaged_file_is_replaced() {
        let (_room, folder) = filled();
        let path = folder.join(NAME);
        let whole = fs::read(&path).unwrap();
        let damaged = [
            whole[..whole.len() / 2].to_vec(),
            whole[..whole.len() - 2].to_vec(),
            Vec::new(),
            vec![0xff; 100],
            [&whole[..], &vec![b'x'; 1 << 20]].concat(),
            String::from_utf8_lossy(&whole)
                .replace("mseal=", "meals=")
                .into_bytes(),
            String::from_utf8_lossy(&whole)
                .replace("vmarea ", "vmarea 0.0.0-")
                .into_bytes(),
        ];
        for text in damaged {
            fs::write(&path, &text).unwrap();
            assert_eq!(from(&folder), "new", "{:?}", String::from_utf8_lossy(&text));
            fs::write(&path, &whole).unwrap();
            assert_eq!(from(&folder), "kept");
        }
    }

    #[test]
    fn what_others_may_write_is_not_believed() {
        let (_room, folder) = filled();
        let path = folder.join(NAME);
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        mode(&folder, 0o777).unwrap();
        assert_eq!(from(&folder), "new");
        mode(&folder, 0o755).unwrap();
        assert_eq!(from(&folder), "kept");
        mode(&path, 0o664).unwrap();
        assert_eq!(from(&folder), "new");
    }

    #[test]
    fn what_belongs_to_others_is_not_believed() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (_room, folder) = filled();
        chown(folder.join(NAME), Some(1), None).unwrap();
        assert_eq!(from(&folder), "new");
        let (_room, folder) = filled();
        chown(&folder, Some(1), None).unwrap();
        assert_eq!(from(&folder), "new");
    }

    #[test]
    fn links_are_not_followed() {
        let (room, folder) = filled();
        let elsewhere = room.path().join("elsewhere");
        fs::rename(folder.join(NAME), &elsewhere).unwrap();
        symlink(&elsewhere, folder.join(NAME)).unwrap();
        assert_eq!(from(&folder), "new");
        let (room, folder) = filled();
        let link = room.path().join("link");
        symlink(&folder, &link).unwrap();
        assert_eq!(from(&link), "new");
    }

    #[test]
    fn without_a_folder_each_process_probes() {
        let missing = Path::new("/nonexistent/folder/vmarea");
        assert_eq!(
            kept_or_new(Some((missing, BOOT)), || all("new")),
            all("new").join(",")
        );
        assert_eq!(kept_or_new(None, || all("new")), all("new").join(","));
    }
}
