//! `vmarea merge` on processes whose memory the kernel refuses to move.
//!
//! The processes fork, have registered buffers, or are being merged by another command. Their
//! memory must remain intact, and the dry run must report which mappings will not be merged.
//!
//! The tests of `vmarea-repair` check what happens if the kernel refuses any single call.

use crate::support::heap::{Heap, may_merge};
use crate::support::{VMAREA, leash, text};
use std::process::{Command, Stdio};

/// Program with 400 one-page mappings that can become one. It obeys commands and prints what it
/// reads.
const PROGRAM: &str = r#"
pages = 400
area = make(pages, 1, lambda p, i: ctypes.memset(p, i % 251, page))
def wrong():
    return sum(ctypes.string_at(area + i * page, page) != bytes([i % 251]) * page for i in range(pages))
class iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
for line in sys.stdin:
    word, answer = line.strip(), "done"
    if word == "wrong":
        answer = wrong()
    elif word == "forks":
        answer = 0
        for _ in range(100):
            child = os.fork()
            if child == 0:
                os._exit(wrong())
            answer += os.waitpid(child, 0)[1] != 0
            for i in range(pages):
                ctypes.memset(area + i * page, i % 251, page)
            time.sleep(.005)
    elif word == "forked":
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    elif word == "ring":
        ring = libc.syscall(425, 4, ctypes.create_string_buffer(120))
        buffers = (iovec * 2)(iovec(area + 100 * page, page), iovec(area + 299 * page + 10, page))
        answer = min(ring, libc.syscall(427, ring, 0, buffers, 2))
    elif word == "wait":
        woken = []
        ring = libc.syscall(425, 4, ctypes.create_string_buffer(120))
        calls = [lambda: libc.epoll_wait(libc.epoll_create(1), ctypes.create_string_buffer(16), 1, -1)]
        if ring >= 0:
            calls.append(lambda: libc.syscall(426, ring, 0, 1, 1, None, 0))
        for call in calls:
            threading.Thread(target=lambda call=call: woken.append(call()), daemon=True).start()
        time.sleep(.1)
    elif word == "woken":
        answer = len(woken)
    elif word == "closes":
        os.closerange(3, 64)
        own = libc.syscall(323, 0o2000000)
        pipes = [os.pipe() for _ in range(8)]
        kept = {fd: os.fstat(fd) for fd in sum(pipes, (own,)) if fd >= 0}
        open_then = len(os.listdir("/proc/self/fd"))
    elif word == "kept":
        same = lambda fd: (os.fstat(fd).st_dev, os.fstat(fd).st_ino) == (kept[fd].st_dev, kept[fd].st_ino)
        passed = all(os.write(w, b"x") == 1 and os.read(r, 1) == b"x" for r, w in pipes)
        answer = passed and all(map(same, kept)) and len(os.listdir("/proc/self/fd")) - open_then
    elif word == "rseq":
        base = ctypes.c_ulong()
        libc.syscall(158, 0x1003, ctypes.byref(base))
        own = base.value + ctypes.c_long.in_dll(libc, "__rseq_offset").value
        ctypes.memset(area + 100 * page, 0, page)
        answer = libc.syscall(334, ctypes.c_void_p(own), 32, 1, 0x53053053)
        answer |= libc.syscall(334, ctypes.c_void_p(area + 100 * page), 32, 0, 0x53053053)
    elif word == "stacks":
        threading.stack_size(65536)
        for _ in range(100):
            threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    print(answer, flush=True)
"#;

#[test]
fn it_forks_between_the_look_and_the_move() {
    if !may_merge() {
        return;
    }
    for way in ["move", "copy"] {
        let mut heap = Heap::start(PROGRAM);
        heap.tell("forks");
        for _ in 0..5 {
            let range = heap.range.clone();
            let fixed = ["--apply", "--max-pause", "1s"];
            let arguments = [&fixed[..], &["--by", way, "--range", &range]].concat();
            let output = heap.merge(&arguments);
            assert!(matches!(output.status.code(), Some(0 | 4)), "{output:?}");
        }
        assert_eq!(
            (heap.hear(), heap.ask("wrong")),
            ("0".into(), "0".into()),
            "{way}"
        );
    }
}

#[test]
fn what_a_child_that_ended_has_left_shared_is_joined() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start(PROGRAM);
    assert_eq!(heap.ask("forked"), "done");
    let done = heap.said(&["--apply"]);
    assert_eq!(
        (&done["after"], &done["copied_pages"]),
        (&1.into(), &0.into())
    );
    assert_eq!(heap.ask("wrong"), "0");
}

#[test]
fn registered_buffers_stay_apart_and_a_dry_run_says_so() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start(PROGRAM);
    if heap.ask("ring").starts_with('-') {
        eprintln!("skipped: no io_uring here");
        return;
    }
    // Three of the 400 mappings are pinned: one at index 100 and two at 299. They remain, and so do
    // the three runs between them.
    let dry = heap.said(&[]);
    assert_eq!((&dry["after"], &dry["runs"]), (&6.into(), &3.into()));
    assert_eq!(dry["kept_apart"]["pinned"], 5);
    let done = heap.said(&["--apply"]);
    assert_eq!(done["after"], 6);
    assert_eq!(heap.ask("wrong"), "0");
}

/// Runs only on x86-64, where an interrupted call's registers can be completely restored.
#[cfg(target_arch = "x86_64")]
#[test]
fn calls_that_wait_are_not_interrupted_by_our_stops() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start(PROGRAM);
    assert_eq!(heap.ask("wait"), "done");
    let done = heap.said(&["--apply"]);
    assert_eq!(done["after"], 1);
    assert_eq!(
        (heap.ask("woken"), heap.ask("wrong")),
        ("0".into(), "0".into())
    );
}

#[test]
fn a_second_merge_says_who_is_at_work_and_changes_nothing() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start(PROGRAM);
    // The first merge waits before its first piece.
    let first = heap.merge_slowly(10, &[]);
    let before = heap.mappings();
    for more in [&["--apply"][..], &["--resume"]] {
        let second = heap.merge(more);
        let said = text(&second.stderr);
        assert_eq!(second.status.code(), Some(1), "{said}");
        assert!(said.contains("another merge, pid "), "{said}");
        let pid: String = said
            .chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("it runs");
        assert_eq!(name, "vmarea\n");
    }
    assert_eq!(heap.mappings(), before);
    let first = leash::finish(first).expect("its end");
    assert!(first.status.success(), "{first:?}");
    assert_eq!(heap.ask("wrong"), "0");
}

/// The program closes all descriptors, including the merge's userfaultfd, and then opens files of
/// its own, among them a userfaultfd. One of the new files gets the descriptor number of the
/// merge's userfaultfd.
#[test]
fn a_program_that_closes_all_descriptors_keeps_what_it_opens_then() {
    if !may_merge() {
        return;
    }
    for way in ["move", "copy"] {
        let mut heap = Heap::start(PROGRAM);
        let merge = heap.merge_slowly(2, &["--by", way, "--json"]);
        assert_eq!(heap.ask("closes"), "done");
        let output = leash::finish(merge).expect("its end");
        assert!(output.status.success(), "{output:?}");
        let done: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
        assert_eq!(done["after"], 1, "{way}: {done}");
        // All files are unchanged, and no file is open that the program did not open.
        assert_eq!(
            (heap.ask("kept"), heap.ask("wrong")),
            ("0".into(), "0".into())
        );
    }
}

#[test]
fn a_merge_that_was_killed_closes_no_file_of_the_program_when_resumed() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start(PROGRAM);
    let before = heap.mappings();
    let merge = heap.merge_slowly(60, &[]);
    // The command, and the process that traces for it, which has the same arguments. That one is the
    // younger one, and comes first: it would remove everything as soon as the other is killed.
    let both = format!("{VMAREA} merge -p {} ", heap.pid());
    let found = leash::output(Command::new("pgrep").args(["-f", &both])).expect("pgrep");
    let found = text(&found.stdout);
    let mut kill = Command::new("kill");
    kill.arg("-KILL").args(found.lines().rev());
    leash::output(&mut kill).expect("kill");
    drop(merge);
    assert!(heap.mappings() > before, "nothing was left to remove");
    assert_eq!(heap.ask("closes"), "done");
    let output = heap.merge(&["--resume"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        (heap.ask("kept"), heap.ask("wrong")),
        ("0".into(), "0".into())
    );
    assert_eq!(heap.said(&["--apply"])["after"], 1);
}

#[test]
fn guards_of_thread_stacks_join_a_neighbour_and_are_counted() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start(PROGRAM);
    assert_eq!(heap.ask("stacks"), "done");
    let before = heap.mappings();
    let output = heap.merge(&["--apply", "--fix", "guards", "--max-pause", "1s"]);
    let said = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 4)), "{said}");
    let result = text(&output.stdout);
    let changed = result.lines().find(|line| line.starts_with("guards: "));
    let fewer = changed.and_then(|line| line.split(", ").nth(1)?.split(' ').next());
    let fewer: usize = fewer.expect("it says how many").parse().expect("a number");
    if result.contains("changed 0 places") {
        eprintln!("skipped: guards are markers already here");
        return;
    }
    assert!(fewer >= 90, "{said}");
    assert!(heap.mappings() <= before - fewer, "{said}");
    assert_eq!(heap.ask("wrong"), "0");
}

/// The kernel writes to a thread's `rseq` area after moving the thread to another processor. The
/// thread that makes a call for the repair does so while all pages are at their addresses.
#[test]
fn a_page_that_the_kernel_writes_for_a_thread_is_merged() {
    if !may_merge() {
        return;
    }
    let mut heap = Heap::start(PROGRAM);
    if heap.ask("rseq") != "0" {
        eprintln!("skipped: the C library has no rseq area to move");
        return;
    }
    let moves = "while :; do taskset -p 1 $0; taskset -p 2 $0; done";
    let mut moving = Command::new("sh");
    moving
        .args(["-c", moves, &heap.pid()])
        .stdout(Stdio::null());
    let moving = leash::Leashed::start(&mut moving).expect("a shell");
    let said = heap.said(&["--apply"]);
    drop(moving);
    assert_eq!(said["after"], 1, "{said}");
    assert_eq!(heap.ask("wrong"), "1", "the page of the area itself");
}
