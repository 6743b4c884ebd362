//! Properties of a task that affect its later system calls, read from `/proc`.
//!
//! [`crate::view::MmFields::fill`] adds `mmap_base`, `brk` and `def_flags`, which `/proc` does not
//! show.

use std::fs;

use vmarea_linux_sys::task_status::TaskStatus;
use vmarea_trace::event::MmInfo;

const CAP_IPC_LOCK: u32 = 14;
/// Inode number of the initial user namespace, fixed in the kernel.
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";

/// Reads the properties of process or thread `pid` from `/proc`.
///
/// A property that is not readable or does not exist is `None`.
pub fn mm_info(pid: i32) -> MmInfo {
    let read = |file: &str| {
        let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    };
    let mut info = MmInfo::default();
    fill_stat(&mut info, &read("stat"));
    fill_limits(&mut info, &read("limits"));
    fill_status(&mut info, &TaskStatus::read(pid).unwrap_or_default());
    info.personality = u64::from_str_radix(read("personality").trim(), 16).ok();
    info.cap_ipc_lock = capabilities(pid).map(|mask| mask >> CAP_IPC_LOCK & 1 == 1);
    info
}

/// Returns the effective capabilities of a thread with respect to the initial user namespace.
///
/// Calls that change address spaces check capabilities in that namespace; a thread in another user
/// namespace has none there. The result is `None` if the thread has exited.
pub fn capabilities(tid: i32) -> Option<u64> {
    let mask = TaskStatus::read(tid).ok()?.mask("CapEff")?;
    let namespace = fs::read_link(format!("/proc/{tid}/ns/user"));
    // In another namespace, the capabilities in `status` do not count.
    let elsewhere = namespace.is_ok_and(|name| name.as_os_str() != FIRST_USER_NAMESPACE);
    Some(if elsewhere { 0 } else { mask })
}

/// Fills in the addresses from `/proc/PID/stat`, which are 0 for unprivileged readers.
fn fill_stat(info: &mut MmInfo, text: &str) {
    // The name in parentheses may contain any character; fields are counted after it, from field 3.
    let Some((_, rest)) = text.rsplit_once(") ") else {
        return;
    };
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let address = |number: usize| -> Option<u64> {
        let value = fields.get(number - 3)?.parse().ok()?;
        (value != 0).then_some(value)
    };
    info.start_stack = address(28);
    info.start_data = address(45);
    info.end_data = address(46);
    info.start_brk = address(47);
}

fn fill_limits(info: &mut MmInfo, text: &str) {
    let soft = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        match line.split_ascii_whitespace().next()? {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        }
    };
    info.rlimit_as = soft("Max address space ");
    info.rlimit_data = soft("Max data size ");
    info.rlimit_stack = soft("Max stack size ");
    info.rlimit_memlock = soft("Max locked memory ");
}

fn fill_status(info: &mut MmInfo, status: &TaskStatus) {
    let page = rustix::param::page_size() as u64;
    let pages = |name: &str| Some((status.number::<u64>(name)? << 10) / page);
    info.total_vm = pages("VmSize");
    info.locked_vm = pages("VmLck");
    info.thp_disabled = match status.field("THP_enabled") {
        Some("0") => Some(true),
        Some("1") => Some(false),
        _ => None,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{KernelView, View};
    use vmarea_linux_sys::child::Child;

    #[test]
    fn a_task_whose_name_looks_like_fields() {
        let mut info = MmInfo::default();
        let numbers: Vec<String> = (4..=52).map(|n| (n * 1000).to_string()).collect();
        let text = format!("12 (a) R 1 (b) ) S {}", numbers.join(" "));
        fill_stat(&mut info, &text);
        assert_eq!(info.start_stack, Some(28_000));
        assert_eq!(info.start_data, Some(45_000));
        assert_eq!(info.end_data, Some(46_000));
        assert_eq!(info.start_brk, Some(47_000));
        let mut info = MmInfo::default();
        fill_stat(&mut info, "12 (a) S 1 2");
        fill_stat(&mut info, "");
        assert_eq!(info, MmInfo::default());
    }

    #[test]
    fn limits_and_status() {
        let mut info = MmInfo::default();
        fill_limits(
            &mut info,
            "Limit   Soft Limit   Hard Limit   Units\n\
             Max data size             unlimited            unlimited            bytes\n\
             Max stack size            8388608              unlimited            bytes\n",
        );
        assert_eq!(info.rlimit_data, Some(u64::MAX));
        assert_eq!(info.rlimit_stack, Some(8 << 20));
        assert_eq!(info.rlimit_as, None);
        let status =
            "Name:\tVmLck: 1 kB\nVmLck:\t      16 kB\nCapEff:\t0000000000004000\nTHP_enabled:\t0\n";
        let status = TaskStatus::from(status.to_owned());
        fill_status(&mut info, &status);
        assert_eq!(status.mask("CapEff"), Some(1 << CAP_IPC_LOCK));
        assert_eq!(info.thp_disabled, Some(true));
        assert_eq!(
            info.locked_vm,
            Some(16384 / rustix::param::page_size() as u64)
        );
    }

    #[test]
    fn proc_and_the_kernel_agree_on_a_child() {
        let mut child = Child::start(|inside| {
            inside.say(0);
            inside.wait();
        });
        child.hear();
        let from_proc = mm_info(child.pid());
        assert_eq!(from_proc.thp_disabled, Some(true));
        assert!(from_proc.rlimit_stack.is_some());
        let Ok(kernel) = KernelView::open() else {
            eprintln!("skipped: no kernel view");
            return;
        };
        let mut view = View::default();
        kernel.read(child.pid(), &mut view).unwrap();
        let mut both = from_proc.clone();
        view.mm.fill(&mut both);
        for (what, proc, kernel) in [
            ("start_brk", from_proc.start_brk, both.start_brk),
            ("start_data", from_proc.start_data, both.start_data),
            ("end_data", from_proc.end_data, both.end_data),
            ("start_stack", from_proc.start_stack, both.start_stack),
            ("total_vm", from_proc.total_vm, both.total_vm),
            ("locked_vm", from_proc.locked_vm, both.locked_vm),
        ] {
            assert!(proc.is_some(), "{what}");
            assert_eq!(proc, kernel, "{what}");
        }
        assert!(both.mmap_base.is_some() && both.brk.is_some() && both.def_flags.is_some());
    }

    #[test]
    fn a_process_that_is_not_there_says_nothing() {
        assert_eq!(mm_info(i32::MAX), MmInfo::default());
    }
}
