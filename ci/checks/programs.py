"""Records real programs with `vmarea run`, replays them, and requires that nothing differs from the kernel.

As root, at most one result in ten thousand may be undecided: an observer does not see in which order two threads did
what does not take mmap_lock for writing (MADV_DONTNEED beside munmap), so a busy machine can leave single results
undecided. Prints one row per program and user; without root, only the rows of the ordinary user.

usage: ci/run programs -- [--user root|nobody] [--by observing|tracing] [PROGRAM...]     ci/run programs --list
       ci/run programs --large     the programs that take minutes, or large packages: a browser, a database, virtual
                                   machines and sanitizers; the gate omits them
       ci/run programs --build     only builds vmarea, which the gate does beside other checks
       VMAREA=path/of/vmarea takes that binary instead of building one
"""

import argparse
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import prepare

# A command, in which {programs} are the sources, {built} the compiled programs, and {place} is a folder of its own; what
# it needs from tests/programs; and Debian's packages.
Program = collections.namedtuple("Program", "command compiled packages", defaults=[(), ()])
USUAL = {
    "python": Program(["python3", "-c", "import json, ssl, threading"]),
    "cow-children": Program(["python3", "{programs}/cow_children.py"]),
    "edges": Program(["{built}/edges"], ["edges"]),
    "threads-c": Program(["{built}/threads"], ["threads"]),
    "threads-python": Program(["python3", "{programs}/threads.py"]),
    "gcc": Program(["gcc", "-O2", "-c", "-o", "big.o", "{built}/big.c"], ["big.c"]),
    "make": Program(["make", "-j2", "-C", "{programs}/project", "OUT={place}/project"]),
    "redis": Program(["{programs}/redis.sh"]),
    "node": Program(["node", "{programs}/workers.js"]),
    "pipeline": Program(["sh", "-c", "seq 200000 | tr 0-4 5-9 | sort -n | uniq -c | wc -l"]),
    "static": Program(["{built}/static"], ["static"]),
} | {
    f"stress-{name}": Program(["stress-ng", f"--{name}", "1", "--timeout", "5s"])
    for name in ["mmap", "brk", "mremap", "mprotect", "mlock", "fork"]
}
LARGE = {
    # The browser's sandbox does not work as root, so it is off for both users.
    "chromium": Program(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir={place}/profile",
         "--virtual-time-budget=5000", "--dump-dom", "file://{programs}/page.html"], [], ["chromium"]),
    "postgres": Program(["{programs}/postgres.sh"], [], ["postgresql"]),
    "zgc": Program(["java", "-XX:+UseZGC", "-Xmx256m", "{programs}/garbage.java"], [], ["default-jdk-headless"]),
    "goroutines": Program(["{built}/goroutines"], ["goroutines"], ["golang-go"]),
    # Its leak check uses ptrace, which a recorded program cannot do.
    "asan": Program(["env", "ASAN_OPTIONS=detect_leaks=0", "{built}/sanitized"], ["sanitized"]),
    "qemu": Program(
        ["sh", "-c", '"$@"; test $? = 33', "sh", "qemu-system-x86_64", "-accel", "tcg", "-display", "none", "-no-reboot",
         "-m", "64", "-device", "isa-debug-exit,iobase=0xf4", "-drive", "file={built}/boot.img,format=raw,snapshot=on"],
        ["boot.img"], ["qemu-system-x86"]),
}
PROGRAMS = USUAL | LARGE
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]

COLUMNS = ["events", "calls", "faults", "lost", "opaque", "VMAs", "results", "differ", "undecided", "resyncs"]
FORMAT = "{:16}{:8}" + "{:>11}" * len(COLUMNS) + "{:>9}  {}"


def row(name, user, seconds, status, path):
    """Prints a row; returns what is wrong: the report is missing or incomplete, something differs, the run failed."""
    try:
        with open(path) as file:
            report = json.load(file)
        if report["schema"] != 1:
            raise ValueError(f"schema {report['schema']}, not 1")
        verify = report["verify"]
        numbers = [report[key] for key in ("events", "calls", "faults", "lost", "opaque")]
        numbers += [
            verify[key]
            for key in ("vmas_compared", "results_compared", "differences", "undecided", "resyncs")
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(FORMAT.format(name, user, *["-"] * len(COLUMNS), seconds, f"FAILED: {error!r}, exit status {status}"))
        return 1

    faults = []
    if verify["differences"]:
        faults.append("differs")
    if user == "root" and verify["undecided"] * 10_000 > verify["results_compared"]:
        faults.append("undecided as root")
    if not verify["vmas_compared"]:
        faults.append("nothing was compared")
    if status and not verify["differences"]:
        faults.append(f"exit status {status}")
    print(FORMAT.format(name, user, *numbers, seconds, "FAILED: " + ", ".join(faults) if faults else "ok"), flush=True)
    for key, value in (report.get("first_difference") or {}).items():
        print(f"    {key}: {value}", flush=True)
    return bool(faults)


def run(name, user, by, room):
    """Records and replays a program in a folder of its own; prints its row, and returns what is wrong."""
    place = pathlib.Path(room, f"{name}-{user}")
    place.mkdir()
    as_user = AS_NOBODY if user == "nobody" and os.geteuid() == 0 else []
    if as_user:
        os.chown(place, 65534, 65534)
    names = {"{programs}": f"{room}/programs", "{built}": f"{room}/built", "{place}": str(place)}
    command = list(PROGRAMS[name].command)
    for written, path in names.items():
        command = [word.replace(written, path) for word in command]
    command = ["timeout", "--kill-after=10", "300", *as_user, f"{room}/vmarea", "run", "--by", by, "--json=report.json",
               "--trace", "run.vmtrace", "--", *command]
    environment = os.environ | {"TMPDIR": str(place), "HOME": str(place)}
    begun = time.time()
    with open(place / "out", "wb") as out, open(place / "err", "wb") as err:
        status = subprocess.run(command, cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err).returncode
    wrong = row(name, user, f"{time.time() - begun:.1f}", status, place / "report.json")
    if wrong:
        lines = (place / "err").read_text(errors="replace").splitlines()[-25:]
        print(*(f"    {line}" for line in lines), sep="\n", file=sys.stderr)
        if (place / "run.vmtrace").exists():
            kept = tempfile.mkstemp(suffix=f".{name}-{user}.vmtrace")[1]
            shutil.copyfile(place / "run.vmtrace", kept)
            print(f"    the recording is kept as {kept}", file=sys.stderr)
    shutil.rmtree(place)
    return wrong


def main():
    parser = argparse.ArgumentParser(prog="ci/run programs")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--user", choices=["root", "nobody"])
    parser.add_argument("--by", default="auto")
    parser.add_argument("names", nargs="*", metavar="PROGRAM")
    options = parser.parse_args()
    if options.list:
        return print("\n".join(PROGRAMS))
    if options.build:
        return print("programs: built", prepare.program(profile="release"))
    if unknown := [name for name in options.names if name not in PROGRAMS]:
        parser.error(f"no program '{unknown[0]}': one of {' '.join(PROGRAMS)}")
    names = [*LARGE, *options.names] if options.large else options.names or list(USUAL)
    users = [options.user] if options.user else ["root", "nobody"] if os.geteuid() == 0 else ["nobody"]
    chosen = [PROGRAMS[name] for name in names]
    prepare.packages(*(package for program in chosen for package in program.packages))
    with prepare.room(*sorted({name for program in chosen for name in program.compiled})) as room:
        print(FORMAT.format("program", "user", *COLUMNS, "seconds", ""), flush=True)
        return any([run(name, user, options.by, room) for user in users for name in names])


sys.exit(main())
