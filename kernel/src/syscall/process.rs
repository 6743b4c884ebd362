//! System calls for processes and threads.

use super::{Call, Outcome};
use crate::failure::{Failure, Value};
use crate::files::OpenFile;
use crate::files::open::Object;
use crate::proc;
use crate::process::exec::{self, Command};
use crate::process::futex::{self, futex};
use crate::process::{self, Inherited, Process, clone, wait};
use crate::space::space;
use crate::space::user::PATH_MAX;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use linux_raw_sys::errno::{E2BIG, EBADF, EFAULT, EINVAL, ENOENT, EPERM, ESRCH};
use linux_raw_sys::general::*;

const ARCH_SET_FS: u64 = 0x1002;
const ARCH_GET_FS: u64 = 0x1003;
/// Maximum number of a program's arguments, and of its environment strings.
const STRINGS_MAX: usize = 4096;

/// Performs a system call for processes and threads.
pub fn call(call: &mut Call<'_>) -> Outcome {
    let [a, b, c, d, e, f] = call.args;
    let thread = call.thread;
    let process = &thread.process;
    let signal = u64::from(CSIGNAL);
    Some(match call.number {
        __NR_fork => fork(call, 0),
        __NR_vfork => fork(call, CLONE_VM | CLONE_VFORK),
        __NR_clone => clone::clone(
            call.registers,
            &clone::Request {
                flags: u64::from(a as u32) & !signal,
                exit_signal: (a & signal) as u32,
                stack: b,
                parent_tid: c,
                child_tid: d,
                tls: e,
            },
        ),
        __NR_clone3 => clone3(call),
        __NR_execve => execute(call),
        __NR_exit => {
            thread.begin_end((a as u32 & 0xff) << 8);
            Ok(0)
        }
        __NR_exit_group => {
            process.begin_exit((a as u32 & 0xff) << 8);
            Ok(0)
        }
        __NR_wait4 => wait::wait4(call.mm, a as i32, b, c as u32, d),
        __NR_waitid => wait::waitid(call.mm, a as u32, b as u32, c, d as u32),
        __NR_futex => futex(
            call.mm,
            &futex::Request {
                uaddr: a,
                op: b as u32,
                val: c as u32,
                timeout: d,
                uaddr2: e,
                val3: f as u32,
            },
        ),
        __NR_arch_prctl => arch_prctl(call),
        __NR_set_tid_address => {
            // ORDERING: Relaxed; only this thread uses the value.
            thread.clear_tid.store(a, Ordering::Relaxed);
            Ok(thread.tid.into())
        }
        __NR_set_robust_list => Ok(0),
        __NR_gettid => Ok(thread.tid.into()),
        __NR_getpid => Ok(process.pid.into()),
        __NR_getppid => Ok(process.parent_number().into()),
        __NR_pidfd_open => pidfd_open(call),
        __NR_unshare => unshare(call),
        _ => return identity(call),
    })
}

fn fork(call: &Call<'_>, flags: u32) -> Result<Value, Failure> {
    let request = clone::Request {
        flags: flags.into(),
        exit_signal: SIGCHLD,
        ..clone::Request::default()
    };
    clone::clone(call.registers, &request)
}

/// `clone3`: takes its arguments in a structure that may become larger in later Linux versions.
fn clone3(call: &Call<'_>) -> Result<Value, Failure> {
    const FIRST_SIZE: u64 = 64;
    let [addr, size, ..] = call.args;
    if size < FIRST_SIZE {
        return Err(EINVAL.into());
    }
    if size > 4096 {
        return Err(E2BIG.into());
    }
    let mut words = [0u64; 11];
    let known = size.min(88) / 8;
    for at in 0..size / 8 {
        let word = call.mm.read_value(addr + at * 8)?;
        match words.get_mut(at as usize) {
            Some(known) => *known = word,
            None if word != 0 => return Err(E2BIG.into()),
            None => {}
        }
    }
    let [
        flags,
        _pidfd,
        child_tid,
        parent_tid,
        exit_signal,
        stack,
        stack_size,
        tls,
        set_tid,
        ..,
    ] = words;
    let is_unknown = flags & u64::from(CSIGNAL | CLONE_DETACHED) != 0 || flags >> 34 != 0;
    let half_stack = (stack == 0) != (stack_size == 0);
    let with_thread = flags & u64::from(CLONE_THREAD | CLONE_PARENT) != 0 && exit_signal != 0;
    if is_unknown || half_stack || with_thread || exit_signal > 64 || known > 8 && set_tid != 0 {
        return Err(EINVAL.into());
    }
    let request = clone::Request {
        flags,
        exit_signal: exit_signal as u32,
        stack: stack.wrapping_add(stack_size),
        parent_tid,
        child_tid,
        tls,
    };
    clone::clone(call.registers, &request)
}

/// Reads an array of strings that ends with a null pointer.
fn strings(call: &Call<'_>, mut addr: u64) -> Result<Vec<String>, Failure> {
    let mut strings = Vec::new();
    while addr != 0 {
        let at: u64 = call.mm.read_value(addr)?;
        if at == 0 {
            break;
        }
        if strings.len() == STRINGS_MAX {
            return Err(E2BIG.into());
        }
        strings.push(call.mm.read_string(at, 32 * PATH_MAX).map_err(|failure| {
            if failure.errno() == EFAULT {
                failure
            } else {
                E2BIG.into()
            }
        })?);
        addr = addr.checked_add(8).ok_or(EFAULT)?;
    }
    Ok(strings)
}

fn execute(call: &mut Call<'_>) -> Result<Value, Failure> {
    let [path, arguments, environment, ..] = call.args;
    let path = call.mm.read_path(path)?;
    if path.is_empty() {
        return Err(ENOENT.into());
    }
    let mut command = Command {
        path,
        arguments: strings(call, arguments)?,
        environment: strings(call, environment)?,
    };
    if command.arguments.is_empty() {
        command.arguments.push(String::new());
    }
    if command.path.starts_with("/proc/")
        && let Some(Ok(proc::Found::Link(target))) = proc::find(&command.path)
    {
        command.path = target;
    }
    exec::execute(call.thread, call.registers, command)?;
    Ok(0)
}

fn arch_prctl(call: &Call<'_>) -> Result<Value, Failure> {
    let [code, addr, ..] = call.args;
    match code {
        ARCH_SET_FS if addr >> 47 == 0 => {
            call.thread.task.set_fs_base(addr);
            Ok(0)
        }
        ARCH_SET_FS => Err(EPERM.into()),
        ARCH_GET_FS => call
            .mm
            .write_values(addr, &[call.thread.task.fs_base()])
            .map(|()| 0),
        _ => Err(EINVAL.into()),
    }
}

/// `pidfd_open`: opens a pidfd for a process number.
fn pidfd_open(call: &Call<'_>) -> Result<Value, Failure> {
    let [pid, flags, ..] = call.args;
    if flags != 0 {
        return Err(EINVAL.into());
    }
    process::find(pid as u32).ok_or(ESRCH)?;
    let object = Object::PidFd(pid as u32);
    let file = OpenFile::new(object, "anon_inode:[pidfd]".into(), O_RDWR);
    Ok(call.thread.process.files.add(file, 0, true)?.into())
}

/// Returns the process number that a pidfd refers to.
///
/// # Errors
/// EBADF.
pub fn process_of_pidfd(call: &Call<'_>, fd: u32) -> Result<u32, Failure> {
    match &call.thread.process.files.get(fd)?.object {
        Object::PidFd(pid) => Ok(*pid),
        _ => Err(EBADF.into()),
    }
}

/// `unshare`: supports only `CLONE_FILES`, and only if the file table is not shared.
fn unshare(call: &Call<'_>) -> Result<Value, Failure> {
    match call.args[0] as u32 {
        0 | CLONE_FILES if !call.thread.process.files.is_shared() => Ok(0),
        _ => Err(EINVAL.into()),
    }
}

/// Performs a system call for users, groups and sessions.
fn identity(call: &Call<'_>) -> Outcome {
    let [a, b, c, ..] = call.args;
    let process = &call.thread.process;
    let mut inherited = process.inherited.lock();
    Some(match call.number {
        __NR_getuid | __NR_geteuid => Ok(inherited.user[0].into()),
        __NR_getgid | __NR_getegid => Ok(inherited.user[1].into()),
        __NR_setuid => set_user(call, &mut inherited, a as u32),
        __NR_setreuid | __NR_setresuid => set_user(call, &mut inherited, b as u32),
        __NR_setgid | __NR_setregid | __NR_setresgid => {
            let new = if call.number == __NR_setgid { a } else { b };
            if new as u32 != u32::MAX {
                inherited.user[1] = new as u32;
            }
            Ok(0)
        }
        __NR_getresuid | __NR_getresgid => {
            let id = inherited.user[usize::from(call.number == __NR_getresgid)];
            let write = |&to: &u64| call.mm.write_values(to, &[id]);
            [a, b, c].iter().try_for_each(write).map(|()| 0)
        }
        __NR_getgroups | __NR_setgroups => Ok(0),
        __NR_getpgrp => Ok(inherited.group.into()),
        __NR_getpgid if a as u32 == 0 || a as u32 == process.pid => Ok(inherited.group.into()),
        __NR_getsid if a as u32 == 0 || a as u32 == process.pid => Ok(inherited.session.into()),
        __NR_setpgid => {
            drop(inherited);
            set_group(process, a as u32, b as u32)
        }
        __NR_setsid => {
            inherited.session = process.pid;
            inherited.group = process.pid;
            Ok(process.pid.into())
        }
        _ => return None,
    })
}

/// Sets the user id; a process whose user id is not 0 has no privileges.
fn set_user(call: &Call<'_>, inherited: &mut Inherited, user: u32) -> Result<Value, Failure> {
    if user != u32::MAX && user != inherited.user[0] {
        if inherited.user[0] != 0 {
            return Err(EPERM.into());
        }
        inherited.user[0] = user;
        inherited.may_lock = false;
    }
    let limits = exec::limits_of(inherited);
    space().set_limits(call.mm.id(), |l| *l = limits)?;
    Ok(0)
}

/// Sets the process group of the caller or of a child.
fn set_group(process: &Process, pid: u32, group: u32) -> Result<Value, Failure> {
    let pid = if pid == 0 { process.pid } else { pid };
    let target = process::find(pid);
    let target = target.filter(|p| p.pid == process.pid || p.parent_number() == process.pid);
    let group = if group == 0 { pid } else { group };
    target.ok_or(ESRCH)?.inherited.lock().group = group;
    Ok(0)
}
