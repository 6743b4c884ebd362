//! Sources from Debian: the kernel's source package, and `apt-get source` into the cache directory.
//!
//! Every function leaves what it has made in the cache, and starts again where a directory is not
//! whole: a tree is unpacked beside its place and renamed.

use super::Context;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs a shell script in a directory.
///
/// # Errors
/// The last line that the script wrote, behind `what`.
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
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    Err(format!(
        "{what} failed: {}",
        last.unwrap_or("no message").trim()
    ))
}

/// Checks that programs are there.
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

/// Checks that the cache directory has room.
///
/// # Errors
/// How much is missing where.
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

/// Returns the unpacked source of the newest installed `linux-source` package.
///
/// # Errors
/// If there is none, or it cannot be unpacked.
pub(super) fn linux(context: &Context<'_>) -> Result<PathBuf, String> {
    need(&[
        ("make", "make"),
        ("gcc", "gcc"),
        ("flex", "flex"),
        ("bison", "bison"),
        ("bc", "bc"),
        ("xz", "xz-utils"),
    ])?;
    let missing = || "there is no kernel source: apt-get install linux-source".to_owned();
    let archives = fs::read_dir("/usr/src").map_err(|_| missing())?;
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
    let folder = context.cache.join(name.trim_end_matches(".tar.xz"));
    if !folder.exists() {
        room(context, 3)?;
        context
            .host
            .note(&format!("unpacking {}", archive.display()));
        unpack(context, &folder, &format!("tar xf '{}'", archive.display()))?;
    }
    Ok(folder)
}

/// Returns the unpacked Debian source of a package.
///
/// # Errors
/// If it cannot be fetched or unpacked.
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
        "mkdir -p apt/lists/partial apt/cache
        key='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'
        echo \"deb-src $key http://deb.debian.org/debian {suite} main\" >apt/sources
        echo \"deb-src $key http://deb.debian.org/debian-security {suite}-security main\" >>apt/sources
        set -- -qq -o Dir::Etc::sourcelist=\"$PWD/apt/sources\" -o Dir::Etc::sourceparts=/dev/null \\
            -o Dir::State::lists=\"$PWD/apt/lists\" -o Dir::Cache=\"$PWD/apt/cache\"
        apt-get \"$@\" update
        apt-get \"$@\" source {package}
        rm -rf apt"
    );
    unpack(context, &folder, &script)?;
    Ok(folder)
}

/// Returns the name of the installed Debian release.
fn suite() -> Result<String, String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let mut lines = release.lines();
    let suite = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.ok_or("this is not Debian: there are no source packages")?;
    Ok(suite.trim_matches('"').to_owned())
}

/// Packages of the userland: System V init, its scripts, and the daemons of a small server.
const PACKAGES: &str = "sysvinit-core,sysv-rc,initscripts,insserv,orphan-sysvinit-scripts,\
     procps,kmod,udev,rsyslog,cron,dbus,ifupdown,iproute2,openssh-server";

/// Returns a Debian userland with System V init, of packages from Debian.
///
/// Its last boot script creates the file `booted` and ends the container. Its files belong to the
/// user, or to nobody if the user is root. It has no devices.
///
/// # Errors
/// If it cannot be fetched or unpacked.
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
    unpack(context, &folder, &script)?;
    Ok(folder)
}

/// Runs a script that unpacks one tree, and renames the tree to `folder`.
fn unpack(context: &Context<'_>, folder: &Path, script: &str) -> Result<(), String> {
    let temporary = tempfile::Builder::new()
        .prefix(".unpacking-")
        .tempdir_in(&context.cache);
    let temporary = temporary.map_err(|error| format!("{}: {error}", context.cache.display()))?;
    shell("unpacking the source", temporary.path(), script)?;
    let entries = fs::read_dir(temporary.path()).map_err(|error| error.to_string())?;
    let tree = entries.flatten().find(|entry| entry.path().is_dir());
    let tree = tree.ok_or("the source package has no directory")?;
    fs::rename(tree.path(), folder).map_err(|error| format!("{}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            shell("the test", Path::new("/"), "echo x"),
            Ok("x\n".to_owned())
        );
    }
}
