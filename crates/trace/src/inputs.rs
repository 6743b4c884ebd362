//! Inputs that a user names: files of a limited size, or standard input.
//!
//! A pipe or a device may never end, and opening a pipe waits for its writer; a user who names one
//! by mistake would see a program that hangs. Only standard input, which is named as `-`, may be one.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Opens a file for reading, or standard input for `-`.
///
/// # Errors
/// The errors of [`file()`].
pub fn open(path: &Path, limit: u64) -> io::Result<Box<dyn Read>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(Limited::new(io::stdin().lock(), limit)));
    }
    regular(path, limit, "name a file, or - for standard input")
}

/// Opens a file for reading, also one that is called `-`.
///
/// # Errors
/// Fails if there is no regular file, or if it is larger than `limit` bytes. Reading fails after
/// `limit` bytes. No message contains the path.
pub fn file(path: &Path, limit: u64) -> io::Result<Box<dyn Read>> {
    regular(path, limit, "name a file")
}

fn regular(path: &Path, limit: u64, instead: &str) -> io::Result<Box<dyn Read>> {
    let found = path.metadata()?;
    if found.is_dir() {
        return Err(io::Error::other("it is a folder: name a file"));
    }
    if !found.is_file() {
        let pipe = found.file_type().is_fifo();
        let what = if pipe { "a pipe" } else { "a device" };
        let refusal = format!("it is {what}, which may never end: {instead}");
        return Err(io::Error::other(refusal));
    }
    if found.len() > limit {
        return Err(too_large(limit));
    }
    Ok(Box::new(Limited::new(File::open(path)?, limit)))
}

/// A source of which at most `limit` bytes can be read.
struct Limited<R> {
    source: R,
    limit: u64,
    read: u64,
}

impl<R> Limited<R> {
    fn new(source: R, limit: u64) -> Self {
        Limited {
            source,
            limit,
            read: 0,
        }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.source.read(buffer)?;
        self.read += got as u64;
        if self.read > self.limit {
            return Err(too_large(self.limit));
        }
        Ok(got)
    }
}

fn too_large(limit: u64) -> io::Error {
    let gib = limit >> 30;
    io::Error::other(format!(
        "it is larger than {gib} GiB, the most that is read"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn refusal(path: &Path) -> String {
        open(path, GIB).err().expect("a refusal").to_string()
    }

    #[test]
    fn what_may_never_end_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        assert!(refusal(&pipe).starts_with("it is a pipe, which may never end"));
        assert!(refusal(Path::new("/dev/zero")).starts_with("it is a device, which may never end"));
        assert_eq!(refusal(folder.path()), "it is a folder: name a file");
        let file = file(&pipe, GIB).err().expect("a refusal").to_string();
        assert_eq!(file, "it is a pipe, which may never end: name a file");
        assert!(refusal(&pipe).ends_with(", or - for standard input"));
    }

    #[test]
    fn no_more_than_the_limit_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(GIB + 1).unwrap();
        let said = "it is larger than 1 GiB, the most that is read";
        assert_eq!(refusal(file.path()), said);
        file.as_file().set_len(GIB).unwrap();
        assert!(open(file.path(), GIB).is_ok());

        let read = |bytes: usize| {
            let source = io::repeat(7).take(bytes as u64);
            Limited::new(source, 100).read_to_end(&mut Vec::new())
        };
        assert_eq!(read(100).unwrap(), 100);
        assert!(read(101).is_err());
    }
}
