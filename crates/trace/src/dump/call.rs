//! One system call as text, in the style of `strace`.
//!
//! `signature` and `names` supply the names of arguments. The recorder's additions (file, data,
//! order) follow the result. A call without a known signature is shown with six unnamed numbers.

use super::signature::{self, Arg};
use super::{clean, show_order};
use crate::block::le64;
use crate::event::{Call, FileRef};
use crate::names::{OPEN, errno_name};
use crate::sysno;
use std::fmt::{self, Write as _};

/// A call, to be printed in the style of `strace`.
pub(super) struct Text<'a>(pub(super) &'a Call);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.0;
        match sysno::name(call.nr) {
            Some(name) => f.write_str(name)?,
            None => write!(f, "syscall_{}", call.nr)?,
        }
        f.write_char('(')?;
        let kinds = signature::arguments(call.nr).unwrap_or(&[Arg::Bits; 6]);
        for (i, (kind, &value)) in kinds.iter().zip(&call.args).enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            match *kind {
                Arg::Address if value == 0 => f.write_str("NULL")?,
                Arg::Address | Arg::Bits => write!(f, "{value:#x}")?,
                Arg::Number => write!(f, "{value}")?,
                Arg::Int => write!(f, "{}", value as i32)?,
                Arg::Named(names) => write!(f, "{}", names.show(value))?,
            }
        }
        f.write_str(") = ")?;
        match call.ret {
            error @ -4095..=-1 => match errno_name(-error) {
                Some(name) => write!(f, "-1 {name}")?,
                None => write!(f, "-1 error {}", -error)?,
            },
            address if signature::returns_address(call.nr) => write!(f, "{address:#x}")?,
            number => write!(f, "{number}")?,
        }
        if let Some(file) = &call.file {
            show_file(f, file)?;
        }
        if !call.data.is_empty() {
            show_data(f, call)?;
        }
        show_order(f, call.order)
    }
}

fn show_file(f: &mut fmt::Formatter<'_>, file: &FileRef) -> fmt::Result {
    let FileRef {
        inode,
        file,
        open_flags,
        seals,
        size,
    } = file;
    let flags = OPEN.show(u64::from(*open_flags));
    write!(f, " inode={} file={} {flags} size={size}", inode.0, file.0)?;
    if *seals != 0 {
        write!(f, " seals={seals:#x}")?;
    }
    Ok(())
}

/// Prints data: a name as text, words as numbers, and all other data as bytes.
fn show_data(f: &mut fmt::Formatter<'_>, call: &Call) -> fmt::Result {
    f.write_str(" data=")?;
    if call.nr == sysno::PRCTL {
        return write!(f, "\"{}\"", clean(&String::from_utf8_lossy(&call.data)));
    }
    if !call.data.len().is_multiple_of(8) {
        return call
            .data
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"));
    }
    for (i, word) in call.data.chunks_exact(8).enumerate() {
        let comma = if i == 0 { "" } else { "," };
        write!(f, "{comma}{:#x}", le64(word, 0))?;
    }
    Ok(())
}
