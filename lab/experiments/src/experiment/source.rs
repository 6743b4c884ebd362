//! Sources from Debian: the installed kernel source, packages from `apt-get source`, and a
//! userland.
//!
//! Every function stores its result in the cache directory. A tree is unpacked into a temporary
//! directory and then renamed, so an interrupted function leaves no incomplete tree behind and
//! starts from the beginning when it is called again.

use super::Context;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs a shell script in a directory.
///
/// # Errors
/// The last line that the script printed, after the prefix `what`.
pub(super) fn shell(what: &str, folder: &Path, script: &str) -> Result<String, String> {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(folder);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{what}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = text(&output.stderr) + &text(&output.stdout);
    if let Some(missing) = absent(&said) {
        return Err(format!("{what} failed: {missing}"));
    }
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    Err(format!(
        "{what} failed: {}",
        last.unwrap_or("no message").trim()
    ))
}

/// Programs that the scripts and builds use, with their Debian packages.
const PROVIDERS: [(&str, &str); 8] = [
    (
        "chmod chown chroot cp cut head id ln ls mkdir mktemp mv rm sleep sort touch tr uname wc",
        "coreutils",
    ),
    ("find xargs", "findutils"),
    ("awk", "mawk"),
    ("as ld nm objcopy objdump ar strip", "binutils"),
    ("mount setpriv unshare", "util-linux"),
    ("grep", "grep"),
    ("sed", "sed"),
    ("tar", "tar"),
];

/// Returns a missing program and its Debian package, if a shell or `make` reported it as missing.
pub(super) fn absent(said: &str) -> Option<String> {
    let named = |line: &str| {
        let rest = [": not found", ": No such file or directory"]
            .iter()
            .find_map(|end| line.trim_end().strip_suffix(end))?;
        let program = rest.rsplit(": ").next()?.trim();
        let (_, package) = PROVIDERS
            .iter()
            .find(|(programs, _)| programs.split(' ').any(|one| one == program))?;
        Some(format!("there is no {program}: apt-get install {package}"))
    };
    said.lines().find_map(named)
}

/// Checks that programs are installed.
///
/// # Errors
/// The first missing program and its Debian package.
pub(super) fn need(programs: &[(&str, &str)]) -> Result<(), String> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &str| std::env::split_paths(&paths).any(|folder| folder.join(program).is_file());
    match programs.iter().find(|(program, _)| !is_there(program)) {
        Some((program, package)) => {
            Err(format!("there is no {program}: apt-get install {package}"))
        }
        None => Ok(()),
    }
}

/// Checks that at least `gib` GiB are free in the cache directory.
///
/// # Errors
/// How much space is missing, and in which directory.
pub(super) fn room(context: &Context<'_>, gib: u64) -> Result<(), String> {
    let folder = &context.cache;
    let shown = folder.display();
    fs::create_dir_all(folder).map_err(|error| {
        format!("cannot create {shown}: {error}: name another directory with --cache")
    })?;
    let stat = rustix::fs::statvfs(folder).map_err(|error| format!("{shown}: {error}"))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize) >> 30;
    if free < gib {
        return Err(format!(
            "{shown} has {free} GiB free and {gib} are needed: name another directory with --cache"
        ));
    }
    Ok(())
}

/// Memory required by a replay of a large recording, in GiB.
const MEMORY: u64 = 1;

/// Checks that enough memory is available for a recording and its replay.
///
/// # Errors
/// How much memory is missing, and what to do about it.
pub(super) fn memory() -> Result<(), String> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    if let Some(mib) = kib.map(|kib| kib >> 10).filter(|mib| *mib < MEMORY << 10) {
        return Err(format!(
            "{mib} MiB of memory are available and {MEMORY} GiB is needed: end other programs"
        ));
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    match limit
        .map(|bytes| bytes >> 20)
        .filter(|mib| *mib < MEMORY << 10)
    {
        Some(mib) => Err(format!(
            "address space is limited to {mib} MiB and {MEMORY} GiB is needed: ulimit -v unlimited"
        )),
        None => Ok(()),
    }
}

/// Returns the unpacked source of the newest installed `linux-source` package.
///
/// # Errors
/// If no such package is installed, or its source cannot be unpacked.
pub(super) fn linux(context: &Context<'_>) -> Result<PathBuf, String> {
    need(&[
        ("make", "make"),
        ("gcc", "gcc"),
        ("flex", "flex"),
        ("bison", "bison"),
        ("bc", "bc"),
        ("xz", "xz-utils"),
    ])?;
    unpacked(context, Path::new("/usr/src"), 3)
}

/// Returns the unpacked source of the newest `linux-source-*.tar.xz` in a directory, which takes
/// `gib` GiB.
fn unpacked(context: &Context<'_>, archives: &Path, gib: u64) -> Result<PathBuf, String> {
    let missing = || "there is no kernel source: apt-get install linux-source".to_owned();
    let archives = fs::read_dir(archives).map_err(|_| missing())?;
    let mut archives: Vec<PathBuf> = archives
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|n| n.starts_with("linux-source-") && n.ends_with(".tar.xz"))
        })
        .collect();
    archives.sort();
    let archive = archives.pop().ok_or_else(missing)?;
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let package = name.trim_end_matches(".tar.xz");
    let folder = context.cache.join(package);
    if !folder.exists() {
        room(context, gib)?;
        context
            .host
            .note(&format!("unpacking {}", archive.display()));
        let script = format!("tar xf '{}'", archive.display());
        let what = format!("unpacking {}", archive.display());
        unpack(context, &folder, (&what, &script))
            .map_err(|why| format!("{why}: apt-get install --reinstall {package}"))?;
    }
    Ok(folder)
}

/// Returns the unpacked Debian source of a package.
///
/// # Errors
/// If the source cannot be fetched or unpacked.
pub(super) fn debian(context: &Context<'_>, package: &str) -> Result<PathBuf, String> {
    let folder = context.cache.join(package);
    if folder.exists() {
        return Ok(folder);
    }
    need(&[("apt-get", "apt"), ("dpkg-source", "dpkg-dev")])?;
    room(context, 1)?;
    context
        .host
        .note(&format!("fetching the source of {package}"));
    let suite = suite()?;
    let script = format!(
        "{}
        set -- -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=\"$PWD/apt/parts\" \\
            -o Dir::State::lists=\"$PWD/apt/lists\" -o Dir::Cache=\"$PWD/apt/cache\"
        apt-get \"$@\" update
        apt-get \"$@\" source {package}
        rm -rf apt",
        own_sources(&suite)
    );
    let what = format!("fetching the source of {package}");
    unpack(context, &folder, (&what, &script))?;
    Ok(folder)
}

/// Returns a script that copies the machine's own package sources of a release to `apt/parts`, as
/// sources of source packages.
fn own_sources(suite: &str) -> String {
    format!(
        "mkdir -p apt/lists/partial apt/cache apt/parts
        apt-get indextargets --format '$(SOURCESENTRY) $(RELEASE) $(CODENAME)' \\
            'Created-By: Packages' 'Component: main' >apt/targets
        while read -r entry releases; do
            case \" $releases \" in
                *' {suite} '* | *' {suite}-security '*) echo \"${{entry%:*}}\" ;;
            esac
        done <apt/targets | sort -u >apt/files
        test -s apt/files || {{ echo 'apt has no source of {suite}: apt-get update' >&2; exit 1; }}
        while read -r file; do
            sed 's/^Types:.*/Types: deb-src/; s/^deb /deb-src /' \"$file\" >\"apt/parts/${{file##*/}}\"
        done <apt/files"
    )
}

/// Returns the name of the installed Debian release.
fn suite() -> Result<String, String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let mut lines = release.lines();
    let suite = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.ok_or("this is not Debian: there are no source packages")?;
    Ok(suite.trim_matches('"').to_owned())
}

/// Packages of the userland: System V init, its boot scripts, and the daemons of a small server.
const PACKAGES: &str = "sysvinit-core,sysv-rc,initscripts,insserv,orphan-sysvinit-scripts,\
     procps,kmod,udev,rsyslog,cron,dbus,ifupdown,iproute2,openssh-server";

/// Returns a Debian userland with System V init, unpacked from Debian packages.
///
/// The userland's last boot script creates the file `booted` and terminates the container. The
/// userland's files belong to the user, or to `nobody` if the user is root. Device files are
/// omitted.
///
/// # Errors
/// If the userland cannot be fetched or unpacked.
pub(super) fn userland(context: &Context<'_>) -> Result<PathBuf, String> {
    need(&[("unshare", "util-linux"), ("setpriv", "util-linux")])?;
    let folder = context.cache.join("userland");
    if folder.exists() {
        return Ok(folder);
    }
    need(&[("mmdebstrap", "mmdebstrap")])?;
    room(context, 1)?;
    context
        .host
        .note("fetching a Debian userland with System V init");
    let suite = suite()?;
    let script = format!(
        "mmdebstrap --quiet --variant=minbase --include={PACKAGES} {suite} root.tar
        mkdir root
        tar xf root.tar -C root --no-same-owner --exclude='./dev/*'
        rm root.tar
        printf '#!/bin/sh\n: >/booted\nexec /sbin/reboot -d -f -n\n' >root/etc/rc.local
        chmod 755 root/etc/rc.local
        [ \"$(id -u)\" != 0 ] || chown -hR 65534:65534 root"
    );
    unpack(context, &folder, ("fetching the userland", &script))?;
    Ok(folder)
}

/// Runs a script that unpacks one tree, and renames that tree to `folder`.
fn unpack(
    context: &Context<'_>,
    folder: &Path,
    (what, script): (&str, &str),
) -> Result<(), String> {
    let temporary = tempfile::Builder::new()
        .prefix(".unpacking-")
        .tempdir_in(&context.cache);
    let temporary = temporary.map_err(|error| format!("{}: {error}", context.cache.display()))?;
    shell(what, temporary.path(), script)?;
    let entries = fs::read_dir(temporary.path()).map_err(|error| error.to_string())?;
    let tree = entries.flatten().find(|entry| entry.path().is_dir());
    let tree = tree.ok_or_else(|| format!("{what} failed: it has no directory"))?;
    fs::rename(tree.path(), folder).map_err(|error| format!("{}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::experiment::{Host, Recorded};

    /// Host that records nothing.
    struct Mute;

    impl Host for Mute {
        fn note(&self, _: &str) {}

        fn record(&self, _: &str) -> Result<Recorded, String> {
            Err("nothing is recorded".to_owned())
        }
    }

    fn context(cache: &Path) -> Context<'static> {
        Context {
            quick: true,
            runs: 1,
            policies: Vec::new(),
            cache: cache.to_owned(),
            program: PathBuf::from("/nonexistent"),
            host: &Mute,
        }
    }

    #[test]
    fn an_unreadable_archive_is_one_line_and_leaves_nothing_behind() {
        let [archives, cache] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let context = context(cache.path());
        let none = unpacked(&context, archives.path(), 0).unwrap_err();
        assert!(none.contains("apt-get install linux-source"), "{none}");
        let broken = archives.path().join("linux-source-9.9.tar.xz");
        fs::write(&broken, "no archive").unwrap();
        let why = unpacked(&context, archives.path(), 0).unwrap_err();
        assert!(
            why.contains(broken.to_str().unwrap())
                && why.ends_with(": apt-get install --reinstall linux-source-9.9")
                && why.lines().count() == 1,
            "{why}"
        );
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
    }

    #[test]
    fn too_little_disk_names_the_directory_and_an_option() {
        let cache = tempfile::tempdir().unwrap();
        let context = context(cache.path());
        assert_eq!(room(&context, 0), Ok(()));
        let why = room(&context, 1 << 40).unwrap_err();
        assert!(why.starts_with(cache.path().to_str().unwrap()), "{why}");
        assert!(
            why.contains("GiB free") && why.ends_with("--cache"),
            "{why}"
        );
    }

    /// Runs the script of [`own_sources`] with an apt that has the file `own.sources`.
    fn sources_of(suite: &str) -> (Result<String, String>, String) {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own.sources");
        fs::write(
            &own,
            "Types: deb\nURIs: http://mirror\nSuites: one one-security\n",
        )
        .unwrap();
        let (apt, path) = (folder.path().join("apt-get"), folder.path().display());
        let lines = format!("{0}:1 one\n{0}:1 one-security", own.display());
        fs::write(&apt, format!("#!/bin/sh\necho '{lines}'\n")).unwrap();
        fs::set_permissions(&apt, fs::Permissions::from_mode(0o755)).unwrap();
        let script = format!("PATH={path}:$PATH\n{}", own_sources(suite));
        let result = shell("the test", folder.path(), &script);
        let copied = fs::read_to_string(folder.path().join("apt/parts/own.sources"));
        (result, copied.unwrap_or_default())
    }

    #[test]
    fn sources_are_those_of_the_machine() {
        let (result, copied) = sources_of("one");
        assert_eq!(result, Ok(String::new()));
        let wanted = "Types: deb-src\nURIs: http://mirror\nSuites: one one-security\n";
        assert_eq!(copied, wanted);
        let (result, _) = sources_of("two");
        let why = "the test failed: apt has no source of two: apt-get update".to_owned();
        assert_eq!(result, Err(why));
    }

    #[test]
    fn a_missing_program_names_its_package_and_a_failure_is_one_line() {
        let missing = need(&[("sh", "dash"), ("no-such-program", "no-such-package")]);
        assert_eq!(
            missing,
            Err("there is no no-such-program: apt-get install no-such-package".to_owned())
        );
        let failed = shell(
            "the test",
            Path::new("/"),
            "echo first; echo why >&2; exit 3",
        );
        assert_eq!(failed, Err("the test failed: first".to_owned()));
        assert_eq!(
            shell("the test", Path::new("/"), "PATH=/nonexistent; mkdir x"),
            Err("the test failed: there is no mkdir: apt-get install coreutils".to_owned())
        );
        assert_eq!(
            absent("make: objcopy: No such file or directory").as_deref(),
            Some("there is no objcopy: apt-get install binutils")
        );
        assert_eq!(absent("cat: x: No such file or directory"), None);
        assert_eq!(
            shell("the test", Path::new("/"), "echo x"),
            Ok("x\n".to_owned())
        );
    }
}
