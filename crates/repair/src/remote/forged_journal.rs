//! Tests with forged journals, and with guard pages that a killed run has left accessible.

use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use vmarea_merge::types::VmRange;

use super::fix::finish_guards;
use super::injector::Injector;
use super::test_process::while_it_stands;
use super::trust;
use crate::fixes;
use crate::journal::{Agent, State};
use crate::plan::PAGE;
use vmarea_linux_sys::calls::Call;
use vmarea_process::maps::{self, MapsEntry};

/// Returns a mapping of the program's own code.
fn code_of(pid: i32) -> MapsEntry {
    let mappings = maps::read(pid).expect("its mappings");
    let mut code = mappings.into_iter().filter(|m| m.perms.exec && m.ino != 0);
    code.next().expect("code")
}

/// Tests that a journal is rejected if an attacker has changed its contents.
#[test]
fn what_a_journal_names_must_be_what_a_repair_has_put_there() {
    while_it_stands(|heap, held, agent| {
        let honest = State {
            stopping: Some(false),
            saved: Some(held.saved),
            agent: Some(agent),
            piece: Some(heap.area),
            ..State::default()
        };
        let pid = heap.pid();
        let check = |change: &dyn Fn(&mut State, &mut Agent)| {
            let (mut state, mut agent) = (honest.clone(), agent);
            change(&mut state, &mut agent);
            state.agent = state.agent.map(|_| agent);
            trust::check(pid, &state)
        };
        assert_eq!(check(&|_, _| ()), Ok(()));
        let area = heap.area;
        let code = code_of(pid);
        let at = |start, end| Some(VmRange::new(start, end));
        type Forgery<'a> = &'a dyn Fn(&mut State, &mut Agent);
        let forged: [Forgery<'_>; 17] = [
            &|_, agent| agent.code = area.start,
            &|_, agent| agent.code = u64::MAX,
            &|_, agent| agent.code += 8,
            &|_, agent| agent.code = code.start,
            &|_, agent| agent.table = area.start,
            &|_, agent| agent.table = u64::MAX - 4095,
            &|_, agent| agent.room = VmRange::new(0, u64::MAX),
            &|_, agent| agent.room = VmRange::new(code.start, code.end),
            &|_, agent| agent.room.end = agent.room.start,
            &|_, agent| agent.room.end += PAGE,
            &|state, _| state.piece = at(0, 0),
            &|state, _| state.piece = at(PAGE, !4095),
            &|state, _| state.piece = at(area.start + 1, area.end),
            &|state, agent| state.piece = at(agent.room.start, agent.room.start + PAGE),
            &|state, _| state.piece = at(code.start, code.end),
            &|state, _| state.guards.extend(at(0, 1 << 40)),
            &|state, _| state.guards = vec![VmRange::new(area.start, area.start + PAGE); 1_000],
        ];
        for (n, forged) in forged.iter().enumerate() {
            assert!(check(*forged).is_err(), "number {n}");
        }
        // Registers with which the thread would run code outside the process's own code.
        for pc in [0, area.start, u64::MAX] {
            let refused = check(&|state, _| {
                let nothing = Call::plain(0, 0, &[]);
                let saved = state.saved.as_mut().expect("registers");
                saved.registers = saved.registers.calling(pc, &nothing);
            });
            assert!(refused.is_err(), "{pc:#x}");
        }
        assert!(check(&|state, _| state.agent = None).is_err());
    });
}

#[test]
fn a_journal_of_another_user_decides_over_none_but_their_process() {
    let own = std::process::id().cast_signed();
    let user = rustix::process::geteuid().as_raw();
    assert_eq!(trust::may_decide(own, user), Ok(()));
    assert!(trust::may_decide(own, user + 1).is_err());
    assert!(trust::may_decide(i32::MAX, user + 1).is_err());
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "54321", "--clear-groups", "cat"])
        .stdin(Stdio::piped());
    let Ok(mut child) = command.stderr(Stdio::null()).spawn() else {
        return eprintln!("skipped: no setpriv");
    };
    let pid = child.id().cast_signed();
    let is_cat = || std::fs::read_to_string(format!("/proc/{pid}/comm"));
    while is_cat().is_ok_and(|name| name == "setpriv\n") {
        std::thread::yield_now();
    }
    if is_cat().is_ok_and(|name| name == "cat\n") && user == 0 {
        assert_eq!(trust::may_decide(pid, 54_321), Ok(()));
        assert!(trust::may_decide(pid, 54_320).is_err());
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn a_guard_that_was_left_open_is_marked_and_data_is_not() {
    while_it_stands(|heap, held, agent| {
        // The second page of the first part is empty and writable, like an opened guard.
        let start = heap.area.start;
        let (data, open) = (
            VmRange::new(start, start + PAGE),
            VmRange::new(start + PAGE, start + 2 * PAGE),
        );
        finish_guards(held, &agent, &[data]).expect("nothing to do");
        let mut byte = [0];
        held.memory()
            .read_exact_at(&mut byte, start)
            .expect("it can be read");
        assert_eq!(byte, [1], "data was dropped");
        let mut probe = [fixes::mark(open)];
        held.run(&agent, &mut probe, 0).expect("it stands");
        if probe[0].errno() == libc::EINVAL {
            eprintln!("skipped: no guard markers before Linux 6.13");
        } else {
            let remove = Call::plain(0, libc::SYS_madvise, &[open.start, PAGE, 103]);
            held.run(&agent, &mut [remove], 0).expect("it stands");
            assert!(held.target.touch(open.start));
            let drop = Call::plain(0, libc::SYS_madvise, &[open.start, PAGE, 4]);
            held.run(&agent, &mut [drop], 0).expect("it stands");
            finish_guards(held, &agent, &[data, open]).expect("it is marked");
            assert!(!held.target.touch(open.start), "a guard can be written to");
        }
    });
}
