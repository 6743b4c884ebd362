//! Whose process it is and what it runs: user, command line, control group and container.
//!
//! Any process can choose its own command line, and a container's name is only a convention of the
//! program that started it: these are labels for a reader, not facts to decide by. Users are looked
//! up in `/etc/passwd` alone, because a directory service may answer late or not at all.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use vmarea_linux_sys::task_status::TaskStatus;

/// Maximum number of bytes that are read of a command line.
const COMMAND_LINE: u64 = 4096;
/// Maximum length of a container's name in characters; shorter names stay whole.
const CONTAINER: usize = 12;

/// Labels of a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// Effective user ID, as this process's user namespace sees it.
    pub uid: u32,
    /// Arguments, separated by spaces; empty if the process has none.
    pub command_line: String,
    /// Path of the control group, such as `/system.slice/ssh.service`; empty if not known.
    pub cgroup: String,
    /// Name or abbreviated ID of the container, if the control group's path contains one.
    pub container: Option<String>,
}

/// Reads the labels of process `pid`.
///
/// # Errors
/// `NotFound` or `ESRCH` if there is no such process. A file that cannot be read leaves its label
/// empty.
pub fn identity(pid: i32) -> io::Result<Identity> {
    let status = TaskStatus::read(pid)?;
    let uid = status.numbers("Uid").nth(1).unwrap_or_default();
    let cgroup = fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let cgroup = cgroup_path(&String::from_utf8_lossy(&cgroup)).to_owned();
    Ok(Identity {
        uid,
        command_line: command_line(pid).unwrap_or_default(),
        container: container(&cgroup),
        cgroup,
    })
}

/// Reads at most the first 4 KiB of a command line.
fn command_line(pid: i32) -> io::Result<String> {
    let mut bytes = Vec::new();
    let file = fs::File::open(format!("/proc/{pid}/cmdline"))?;
    file.take(COMMAND_LINE).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    Ok(text.trim_end().to_owned())
}

/// Returns the path in the unified hierarchy or, if that is the root, the longest path in another.
fn cgroup_path(text: &str) -> &str {
    let paths = text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let unified = fields.next() == Some("0");
        Some((unified, fields.nth(1)?))
    });
    let rank = |&(unified, path): &(bool, &str)| (path != "/", unified, path.len());
    paths.max_by_key(rank).map_or("", |(_, path)| path)
}

/// Finds a container in a path: Docker, containerd, CRI-O, Podman, LXC and systemd-nspawn.
fn container(path: &str) -> Option<String> {
    let mut parts = path.rsplit('/').peekable();
    while let Some(part) = parts.next() {
        let name = part.strip_suffix(".scope").unwrap_or(part);
        // `docker-ID`, `cri-containerd-ID`, `crio-ID`, `libpod-ID`
        let id = name.rsplit(['-', ':']).next().unwrap_or(name);
        if id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Some(id[..CONTAINER].to_owned());
        }
        if let Some(name) = part.strip_prefix("lxc.payload.") {
            return Some(name.to_owned());
        }
        if parts.peek() == Some(&"lxc") || parts.peek() == Some(&"machine.slice") {
            return Some(name.strip_prefix("machine-").unwrap_or(name).to_owned());
        }
    }
    None
}

/// Names of the users in `/etc/passwd`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Users {
    names: HashMap<u32, String>,
}

impl Users {
    /// Reads `/etc/passwd`. If it cannot be read, no user has a name.
    pub fn read() -> Users {
        let text = fs::read("/etc/passwd").unwrap_or_default();
        Users::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(text: &str) -> Users {
        let mut names = HashMap::new();
        for line in text.lines() {
            let mut fields = line.split(':');
            let name = fields.next().unwrap_or_default();
            if let Some(uid) = fields.nth(1).and_then(|uid| uid.parse().ok()) {
                names.entry(uid).or_insert_with(|| name.to_owned());
            }
        }
        Users { names }
    }

    /// Returns the name of a user, or the number if there is no name.
    pub fn name(&self, uid: u32) -> String {
        let known = self.names.get(&uid);
        known.cloned().unwrap_or_else(|| uid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_labelled() {
        let own = identity(std::process::id() as i32).unwrap();
        let first = std::env::args().next().unwrap();
        assert!(own.command_line.starts_with(&first), "{own:?}");
        assert_eq!(own.uid, rustix::process::geteuid().as_raw());
        assert!(identity(i32::MAX).is_err());
    }

    #[test]
    fn the_group_is_that_of_the_unified_hierarchy_unless_it_is_the_root() {
        let hybrid = "9:memory:/jobs/7\n1:cpu:/\n0::/\n";
        assert_eq!(cgroup_path(hybrid), "/jobs/7");
        let unified = "9:memory:/a/very/long/path\n0::/user.slice\n";
        assert_eq!(cgroup_path(unified), "/user.slice");
        assert_eq!(cgroup_path("0::/a:b\n"), "/a:b");
        assert_eq!(cgroup_path("nonsense"), "");
    }

    #[test]
    fn containers_are_found_in_the_paths_that_their_programs_make() {
        let id = "0123456789abcdef".repeat(4);
        for path in [
            format!("/docker/{id}"),
            format!("/system.slice/docker-{id}.scope"),
            format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
            format!("/kubepods/burstable/pod1/{id}"),
            format!("/kubepods.slice/crio-{id}.scope/container"),
            format!("/user.slice/libpod-{id}.scope"),
            format!("/pods/x/y:cri-containerd:{id}"),
        ] {
            assert_eq!(container(&path).as_deref(), Some("0123456789ab"), "{path}");
        }
        assert_eq!(container("/lxc/web/init").as_deref(), Some("web"));
        assert_eq!(container("/lxc.payload.web").as_deref(), Some("web"));
        let machine = "/machine.slice/machine-debian.scope";
        assert_eq!(container(machine).as_deref(), Some("debian"));
        assert_eq!(container("/system.slice/ssh.service"), None);
        assert_eq!(container("/"), None);
    }

    #[test]
    fn users_have_the_name_that_comes_first() {
        let users = Users::parse("root:x:0:0::/root:/bin/sh\ntoor:x:0:0\n#\nbad:x:y\n");
        assert_eq!(users.name(0), "root");
        assert_eq!(users.name(4321), "4321");
    }
}
