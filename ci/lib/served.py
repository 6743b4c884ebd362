"""Debian's kernels for x86-64 that the mirror of this machine's apt serves: lists, downloads and unpacks them.

usage: ci/lib/served.py list                   a line for each version: name, Debian's version, suite
       ci/lib/served.py fetch NAME FOLDER      puts vmlinuz, brd.ko and version of a kernel into a folder
       ci/lib/served.py busybox FILE           a statically linked busybox

NAME is a version (6.12), of which the newest is taken, or one release of it (6.12.95). The mirror, the keys and the proxy
are those of the machine's own settings; apt gets lists and a state of its own in ${XDG_CACHE_HOME:-~/.cache}/vmarea/kernels/apt,
read again after a day, and nothing is installed. A release that has left the mirror can be named:
SERVED_BESIDE='URI SUITE' (several: a comma between them). A suite that does not answer is one line, and the others are used.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

# The names by which each mirror has them; their codenames tell those of the backports.
RELEASES = ["stable", "oldstable", "oldoldstable"]
AHEAD = ["sid", "experimental"]
WITH_BACKPORTS = RELEASES[:2]
DAY = 86400


def stop(why):
    sys.exit(f"kernels: {why}")


def note(what):
    print(f"kernels: {what}", file=sys.stderr)


def cache():
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(home) / "vmarea/kernels"


def said(words, config=None):
    """Runs a program; returns whether it succeeded, what it printed, and the last line of its messages."""
    env = os.environ | {"LC_ALL": "C"} | ({"APT_CONFIG": str(config)} if config else {})
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", env=env)
    lines = done.stderr.splitlines()
    told = [line for line in lines if re.match("(E|W|Err): .*(Failed|Could|Unable|not)", line)] or lines
    return done.returncode == 0, done.stdout, told[0] if told else ""


def setting(name):
    """Returns the path that apt's setting names, with `/f` or `/d` for what it is."""
    found = re.search(r"='(.+)'", said(["apt-config", "shell", "value", name])[1])
    return pathlib.Path(found[1]) if found else pathlib.Path("/dev/null")


def entries():
    """Yields the machine's sources of packages: URI, suites, components, and the keys, if they are named."""
    parts = setting("Dir::Etc::sourceparts/d")
    files = [setting("Dir::Etc::sourcelist/f"), *(sorted(parts.iterdir()) if parts.is_dir() else [])]
    for path in files:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if path.suffix == ".sources":
            for stanza in re.split(r"\n\s*\n", re.sub(r"(?m)^#.*\n", "", text)):
                fields = dict(re.findall(r"(?m)^([\w-]+):[ \t]*((?:.*)(?:\n[ \t].*)*)", stanza))
                if "deb" in fields.get("Types", "").split() and fields.get("Enabled", "yes") != "no":
                    for uri in fields.get("URIs", "").split():
                        yield uri, fields.get("Suites", "").split(), fields.get("Components", "").split(), fields.get("Signed-By")
        else:
            for options, uri, rest in re.findall(r"(?m)^[ \t]*deb[ \t]+(?:\[(.*?)\][ \t]*)?(\S+)[ \t]+([^#\n]+)", text):
                keys = re.search(r"signed-by=(\S+)", options)
                suite, *components = rest.split()
                yield uri, [suite], components, keys and keys[1]


def mirror():
    """Returns the URI of the machine's mirror of Debian, and the keys by which its lists are signed, if they are named."""
    release = pathlib.Path("/etc/os-release").read_text(encoding="utf-8")
    codename = re.search(r'(?m)^VERSION_CODENAME="?(\w+)', release)
    suites = {*RELEASES, *AHEAD, "testing", "unstable", codename and codename[1]}
    found = [(uri, keys) for uri, names, components, keys in entries() if suites & set(names) and "main" in components]
    # Others have suites of these names, too.
    found.sort(key=lambda row: not row[0].rstrip("/").endswith("/debian"))
    return found[0] if found else stop("apt has no source of Debian's packages: see sources.list(5)")


class Apt:
    """Apt with sources, lists and a state of its own."""

    def __init__(self):
        self.root = cache() / "apt"
        self.config, self.sources = self.root / "apt.conf", self.root / "debian.sources"
        for folder in ("lists/partial", "cache/archives/partial"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        self.uri, self.keys = mirror()
        settings = said(["apt-config", "dump"])[1].splitlines()
        kept = [line for line in settings if re.match(r"Acquire::(https?|ftp|socks|tor|mirror)\b.* \"", line)]
        for name in ("trusted/f", "trustedparts/d", "netrc/f", "netrcparts/d"):
            kept.append(f'Dir::Etc::{name[:-2]} "{setting("Dir::Etc::" + name)}";')
        self.config.write_text("\n".join([
            *kept,
            'Dir::Etc::parts "/dev/null";', 'Dir::Etc::main "/dev/null";', 'Dir::Etc::sourceparts "/dev/null";',
            'Dir::Etc::preferences "/dev/null";', 'Dir::Etc::preferencesparts "/dev/null";',
            f'Dir::Etc::sourcelist "{self.sources}";', 'Dir::State::status "/dev/null";',
            f'Dir::State::lists "{self.root}/lists";', f'Dir::Cache "{self.root}/cache";',
            'APT::Architecture "amd64";', 'APT::Architectures { "amd64"; };', 'APT::Sandbox::User "root";',
            'Acquire::Languages "none";', 'Acquire::Check-Valid-Until "false";', 'Acquire::Check-Date "false";',
            'Acquire::Retries "1";', 'Acquire::http::Timeout "20";', 'Acquire::https::Timeout "20";', "",
        ]))

    def run(self, *words):
        return said(words, self.config)

    def stanza(self, uri, suites):
        keys = f"Signed-By: {self.keys}\n" if self.keys else ""
        return f"Types: deb\nURIs: {uri}\nSuites: {' '.join(suites)}\nComponents: main\n{keys}"

    def read(self, stanzas):
        """Writes the sources, and updates the lists if they are old or of other sources; returns a message of apt."""
        text, stamp = "\n".join(stanzas), self.root / "read"
        same = self.sources.exists() and self.sources.read_text() == text and stamp.exists()
        self.sources.write_text(text)
        if same and time.time() - stamp.stat().st_mtime < DAY:
            return ""
        _, _, why = self.run("apt-get", "update", "-qq")
        # A mirror that could not be read completely is asked again the next time.
        stamp.unlink(missing_ok=True) if why else stamp.touch()
        return why

    def there(self):
        """Returns the codename of each suite whose list is there, by the name of the suite in the sources."""
        lines = self.run("apt-get", "indextargets", "--format", "$(FILENAME) $(RELEASE) $(CODENAME)", "Created-By: Packages")[1]
        rows = [line.split() for line in lines.splitlines()]
        return {row[1]: row[-1] for row in rows if any(pathlib.Path(row[0]).parent.glob(pathlib.Path(row[0]).stem + "*"))}

    def open(self):
        """Reads the lists of all suites that the mirror has."""
        asked = [*RELEASES, *AHEAD]
        beside = [tuple(pair.split()) for pair in os.environ.get("SERVED_BESIDE", "").split(",") if pair.strip()]
        if any(len(pair) != 2 for pair in beside):
            stop("SERVED_BESIDE is not `URI SUITE`")
        more = [self.stanza(uri, [suite]) for uri, suite in beside]
        known = self.root / "backports"
        backports = known.read_text().split() if known.exists() else []
        why = self.read([self.stanza(self.uri, asked + backports), *more])
        there = self.there()
        found = [f"{there[suite]}-backports" for suite in WITH_BACKPORTS if suite in there]
        if found and found != backports:
            known.write_text(" ".join(found))
            backports = found
            why = self.read([self.stanza(self.uri, asked + backports), *more])
            there = self.there()
        asked += backports + [suite for _, suite in beside]
        if not there:
            stop(f"{self.uri} cannot be read: {why}")
        for suite in asked:
            if suite not in there:
                note(f"{suite} is left out: {why or 'its mirror has no list of it'}")

    def kernels(self):
        """Returns the kernels, oldest first: package, Debian's version, suite."""
        names = re.findall(r"(?m)^linux-image-\d\S*-cloud-amd64$", self.run("apt-cache", "pkgnames", "linux-image-")[1])
        found = {}
        for line in self.run("apt-cache", "madison", *names)[1].splitlines() if names else []:
            package, version, place = (cell.strip() for cell in line.split("|"))
            found.setdefault((package, version), place.split()[1].partition("/")[0])
        return sorted(((*key, suite) for key, suite in found.items()), key=lambda row: release(row[1]))

    def depends(self, package, version):
        """Returns the packages of the same source that a package needs."""
        text = self.run("apt-cache", "show", f"{package}={version}")[1]
        fields = re.findall(r"(?m)^(?:Pre-)?Depends: (.*)$", text)
        pairs = re.findall(r"(linux-[^ ,]+) \(= ([^)]+)\)", ", ".join(fields))
        return [name for name, wanted in pairs if wanted == version]

    def unpack(self, package, version, folder):
        """Downloads a package and unpacks it into a folder."""
        with tempfile.TemporaryDirectory() as work:
            asked = f"{package}={version}" if version else package
            words = ["sh", "-c", 'cd "$1" && apt-get download -qq "$2"', "sh", work, asked]
            good, _, why = self.run(*words)
            files = list(pathlib.Path(work).glob("*.deb"))
            if not good or not files:
                stop(f"cannot download {package}: {why}")
            subprocess.run(["dpkg-deb", "-x", files[0], folder], check=True)


def release(version):
    """Returns the numbers of a Debian version of Linux, in its order: 7.3~rc7-1 is before 7.3.4-1."""
    upstream, _, revision = version.partition("-")
    numbers = [int(number) for number in re.findall(r"-?\d+", upstream.replace("~rc", ".-1."))]
    return numbers + [0] * (3 - len(numbers)), [int(number) for number in re.findall(r"\d+", revision)]


def name(version):
    """Returns the name of a version: 6.12."""
    return ".".join(map(str, release(version)[0][:2]))


def newest(kernels, wanted):
    """Returns the newest kernel of a version or of one release, or None."""
    upstream = [row for row in kernels if row[1].partition("-")[0].replace("~", "-") == wanted]
    found = upstream or [row for row in kernels if name(row[1]) == wanted]
    return found[-1] if found else None


def found_in(tree, pattern):
    return next((path for path in sorted(tree.rglob(pattern)) if path.is_file() and not path.is_symlink()), None)


def plain(path, to):
    """Copies a file, decompressed."""
    tools = {".xz": "xz", ".zst": "zstd", ".gz": "gzip"}
    if tool := tools.get(path.suffix):
        with open(to, "wb") as file:
            subprocess.run([tool, "-dc", path], stdout=file, check=True)
    else:
        shutil.copyfile(path, to)


def fetch(apt, wanted, to):
    """Puts the kernel and the one module that is needed into a folder: since 6.19 they are in packages of their own."""
    kernel = newest(apt.kernels(), wanted)
    if not kernel:
        stop(f"no suite serves Linux {wanted}: see ci/run kernels --list")
    package, version, suite = kernel
    note(f"downloading Linux {version} of Debian's {suite}")
    with tempfile.TemporaryDirectory() as work:
        tree, opened, ahead = pathlib.Path(work), [], [package]
        parts = [None, None]
        while ahead and not all(parts):
            opened.append(ahead.pop(0))
            apt.unpack(opened[-1], version, tree)
            ahead += [more for more in apt.depends(opened[-1], version) if more not in opened + ahead]
            parts = [found_in(tree, "vmlinuz*"), found_in(tree, "brd.ko*")]
        for what, part in zip(("vmlinuz", "brd.ko"), parts, strict=True):
            if not part:
                stop(f"Linux {version} of Debian's {suite} is packaged in another way: no {what} in {', '.join(opened)}")
        to.mkdir(parents=True, exist_ok=True)
        plain(parts[1], to / "brd.ko")
        (to / "version").write_text(version + "\n")
        # This file is created last, because its presence means that the folder is complete.
        shutil.copyfile(parts[0], to / "vmlinuz.new")
        (to / "vmlinuz.new").rename(to / "vmlinuz")


def main():
    words = sys.argv[1:]
    apt = Apt()
    apt.open()
    match words:
        case ["list"]:
            kernels = apt.kernels()
            for wanted in dict.fromkeys(name(row[1]) for row in kernels):
                package, version, suite = newest(kernels, wanted)
                print(f"{wanted:8}{version:24}{suite}")
        case ["fetch", wanted, folder]:
            fetch(apt, wanted, pathlib.Path(folder))
        case ["busybox", file]:
            with tempfile.TemporaryDirectory() as work:
                apt.unpack("busybox-static", None, pathlib.Path(work))
                shutil.copy(found_in(pathlib.Path(work), "busybox"), file)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
