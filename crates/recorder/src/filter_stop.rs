//! Handles seccomp stops caused by the recorder's filter or by the program's own filters.
//!
//! A stop that the program's own filter causes is meant for a tracer that the program does not
//! have, so the call fails as it would without a tracer. Any other call proceeds immediately or, if
//! it changes the address space, as soon as no other thread is inside a call that changes it
//! ([`super::calls`]).

use super::actions::Action;
use super::call_table::{self, CallRule, Role};
use super::filter;
use super::memory;
use super::program_filters::CallData;
use super::tasks::{Inside, Pending, UNRECORDED};
use super::timeline::Alone;
use super::tracer::Tracer;
use vmarea_linux_sys::ptrace::{self, SyscallStop};
use vmarea_trace::event::Nanos;

const CLONE_VM: u64 = libc::CLONE_VM as u64;

impl Tracer<'_> {
    /// Handles a thread that a seccomp filter stopped.
    pub(super) fn at_filter(&mut self, tid: i32, now: Nanos) {
        let Ok((arch, SyscallStop::Seccomp { nr, args, data })) = ptrace::syscall_stop(tid) else {
            return self.resume(tid, 0);
        };
        if self.is_for_another_tracer(tid, (arch, nr, args), data) {
            // Without a tracer, the call would fail as well.
            let _ = ptrace::refuse_call(tid);
            return self.resume(tid, 0);
        }
        let Some(rule) = filter::rule_of(data) else {
            self.note_foreign_call(tid);
            if call_table::observable().any(|observed| u64::from(observed) == nr) {
                self.at(now, Action::ForeignCall { tid });
            }
            return self.resume(tid, 0);
        };
        self.begin_call(tid, rule, nr, args, now);
    }

    /// Begins to record a call before which a thread is stopped; the thread may have to wait.
    pub(super) fn begin_call(
        &mut self,
        tid: i32,
        rule: &'static CallRule,
        nr: u64,
        args: [u64; 6],
        now: Nanos,
    ) {
        if rule.role == Role::Exits {
            return self.at_exit_call(tid, args[0], now);
        }
        let (nr, args) = match nr as i64 {
            libc::SYS_clone3 => (libc::SYS_clone as u32, clone3_args(tid, &args)),
            _ => (rule.nr, args),
        };
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        let call = task.call.insert(Pending::new(rule, nr, args));
        let serial = rule.role == Role::ChangesMappings
            || rule.role == Role::Clones && call.clone_flags() & CLONE_VM == 0;
        let mm = task.mm;
        if let Some(space) = self.spaces.get_mut(&mm)
            && serial
            && mm != UNRECORDED
        {
            if !space.inside.is_empty() {
                space.queue.push_back((tid, now));
                return;
            }
            space.inside.push(Inside::new(tid, now));
        }
        self.let_in(tid, Alone::Yes);
    }

    /// True if a filter of the program caused the stop, or would without the recorder's filter.
    fn is_for_another_tracer(
        &self,
        tid: i32,
        (arch, nr, args): (u32, u64, [u64; 6]),
        value: u32,
    ) -> bool {
        let mut call = CallData {
            nr: nr as u32,
            arch,
            ip: 0,
            args,
        };
        if !filter::is_ours(self.stopping, &call, value) {
            return true;
        }
        self.program_filters.has(tid) && {
            call.ip = ptrace::stack_registers(tid).map_or(0, |[ip, ..]| ip);
            self.program_filters.trace(tid, &call)
        }
    }

    /// Records the filter that a successful call installed for one thread or for its whole process.
    pub(super) fn has_set_filter(&mut self, tid: i32, pid: i32, call: &Pending, ret: i64) {
        let flags = match i64::from(call.nr) {
            libc::SYS_seccomp => call.args[1],
            _ => 0,
        };
        // A positive result is the listener's descriptor, or the thread that could not be
        // synchronised.
        let listens = flags & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER != 0;
        if ret != 0 && !(ret > 0 && listens) {
            return;
        }
        let all = flags & libc::SECCOMP_FILTER_FLAG_TSYNC != 0;
        let threads = self.tasks.iter();
        let tids = threads.filter(|(other, task)| **other == tid || all && task.pid == pid);
        self.program_filters
            .set(&call.data, tids.map(|(tid, _)| *tid));
    }

    /// Adds a note, at most once, that explains why a debugger or AddressSanitizer's leak check
    /// fails.
    pub(super) fn note_tracing(&mut self, pid: i32, ret: i64) {
        let refused = ret == -i64::from(libc::EPERM);
        if refused && !std::mem::replace(&mut self.tracing_noted, true) {
            self.note(format!(
                "process {pid} cannot trace others while it is recorded: a debugger does not work in it, and the \
                 leak check of AddressSanitizer fails (set ASAN_OPTIONS=detect_leaks=0)"
            ));
        }
    }

    pub(super) fn note_foreign_call(&mut self, tid: i32) {
        let Some(mm) = self.tasks.get(&tid).map(|task| task.mm) else {
            return;
        };
        let space = self.spaces.entry(mm).or_default();
        if mm != UNRECORDED && !std::mem::replace(&mut space.noted, true) {
            self.note(format!(
                "thread {tid} makes 32-bit system calls, which are not recorded"
            ));
        }
    }
}

/// Converts `clone3` arguments to `clone` arguments.
fn clone3_args(tid: i32, args: &[u64; 6]) -> [u64; 6] {
    // struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size
    let words = memory::words(tid, args[0], 7);
    match words.as_slice() {
        &[flags, _, _, _, signal, stack, size] => {
            let top = if stack == 0 {
                0
            } else {
                stack.wrapping_add(size)
            };
            [flags | signal, top, 0, 0, 0, 0]
        }
        _ => [0; 6],
    }
}
