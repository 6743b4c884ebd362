//! `execve`: builds a program's memory and makes the current process run the program.
//!
//! # Picture
//! ```text
//! 0x400000 …      segments, then memory without a file, then the heap
//! … 0x7ffff7fff000  mappings, from the top down
//! stack           pointers: argc, argv, envp, auxiliary vector │ strings │ 8 zeros │ TASK_SIZE
//! ```
//!
//! # Linux
//! `fs/binfmt_elf.c`, `fs/binfmt_script.c`, 6.12, without randomization and without a vDSO.

use super::elf::{Executable, Segment};
use super::signal::HandlerStack;
use super::{Inherited, Thread};
use crate::cpu::{self, Registers};
use crate::failure::Failure;
use crate::files::{Inode, path};
use crate::memory::{mapped, mmu};
use crate::scheduler::task::VectorState;
use crate::space::TASK_SIZE;
use crate::space::user::bytes_of;
use crate::space::{Mm, space};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use linux_raw_sys::errno::{E2BIG, EACCES, EAGAIN, EINVAL, ELOOP, ENOEXEC, ENOMEM};
use linux_raw_sys::general::{RLIMIT_AS, RLIMIT_DATA, RLIMIT_MEMLOCK, RLIMIT_STACK, SIGSEGV};
use vmarea::mm::{Layout, Limits};
use vmarea::syscall::mmap::MmapRequest;
use vmarea::types::call_flags::{MapFlags, Prot};
use vmarea::types::{File, page_align};

/// Top of the mmap area, as Linux computes it for a stack of up to 128 MiB.
const MMAP_BASE: u64 = TASK_SIZE - (128 << 20);
const LEGACY_BASE: u64 = 0x2aaa_aaaa_a000;
/// Address at which a position-independent program is loaded.
const MOVABLE_BASE: u64 = 0x5555_5555_4000;
/// Size of a new stack.
const STACK_SIZE: u64 = 0x21000;
/// Maximum total size of the arguments and the environment, in bytes.
const ARGUMENTS_MAX: usize = 112 << 10;
/// Maximum number of nested scripts, each of which is the interpreter of the previous one.
const SCRIPTS: usize = 4;
const CLOCK_TICKS: u64 = 100;

/// A program with its arguments and its environment.
#[derive(Clone, Debug)]
pub struct Command {
    /// Path of the file.
    pub path: String,
    /// Arguments; the first one is the program's name.
    pub arguments: Vec<String>,
    /// Environment.
    pub environment: Vec<String>,
}

/// A program that has been loaded but has not started yet.
pub struct Loaded {
    /// The program's address space.
    pub mm: Arc<Mm>,
    /// Address of the first instruction.
    pub entry: u64,
    /// Stack pointer.
    pub stack: u64,
    /// Path of the file that was loaded.
    pub program: String,
}

/// Why a program cannot be loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unloadable {
    /// The call fails, and the calling program continues to run.
    Refused(Failure),
    /// The program's memory cannot be built, so the process ends with SIGSEGV.
    ///
    /// In Linux, the caller's memory has already been freed at this point.
    Torn,
}

impl<F: Into<Failure>> From<F> for Unloadable {
    fn from(failure: F) -> Unloadable {
        Unloadable::Refused(failure.into())
    }
}

/// Returns those of a process's resource limits and privileges that the core needs to know.
pub fn limits_of(inherited: &Inherited) -> Limits {
    let soft = |limit: u32| inherited.limits[limit as usize][0];
    let privileged = inherited.user[0] == 0;
    Limits {
        address_space: soft(RLIMIT_AS),
        data: soft(RLIMIT_DATA),
        data_hard: inherited.limits[RLIMIT_DATA as usize][1],
        stack: soft(RLIMIT_STACK),
        memlock: soft(RLIMIT_MEMLOCK),
        ipc_lock: inherited.may_lock,
        raw_io: privileged,
        sys_resource: privileged,
        sys_nice: privileged,
    }
}

/// Loads a program into a new address space; for a script, loads the script's interpreter instead.
///
/// # Errors
/// `Refused` with ENOENT, EACCES, ENOEXEC, EINVAL, ELOOP, E2BIG or ENOMEM; `Torn`.
pub fn load(
    mut command: Command,
    inherited: &Inherited,
    old: Option<&Layout>,
) -> Result<Loaded, Unloadable> {
    for _ in 0..=SCRIPTS {
        let file = path::find(&inherited.directory, &command.path)?;
        if !file.is_file() || file.mode() & 0o111 == 0 {
            return Err(EACCES.into());
        }
        match script_interpreter(&file)? {
            None => return load_executable(&file, &command, inherited, old),
            Some(interpreter) => {
                let mut arguments: Vec<String> =
                    interpreter.iter().map(|word| word.to_string()).collect();
                arguments.push(command.path);
                arguments.extend(command.arguments.into_iter().skip(1));
                command.path = arguments[0].clone();
                command.arguments = arguments;
            }
        }
    }
    Err(ELOOP.into())
}

/// Returns a script's interpreter, followed by the interpreter's argument if there is one.
///
/// Returns `None` if the file is not a script.
fn script_interpreter(file: &Inode) -> Result<Option<Vec<String>>, Failure> {
    let mut head = [0; 256];
    let len = file.read(0, &mut head)?;
    let Some(line) = head[..len].strip_prefix(b"#!") else {
        return Ok(None);
    };
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or(line);
    let line = String::from_utf8_lossy(line);
    let mut words = line.trim().splitn(2, char::is_whitespace);
    let words: Vec<String> = words.by_ref().map(|word| word.trim().into()).collect();
    match words.first().is_some_and(|path| !path.is_empty()) {
        true => Ok(Some(words)),
        false => Err(ENOEXEC.into()),
    }
}

/// An executable file's headers, together with the file and its path.
struct Image {
    file: Arc<Inode>,
    path: String,
    executable: Executable,
}

impl Image {
    fn read(file: Arc<Inode>, path: String) -> Result<Image, Failure> {
        let executable = Executable::read(&file)?;
        Ok(Image {
            file,
            path,
            executable,
        })
    }

    /// Reads the headers of a program's interpreter (dynamic loader).
    fn read_interpreter(path: &str, inherited: &Inherited) -> Result<Image, Failure> {
        let file = path::find(&inherited.directory, path)?;
        let image = Image::read(file, path.into())?;
        match image.executable.movable {
            true => Ok(image),
            false => Err(EINVAL.into()),
        }
    }
}

fn load_executable(
    file: &Arc<Inode>,
    command: &Command,
    inherited: &Inherited,
    old: Option<&Layout>,
) -> Result<Loaded, Unloadable> {
    let path = path::absolute(&inherited.directory, &command.path);
    let image = Image::read(Arc::clone(file), path)?;
    let interpreter = image.executable.interpreter.as_ref();
    let interpreter = interpreter
        .map(|path| Image::read_interpreter(path, inherited))
        .transpose()?;
    let strings = command.arguments.iter().chain(&command.environment);
    if strings.map(|s| s.len() + 9).sum::<usize>() > ARGUMENTS_MAX {
        return Err(E2BIG.into());
    }
    let mut layout = Layout {
        mmap_base: MMAP_BASE,
        legacy_base: LEGACY_BASE,
        ..Layout::default()
    };
    if let Some(old) = old {
        layout.inherit(old);
    }
    let mm = Mm::new(layout, limits_of(inherited))?;
    build(mm, &image, interpreter.as_ref(), command, inherited).map_err(|_| Unloadable::Torn)
}

/// Builds a program's memory.
fn build(
    mm: Arc<Mm>,
    image: &Image,
    interpreter: Option<&Image>,
    command: &Command,
    inherited: &Inherited,
) -> Result<Loaded, Failure> {
    let executable = &image.executable;
    let bias = if executable.movable { MOVABLE_BASE } else { 0 };
    map_segments(&mm, image, bias)?;
    let (start, base) = match interpreter {
        Some(interpreter) => map_interpreter(&mm, interpreter)?,
        None => (executable.entry + bias, 0),
    };
    let stack = map_stack(&mm)?;
    let auxiliary = [
        (3, executable.headers_addr() + bias), // AT_PHDR
        (4, 56),                               // AT_PHENT
        (5, executable.headers.1),             // AT_PHNUM
        (7, base),                             // AT_BASE
        (9, executable.entry + bias),          // AT_ENTRY
    ];
    let pushed = push_arguments(&mm, stack, command, &auxiliary, inherited.user)?;
    let heap = page_align(executable.end() + bias).ok_or(ENOEXEC)?;
    let code = executable
        .segments
        .iter()
        .find(|s| s.prot.contains(Prot::EXEC));
    let data = executable.segments.last();
    space().set_layout(mm.id(), |layout| {
        layout.start_brk = heap;
        layout.brk = heap;
        layout.code = code.map_or([0; 2], |s| [s.addr + bias, s.addr + bias + s.file_len]);
        layout.start_data = data.map_or(0, |s| s.addr + bias);
        layout.end_data = data.map_or(0, |s| s.addr + bias + s.file_len);
        layout.start_stack = pushed.stack;
        layout.args = pushed.arguments;
        layout.env = pushed.environment;
    })?;
    Ok(Loaded {
        mm,
        entry: start,
        stack: pushed.stack,
        program: command.path.clone(),
    })
}

/// Maps a program's interpreter; returns the interpreter's entry point and load bias.
fn map_interpreter(mm: &Mm, interpreter: &Image) -> Result<(u64, u64), Failure> {
    // Reserves room for all segments, which are then mapped over the reservation.
    let room = MmapRequest {
        len: interpreter.executable.end(),
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::NORESERVE,
        ..MmapRequest::default()
    };
    let bias = space().mmap(mm.id(), &room)?;
    map_segments(mm, interpreter, bias)?;
    Ok((interpreter.executable.entry + bias, bias))
}

fn map_segments(mm: &Mm, image: &Image, bias: u64) -> Result<(), Failure> {
    let (mapped, _in_use) = image
        .file
        .describe(&image.path, mapped::new_id(), (true, false))?;
    for segment in &image.executable.segments {
        map_segment(mm, &mapped, segment, bias)?;
    }
    Ok(())
}

/// Maps one segment: first the part that is in the file, then anonymous memory.
///
/// If the segment is writable and extends beyond its part in the file, the rest of the last file
/// page is filled with zeros.
fn map_segment(mm: &Mm, file: &File, segment: &Segment, bias: u64) -> Result<(), Failure> {
    let addr = segment.addr + bias;
    let start = addr & !4095;
    let file_end = addr + segment.file_len;
    let mut fixed = MmapRequest {
        addr: start,
        len: file_end - start,
        prot: segment.prot,
        flags: MapFlags::PRIVATE | MapFlags::FIXED,
        file: Some(*file),
        offset: segment.offset & !4095,
        ..MmapRequest::default()
    };
    let mut mapped_end = start;
    if segment.file_len != 0 {
        space().mmap(mm.id(), &fixed)?;
        mapped_end = page_align(file_end).ok_or(ENOEXEC)?;
        let is_writable = segment.prot.contains(Prot::WRITE);
        if segment.len > segment.file_len && is_writable && mapped_end > file_end {
            let len = (mapped_end - file_end) as usize;
            mm.write(file_end, &[0; 4096][..len])?;
        }
    }
    let end = page_align(addr + segment.len).ok_or(ENOEXEC)?;
    if end > mapped_end {
        fixed.addr = mapped_end;
        fixed.len = end - mapped_end;
        fixed.flags |= MapFlags::ANONYMOUS;
        fixed.file = None;
        fixed.offset = 0;
        space().mmap(mm.id(), &fixed)?;
    }
    Ok(())
}

/// Maps the stack; returns the first address after it.
fn map_stack(mm: &Mm) -> Result<u64, Failure> {
    let request = MmapRequest {
        addr: TASK_SIZE - STACK_SIZE,
        len: STACK_SIZE,
        prot: Prot::READ | Prot::WRITE,
        flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED | MapFlags::GROWSDOWN,
        ..MmapRequest::default()
    };
    space().mmap(mm.id(), &request)?;
    Ok(TASK_SIZE)
}

/// Stack pointer, and the addresses of the arguments that were pushed.
struct Pushed {
    stack: u64,
    arguments: [u64; 2],
    environment: [u64; 2],
}

/// Writes strings below `top`, the first string at the lowest address; returns their addresses.
fn push_strings(mm: &Mm, top: &mut u64, strings: &[String]) -> Result<Vec<u64>, Failure> {
    let len: usize = strings.iter().map(|s| s.len() + 1).sum();
    *top -= len as u64;
    let mut at = *top;
    let (mut addresses, mut bytes) = (Vec::new(), Vec::new());
    let reserved = addresses.try_reserve_exact(strings.len());
    reserved
        .and_then(|()| bytes.try_reserve_exact(len))
        .map_err(|_| ENOMEM)?;
    for string in strings {
        addresses.push(at);
        at += string.len() as u64 + 1;
        bytes.extend_from_slice(string.as_bytes());
        bytes.push(0);
    }
    mm.write(*top, &bytes)?;
    Ok(addresses)
}

/// Writes the arguments, the environment and the auxiliary vector to the stack.
fn push_arguments(
    mm: &Mm,
    stack: u64,
    command: &Command,
    auxiliary: &[(u64, u64)],
    user: [u32; 2],
) -> Result<Pushed, Failure> {
    let mut top = stack - 8;
    let name = push_strings(mm, &mut top, core::slice::from_ref(&command.path))?[0];
    let environment_end = top;
    let environment = push_strings(mm, &mut top, &command.environment)?;
    let arguments_end = top;
    let arguments = push_strings(mm, &mut top, &command.arguments)?;
    let strings_start = top;
    top = (top & !15) - 16;
    let random = top;
    let seed = [cpu::clock::now(), 0x9e37_79b9_7f4a_7c15];
    mm.write(random, bytes_of(&seed))?;
    let [uid, gid] = user.map(u64::from);
    let mut words = vec![command.arguments.len() as u64];
    words.extend(&arguments);
    words.push(0);
    words.extend(&environment);
    words.push(0);
    let general = [
        (6, 4096),         // AT_PAGESZ
        (8, 0),            // AT_FLAGS
        (11, uid),         // AT_UID
        (12, uid),         // AT_EUID
        (13, gid),         // AT_GID
        (14, gid),         // AT_EGID
        (17, CLOCK_TICKS), // AT_CLKTCK
        (23, 0),           // AT_SECURE
        (25, random),      // AT_RANDOM
        (31, name),        // AT_EXECFN
        (0, 0),            // AT_NULL
    ];
    for (kind, value) in auxiliary.iter().chain(&general) {
        words.extend([*kind, *value]);
    }
    top = (top - 8 * words.len() as u64) & !15;
    mm.write_values(top, &words)?;
    Ok(Pushed {
        stack: top,
        arguments: [strings_start, arguments_end],
        environment: [arguments_end, environment_end],
    })
}

/// Makes the current process run a program (`execve`).
///
/// # Errors
/// Errors of [`load`]; EAGAIN if another thread executes a program at the same time.
pub fn execute(
    thread: &Thread,
    registers: &mut Registers,
    command: Command,
) -> Result<(), Failure> {
    let process = &thread.process;
    let inherited = process.inherited.lock().clone();
    let layout = process
        .mm()
        .and_then(|mm| Some(space().mmap_read_lock(mm.id())?.state().layout));
    let loaded = match load(command, &inherited, layout.as_ref()) {
        Ok(loaded) => loaded,
        Err(Unloadable::Refused(failure)) => return Err(failure),
        Err(Unloadable::Torn) => {
            process.begin_exit(SIGSEGV);
            return Ok(());
        }
    };
    if !process.end_other_threads(thread.tid) {
        return Err(EAGAIN.into());
    }
    let actions = Arc::new(process.actions.lock().without_handlers());
    *process.actions.lock() = actions;
    process.files.close_on_exec();
    {
        let mut inherited = process.inherited.lock();
        let name = loaded.program.rsplit('/').next().unwrap_or("");
        inherited.name = name.chars().take(15).collect();
        inherited.program = path::absolute(&inherited.directory, &loaded.program);
    }
    thread.signals.lock().stack = HandlerStack::default();
    // ORDERING: Relaxed; only this thread uses the value.
    thread.clear_tid.store(0, Ordering::Relaxed);
    thread.task.set_fs_base(0);
    thread.task.set_vector_state(VectorState::initial());
    let id = Some(loaded.mm.id());
    let old = process.replace_mm(Some(loaded.mm));
    mmu::switch(id);
    drop(old);
    process.return_memory();
    *registers = Registers::at_start(loaded.entry, loaded.stack);
    Ok(())
}
