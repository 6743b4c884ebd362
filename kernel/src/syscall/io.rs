//! System calls on descriptors: reading, writing, duplicating, pipes, memfds.

use super::{Call, Outcome, memory};
use crate::failure::{Failure, Value};
use crate::files::inode::{Device, Inode};
use crate::files::open::{Object, OpenFile, Place};
use crate::files::pipe::{self, ReadEnd};
use crate::memory::heap;
use crate::process::send;
use crate::process::signal::SigInfo;
use crate::space::space;
use alloc::format;
use alloc::sync::Arc;
use linux_raw_sys::errno::{EBADF, EBUSY, EFAULT, EINVAL, ENOTTY, EPERM, EPIPE};
use linux_raw_sys::general::*;

/// Maximum number of bytes that one step of a transfer copies.
const STEP: usize = 1 << 16;
/// Maximum number of buffers in one vectored read or write.
const PARTS_MAX: u64 = 1024;
const TCGETS: u64 = 0x5401;
const TIOCGWINSZ: u64 = 0x5413;

/// Performs a system call on descriptors.
pub fn call(call: &Call<'_>) -> Outcome {
    let [a, b, c, d, ..] = call.args;
    let files = &call.thread.process.files;
    let file = || files.get(a as u32);
    Some(match call.number {
        __NR_read => file().and_then(|f| transfer(call, &f, Direction::In, b, c, Place::Position)),
        __NR_write => {
            file().and_then(|f| transfer(call, &f, Direction::Out, b, c, Place::Position))
        }
        __NR_pread64 => {
            file().and_then(|f| transfer(call, &f, Direction::In, b, c, Place::Offset(d)))
        }
        __NR_pwrite64 => {
            file().and_then(|f| transfer(call, &f, Direction::Out, b, c, Place::Offset(d)))
        }
        __NR_readv => file().and_then(|f| transfer_vector(call, &f, Direction::In, b, c)),
        __NR_writev => file().and_then(|f| transfer_vector(call, &f, Direction::Out, b, c)),
        __NR_sendfile => send_file(call),
        __NR_lseek => file().and_then(|f| f.seek(b as i64, c as u32)),
        __NR_close => files.close(a as u32).map(|()| 0),
        __NR_close_range => close_range(call),
        __NR_dup => file().and_then(|f| files.add(f, 0, false)).map(u64::from),
        __NR_dup2 if a == b => file().map(|_| b),
        __NR_dup3 if a == b => Err(EINVAL.into()),
        __NR_dup2 | __NR_dup3 => {
            let close_on_exec = call.number == __NR_dup3 && c as u32 & O_CLOEXEC != 0;
            file()
                .and_then(|f| files.set(b as u32, f, close_on_exec))
                .map(|()| b)
        }
        __NR_fcntl => fcntl(call),
        __NR_ioctl => file().and_then(|f| ioctl(call, &f)),
        __NR_pipe => make_pipe(call, 0),
        __NR_pipe2 => make_pipe(call, b as u32),
        __NR_socketpair => make_sockets(call),
        // The bytes are copied; a program sees no difference as long as it does not change its
        // pages.
        __NR_vmsplice => file().and_then(|f| {
            let direction = match f.object {
                Object::PipeOut(_) => Direction::In,
                _ => Direction::Out,
            };
            transfer_vector(call, &f, direction, b, c)
        }),
        __NR_memfd_create => memfd(call),
        __NR_ftruncate => file().and_then(|f| match f.inode() {
            Some(inode) if f.is_writable() => memory::truncate(inode, b),
            _ => Err(EINVAL.into()),
        }),
        __NR_fallocate => file().and_then(|f| match f.is_writable() {
            true => memory::fallocate(&f, b as u32, c, d),
            false => Err(EBADF.into()),
        }),
        __NR_fsync | __NR_fdatasync => file().map(|_| 0),
        __NR_fadvise64 | __NR_readahead => file().map(|_| 0),
        _ => return None,
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    In,
    Out,
}

/// Writes bytes to a file; sends SIGPIPE to the process if the file is a pipe without readers.
fn write(call: &Call<'_>, file: &OpenFile, place: Place, from: &[u8]) -> Result<usize, Failure> {
    let written = file.write(place, from);
    if written == Err(EPIPE.into()) {
        let process = &call.thread.process;
        send::to_process(process, SigInfo::of_kill(SIGPIPE, process));
    }
    written
}

/// Transfers data between a file and the program in steps; ends after an incomplete step.
fn transfer(
    call: &Call<'_>,
    file: &OpenFile,
    direction: Direction,
    addr: u64,
    len: u64,
    place: Place,
) -> Result<Value, Failure> {
    if direction == Direction::In
        && let Some(pipe) = file.incoming()
    {
        return receive(call, file, pipe, addr, len);
    }
    let mut buffer = heap::zeroed(STEP.min(len as usize))?;
    let mut done = 0;
    loop {
        let step = buffer.len().min((len - done) as usize);
        let place = match place {
            Place::Position => Place::Position,
            Place::Offset(offset) => Place::Offset(offset.checked_add(done).ok_or(EINVAL)?),
        };
        let part = &mut buffer[..step];
        let result = match direction {
            Direction::In => file.read(place, part).and_then(|read| {
                call.mm.write(addr + done, &part[..read])?;
                Ok(read)
            }),
            Direction::Out => send(call, file, place, addr.wrapping_add(done), part),
        };
        match result {
            Ok(count) => done += count as u64,
            Err(failure) if done == 0 => return Err(failure),
            Err(_) => return Ok(done),
        }
        // A pipe takes the rest when it has room.
        if done == len || result != Ok(step) && !file.is_pipe_in() {
            return Ok(done);
        }
    }
}

/// Writes bytes of the program to a file. If the program cannot read all of them, writes those
/// before that, to a pipe in whole buffers.
fn send(
    call: &Call<'_>,
    file: &OpenFile,
    place: Place,
    addr: u64,
    part: &mut [u8],
) -> Result<usize, Failure> {
    let mut readable = call.mm.read_some(addr, part);
    if readable < part.len() {
        if file.is_pipe_in() {
            readable -= readable % pipe::BUFFER;
        }
        if readable == 0 {
            return Err(EFAULT.into());
        }
    }
    write(call, file, place, &part[..readable])
}

/// Reads from a pipe, one buffer after the other. A buffer that the program cannot take as a whole
/// stays in the pipe.
fn receive(
    call: &Call<'_>,
    file: &OpenFile,
    pipe: &ReadEnd,
    addr: u64,
    len: u64,
) -> Result<Value, Failure> {
    let mut buffer = heap::zeroed(pipe::BUFFER.min(len as usize))?;
    let mut done = 0;
    loop {
        let step = buffer.len().min((len - done) as usize);
        let part = &mut buffer[..step];
        // Only the first buffer is waited for.
        let read = match done {
            0 => file.read(Place::Position, part)?,
            _ => match pipe.read(part) {
                Some(Ok(read)) => read,
                _ => return Ok(done),
            },
        };
        if read == 0 {
            return Ok(done);
        }
        if let Err(failure) = call.mm.write(addr.wrapping_add(done), &part[..read]) {
            pipe.put_back(&part[..read])?;
            return if done == 0 { Err(failure) } else { Ok(done) };
        }
        done += read as u64;
        if done == len {
            return Ok(done);
        }
    }
}

fn transfer_vector(
    call: &Call<'_>,
    file: &OpenFile,
    direction: Direction,
    vector: u64,
    count: u64,
) -> Result<Value, Failure> {
    if count > PARTS_MAX {
        return Err(EINVAL.into());
    }
    let mut done = 0;
    for at in 0..count {
        let [addr, len]: [u64; 2] = call.mm.read_array(vector + at * 16)?;
        if len == 0 {
            continue;
        }
        match transfer(call, file, direction, addr, len, Place::Position) {
            Ok(part) => done += part,
            Err(failure) if done == 0 => return Err(failure),
            Err(_) => break,
        }
        // If a part was read incompletely, for example because a pipe is empty, the call ends.
        if direction == Direction::In && done < len {
            break;
        }
    }
    Ok(done)
}

fn send_file(call: &Call<'_>) -> Result<Value, Failure> {
    let [out, from, offset, count, ..] = call.args;
    let files = &call.thread.process.files;
    let (out, from) = (files.get(out as u32)?, files.get(from as u32)?);
    if matches!(from.object, Object::Generated(_) | Object::PidFd(_)) {
        return Err(EINVAL.into());
    }
    let mut at = match offset {
        0 => None,
        _ => Some(call.mm.read_value::<u64>(offset)?),
    };
    let mut buffer = heap::zeroed(STEP)?;
    let mut done = 0;
    while done < count {
        let step = STEP.min((count - done) as usize);
        let read = from.read(
            at.map_or(Place::Position, Place::Offset),
            &mut buffer[..step],
        )?;
        if read == 0 {
            break;
        }
        let mut written = 0;
        while written < read {
            written += write(call, &out, Place::Position, &buffer[written..read])?;
        }
        at = at.map(|at| at + read as u64);
        done += read as u64;
    }
    if let Some(at) = at {
        call.mm.write_values(offset, &[at])?;
    }
    Ok(done)
}

fn close_range(call: &Call<'_>) -> Result<Value, Failure> {
    let [first, last, flags, ..] = call.args;
    if first > last || flags != 0 {
        return Err(EINVAL.into());
    }
    let files = &call.thread.process.files;
    for number in files.numbers() {
        if (first..=last).contains(&u64::from(number)) {
            files.close(number)?;
        }
    }
    Ok(0)
}

fn fcntl(call: &Call<'_>) -> Result<Value, Failure> {
    let [fd, command, argument, ..] = call.args;
    let files = &call.thread.process.files;
    let file = files.get(fd as u32)?;
    match command as u32 {
        F_DUPFD => Ok(files.add(file, argument as u32, false)?.into()),
        F_DUPFD_CLOEXEC => Ok(files.add(file, argument as u32, true)?.into()),
        F_GETFD => files.with_close_on_exec(fd as u32, |flag| u64::from(*flag)),
        F_SETFD => {
            let on = argument as u32 & FD_CLOEXEC != 0;
            files.with_close_on_exec(fd as u32, |flag| *flag = on)?;
            Ok(0)
        }
        F_GETFL => Ok((file.flags() & !O_CLOEXEC).into()),
        F_SETFL => {
            file.set_status_flags(argument as u32);
            Ok(0)
        }
        F_GET_SEALS | F_ADD_SEALS => {
            let inode = file.inode().ok_or(EINVAL)?;
            let pages = inode.file_pages().ok_or(EINVAL)?;
            if command as u32 == F_GET_SEALS {
                return Ok(pages.seals().into());
            }
            if pages.has_seal(F_SEAL_SEAL) || !file.is_writable() {
                return Err(EPERM.into());
            }
            let sealed = argument as u32 & F_SEAL_WRITE != 0;
            if sealed && space().file_mappings(inode.number).writable > 0 {
                return Err(EBUSY.into());
            }
            pages.set_seals(pages.seals() | argument as u32);
            Ok(0)
        }
        _ => Err(EINVAL.into()),
    }
}

fn ioctl(call: &Call<'_>, file: &OpenFile) -> Result<Value, Failure> {
    let [_, request, argument, ..] = call.args;
    if file.inode().and_then(|inode| inode.as_device()) != Some(Device::Terminal) {
        return Err(ENOTTY.into());
    }
    match request {
        TIOCGWINSZ => call
            .mm
            .write_values(argument, &[24u16, 80, 0, 0])
            .map(|()| 0),
        // The modes of a terminal with line editing and echo.
        TCGETS => call
            .mm
            .write_values(argument, &[0x500u32, 5, 0xcbd, 0x8a3b, 0, 0, 0, 0, 0])
            .map(|()| 0),
        _ => Err(ENOTTY.into()),
    }
}

fn make_pipe(call: &Call<'_>, flags: u32) -> Result<Value, Failure> {
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(EINVAL.into());
    }
    let (out, into) = pipe::create();
    let status = flags & O_NONBLOCK;
    let out = OpenFile::new(Object::PipeOut(out), "pipe:".into(), O_RDONLY | status);
    let into = OpenFile::new(Object::PipeIn(into), "pipe:".into(), O_WRONLY | status);
    let files = &call.thread.process.files;
    let close_on_exec = flags & O_CLOEXEC != 0;
    let out = files.add(out, 0, close_on_exec)?;
    let into = files.add(into, 0, close_on_exec).inspect_err(|_| {
        let _ = files.close(out);
    })?;
    call.mm.write_values(call.args[0], &[out, into]).map(|()| 0)
}

/// `socketpair` for local stream sockets.
fn make_sockets(call: &Call<'_>) -> Result<Value, Failure> {
    const LOCAL: u64 = 1;
    let [domain, kind, _, to, ..] = call.args;
    if domain != LOCAL {
        return Err(linux_raw_sys::errno::EAFNOSUPPORT.into());
    }
    let flags = kind as u32 & (O_CLOEXEC | O_NONBLOCK);
    let ((out, into), (other_out, other_into)) = (pipe::create(), pipe::create());
    let files = &call.thread.process.files;
    let open = |object| {
        let file = OpenFile::new(object, "socket:".into(), O_RDWR | flags & O_NONBLOCK);
        files.add(file, 0, flags & O_CLOEXEC != 0)
    };
    let one = open(Object::Socket(out, other_into))?;
    let other = open(Object::Socket(other_out, into))?;
    call.mm.write_values(to, &[one, other]).map(|()| 0)
}

fn memfd(call: &Call<'_>) -> Result<Value, Failure> {
    let [name, flags, ..] = call.args;
    let flags = flags as u32;
    const KNOWN: u32 = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_EXEC;
    let both = MFD_NOEXEC_SEAL | MFD_EXEC;
    if flags & !KNOWN != 0 || flags & both == both {
        return Err(EINVAL.into());
    }
    let name = call
        .mm
        .read_string(name, 250)
        .map_err(|failure| match failure.errno() {
            linux_raw_sys::errno::ENAMETOOLONG => Failure::from(EINVAL),
            _ => failure,
        })?;
    let inode: Arc<Inode> = Inode::file(0o777, &[]);
    if flags & (MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL) != 0
        && let Some(pages) = inode.file_pages()
    {
        pages.set_seals(0);
    }
    let path = format!("/memfd:{name} (deleted)");
    let file = OpenFile::new(Object::Inode(inode), path, O_RDWR | O_LARGEFILE);
    let files = &call.thread.process.files;
    Ok(files.add(file, 0, flags & MFD_CLOEXEC != 0)?.into())
}
