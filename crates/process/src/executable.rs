//! Checks whether an executable loads an object through `LD_PRELOAD`.
//!
//! The dynamic loader handles `LD_PRELOAD`. Three kinds of program ignore the variable silently: a
//! program without a dynamic loader, a program whose file grants additional privileges, and a
//! 32-bit program. This module only reads the file; it does not run it. Programs that the
//! executable starts are deliberately not checked.
//!
//! # Linux
//! `execve(2)` and `ld.so(8)`. A script is judged by its interpreter, up to the kernel's limit on
//! nested interpreters.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Reason why a program ignores `LD_PRELOAD`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TakesNone {
    /// The program is linked statically.
    Static(PathBuf),
    /// The program is a 32-bit program.
    Bits32(PathBuf),
    /// The program's file grants additional privileges (set-user-ID, set-group-ID, or
    /// capabilities).
    Privileged(PathBuf),
}

impl fmt::Display for TakesNone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, why) = match self {
            TakesNone::Static(path) => (path, "is linked statically"),
            TakesNone::Bits32(path) => (path, "is a 32-bit program"),
            TakesNone::Privileged(path) => (
                path,
                "runs with the rights of its file (set-user-ID or capabilities)",
            ),
        };
        write!(f, "{} {why}", path.display())
    }
}

/// Maximum depth of nested script interpreters, as in the kernel.
const DEPTH: usize = 5;
/// Maximum number of bytes that the kernel reads from a script's first line.
const LINE_BYTES: usize = 256;
const ELF_MAGIC: &[u8] = b"\x7fELF";
const CLASS_32: u8 = 1;
const PT_INTERP: u32 = 3;

/// Resolves `program` like a shell: a name that contains a slash is a path, and any other name is
/// looked up in the directories in `PATH`.
pub fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let folders = std::env::var_os("PATH")?;
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0)
    };
    std::env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(is_program)
}

/// Returns the reason why the program in the file `path` ignores `LD_PRELOAD`.
///
/// The result is `None` if the program loads the object, or if the kind of the program is unknown.
///
/// # Errors
/// Any error from reading the file.
pub fn takes_none(path: &Path) -> io::Result<Option<TakesNone>> {
    let mut path = path.to_owned();
    for _ in 0..DEPTH {
        let mut file = File::open(&path)?;
        let mut start = Vec::new();
        (&mut file)
            .take(LINE_BYTES as u64)
            .read_to_end(&mut start)?;
        match interpreter(&start) {
            // The kernel ignores the set-user-ID and set-group-ID bits of a script.
            Some(next) => path = next,
            None => return of_elf(&mut file, &start, path),
        }
    }
    Ok(None)
}

/// Returns the interpreter named in a script's first line.
fn interpreter(start: &[u8]) -> Option<PathBuf> {
    let line = start
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r');
    let mut words = line.split(is_blank).filter(|word| !word.is_empty());
    Some(PathBuf::from(OsStr::from_bytes(words.next()?)))
}

fn of_elf(file: &mut File, start: &[u8], path: PathBuf) -> io::Result<Option<TakesNone>> {
    if !start.starts_with(ELF_MAGIC) || start.len() < 64 {
        return Ok(None);
    }
    if start[4] == CLASS_32 {
        return Ok(Some(TakesNone::Bits32(path)));
    }
    if !names_loader(file, start)? {
        return Ok(Some(TakesNone::Static(path)));
    }
    Ok(gives_rights(file, &path)?.then_some(TakesNone::Privileged(path)))
}

/// Checks whether a 64-bit program specifies a dynamic loader.
fn names_loader(file: &mut File, start: &[u8]) -> io::Result<bool> {
    let half = |at: usize| u16::from_le_bytes([start[at], start[at + 1]]);
    let mut word = [0; 8];
    word.copy_from_slice(&start[32..40]);
    let (headers, size, count) = (u64::from_le_bytes(word), half(54), half(56));
    for n in 0..u64::from(count) {
        let mut kind = [0; 4];
        // A header offset beyond the end of the file is a read error; the kernel refuses such a
        // file too.
        file.seek(SeekFrom::Start(headers.saturating_add(n * u64::from(size))))?;
        file.read_exact(&mut kind)?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks whether the kernel would run the program with privileges that the caller lacks.
fn gives_rights(file: &File, path: &Path) -> io::Result<bool> {
    const SET_UID: u32 = 0o4000;
    /// Set-group-ID and group-execute bits. Set-group-ID without group-execute grants no
    /// privileges.
    const SET_GID: u32 = 0o2010;
    let (of_file, own) = (file.metadata()?, fs::metadata("/proc/self")?);
    let is_other_user = of_file.mode() & SET_UID != 0 && of_file.uid() != own.uid();
    let is_other_group = of_file.mode() & SET_GID == SET_GID && of_file.gid() != own.gid();
    let mut capabilities = [0; 64];
    let has_capabilities = own.uid() != 0
        && rustix::fs::getxattr(path, "security.capability", &mut capabilities).is_ok();
    Ok(is_other_user || is_other_group || has_capabilities)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Builds a 64-bit ELF file with one program header of type `kind`, or a 32-bit ELF file.
    fn elf(class: u8, kind: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..4].copy_from_slice(ELF_MAGIC);
        bytes[4] = class;
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn a_program_without_a_loader_takes_none() {
        let folder = tempfile::tempdir().unwrap();
        let fixed = file(folder.path(), "fixed", &elf(2, 1));
        let loaded = file(folder.path(), "loaded", &elf(2, PT_INTERP));
        let small = file(folder.path(), "small", &elf(1, PT_INTERP));
        assert_eq!(takes_none(&fixed).unwrap(), Some(TakesNone::Static(fixed)));
        assert_eq!(takes_none(&loaded).unwrap(), None);
        assert_eq!(takes_none(&small).unwrap(), Some(TakesNone::Bits32(small)));
        let this = std::env::current_exe().unwrap();
        assert_eq!(takes_none(&this).unwrap(), None);
    }

    #[test]
    fn a_script_is_as_its_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let fixed = file(folder.path(), "fixed", &elf(2, 1));
        let line = format!("#! {} -x\nbody", fixed.display());
        let first = file(folder.path(), "first", line.as_bytes());
        let line = format!("#!{}\r\nbody", first.display());
        let second = file(folder.path(), "second", line.as_bytes());
        let expected = Some(TakesNone::Static(fixed));
        assert_eq!(takes_none(&first).unwrap(), expected);
        assert_eq!(takes_none(&second).unwrap(), expected);
        let itself = folder.path().join("itself");
        fs::write(&itself, format!("#!{}", itself.display())).unwrap();
        assert_eq!(takes_none(&itself).unwrap(), None);
        let text = file(folder.path(), "text", b"echo a script without a first line");
        assert_eq!(takes_none(&text).unwrap(), None);
    }

    #[test]
    fn a_program_with_rights_of_its_file_takes_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path(), "loaded", &elf(2, PT_INTERP));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        // The file belongs to this user, so it raises no privileges.
        assert_eq!(takes_none(&path).unwrap(), None);
        if std::os::unix::fs::chown(&path, Some(12_345), None).is_ok() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
            let expected = Some(TakesNone::Privileged(path.clone()));
            assert_eq!(takes_none(&path).unwrap(), expected);
        }
    }

    #[test]
    fn torn_files_are_errors_and_nothing_worse() {
        let folder = tempfile::tempdir().unwrap();
        let whole = elf(2, PT_INTERP);
        for len in 0..whole.len() {
            let path = file(folder.path(), "torn", &whole[..len]);
            let _ = takes_none(&path);
        }
        let mut wild = whole;
        wild[32..40].fill(0xff);
        assert!(takes_none(&file(folder.path(), "wild", &wild)).is_err());
    }
}
