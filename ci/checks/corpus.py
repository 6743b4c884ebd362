"""Records the traces of corpus/ anew, checks them, and writes the table in corpus/README.md.

Each trace is at most 1 MB, differs in nothing from the kernel when it is replayed, and contains no name of this machine
or its user. Needs root, because only root can record every fault. Afterwards the golden files must be renewed:
corpus/README.md says how.

usage: ci/run corpus -- [NAME...]     ci/run corpus --list     ci/run corpus --table   writes only the table
       VMAREA=path/of/vmarea takes that binary instead of building one
"""

import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import prepare

CORPUS = prepare.ROOT / "corpus"
TRACE_BYTES, ALL_BYTES = 1_000_000, 8_000_000
# The kernel's list of mappings is read, and compared later, after every so many calls.
CHECKPOINT = "1000"
# A recording can lose samples if the machine is busy.
ATTEMPTS = 3
MARK = "<!-- written by ci/run corpus -->\n"
HEAD = ["trace", "habit", "program", "command", "kernel", "events", "VMAs at the peak", "exact", "bytes"]
# Debian's own programs are recorded, whatever else is installed.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
LIBRARIES = f"/usr/lib/{os.uname().machine}-linux-gnu"
NODE = ["sh", "-c", "echo Node.js $(node --version)"]
JAVA = "default-jdk-headless"
GLIBC = ["getconf", "GNU_LIBC_VERSION"]


@dataclasses.dataclass
class Program:
    """A program of the corpus, with a workload whose trace is smaller than 1 MB."""

    habit: str
    command: list
    # Command whose first line of output is or contains the version.
    version: list
    packages: list = dataclasses.field(default_factory=list)
    # Names for ci/lib/compile.sh.
    compiled: list = dataclasses.field(default_factory=list)
    environment: dict = dataclasses.field(default_factory=dict)


def package(name):
    return ["dpkg-query", "--show", "--showformat=${Package} ${Version}", name]


def java(collector):
    # The file with performance data has the user's name.
    return Program(
        "", ["java", f"-XX:+Use{collector}", "-XX:-UsePerfData", "-Xmx64m", "-XX:TieredStopAtLevel=1", "{programs}/garbage.java", "1"],
        ["java", "--version"], [JAVA])


PROGRAMS = {
    "asan": Program(
        "shadow memory, and children that inherit it", ["{built}/sanitized", "4000"], ["gcc", "--version"],
        # Its leak check uses ptrace, which a recorded program cannot do.
        compiled=["sanitized"], environment={"ASAN_OPTIONS": "detect_leaks=0"}),
    "chromium": Program(
        "many processes, a heap in partitions, compiled JavaScript",
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir={place}/profile",
         "--virtual-time-budget=500", "--dump-dom", "file://{programs}/page.html"],
        ["chromium", "--version"], ["chromium"]),
    "cow-children": Program(
        "children of children that write to memory of their parents", ["python3", "{programs}/cow_children.py"],
        ["python3", "--version"]),
    "gcc": Program(
        "short processes, a heap that grows with brk", ["gcc", "-O2", "-c", "-o", "small.o", "{built}/small.c"],
        ["gcc", "--version"], compiled=["small.c"]),
    "go": Program("arenas in one reservation, stacks of goroutines", ["{built}/goroutines"], ["go", "version"],
                  # A toolchain that is not Debian's is as good.
                  [] if shutil.which("go") else ["golang-go"], ["goroutines"]),
    "java-g1": dataclasses.replace(java("G1GC"), habit="regions that are committed one by one"),
    "java-zgc": dataclasses.replace(java("ZGC"), habit="one file mapped at several addresses, remapped during collection"),
    "jemalloc": Program(
        "extents that are unmapped instead of retained", ["{built}/allocate", "4", "15000"], package("libjemalloc2"), ["libjemalloc2"],
        ["allocate"], {"LD_PRELOAD": f"{LIBRARIES}/libjemalloc.so.2", "MALLOC_CONF": "retain:false"}),
    "make": Program(
        "many short processes", ["make", "-j2", "-C", "{programs}/project", "OUT={place}/project"], ["make", "--version"]),
    "mimalloc": Program(
        "segments that are aligned, purged and freed", ["{built}/allocate", "4", "15000"], package("libmimalloc2.0"), ["libmimalloc2.0"],
        ["allocate"], {"LD_PRELOAD": f"{LIBRARIES}/libmimalloc.so.2.0"}),
    "node-wasm": Program(
        "guard regions of gigabytes, memories that grow in place", ["node", "{programs}/wasm.js"], NODE),
    "node-workers": Program("a separate heap for each worker thread", ["node", "{programs}/workers.js", "10"], NODE),
    "postgres": Program(
        "server processes that share a segment of memory", ["{programs}/postgres.sh", "1"],
        ["sh", "-c", "/usr/lib/postgresql/*/bin/postgres --version"], ["postgresql"]),
    "python-threads": Program(
        "threads that map, resize and close mappings", ["python3", "{programs}/threads.py", "1", "1"], ["python3", "--version"]),
    "qemu": Program(
        "guest memory, code generated at run time",
        ["sh", "-c", '"$@"; test $? = 33', "sh", "qemu-system-x86_64", "-accel", "tcg", "-display", "none", "-no-reboot", "-m", "64",
         "-device", "isa-debug-exit,iobase=0xf4", "-drive", "file={built}/boot.img,format=raw,snapshot=on"],
        ["qemu-system-x86_64", "--version"], ["qemu-system-x86"], ["boot.img"]),
    "redis": Program(
        "a large heap, and a fork that saves it", ["{programs}/redis.sh", "2"], ["sh", "-c", "redis-server --version | cut -d ' ' -f -3"], ["redis-server", "redis-tools"]),
    "regions": Program(
        "a reservation committed by mprotect, one region after the other in turn", ["{built}/commit", "40", "6"], GLIBC, compiled=["commit"]),
    "shared-arena": Program(
        "threads that map, protect, move and unmap the same memory", ["{built}/threads", "1", "1", "4"], GLIBC, compiled=["threads"]),
    "thousands-of-threads": Program(
        "thread stacks with guard pages", ["{built}/many_threads", "2000"], GLIBC, compiled=["many_threads"]),
}


def chosen(names):
    if unknown := [name for name in names if name not in PROGRAMS]:
        sys.exit(f"corpus: no program {unknown[0]}: one of {' '.join(PROGRAMS)}")
    return names or list(PROGRAMS)


def last_line(text):
    return (text.strip().splitlines() or ["no message"])[-1]


def record(room, name):
    """Records a program and checks the trace; returns what was wrong."""
    program, place = PROGRAMS[name], pathlib.Path(room, name)
    place.mkdir()
    place.chmod(0o777)
    names = {"{programs}": f"{room}/programs", "{built}": f"{room}/built", "{place}": str(place)}
    command = list(program.command)
    for written, path in names.items():
        command = [word.replace(written, path) for word in command]
    # The command's own environment only: it is on the recorded stacks, and its size moves them.
    environment = {"PATH": PATH, "HOME": str(place), "TMPDIR": str(place), "LANG": "C.UTF-8"}
    settings = [f"{key}={value}" for key, value in program.environment.items()]
    command = (["env", *settings] if settings else []) + command
    trace = pathlib.Path(room, f"{name}.vmtrace")
    try:
        done = subprocess.run([f"{room}/vmarea", "record", "--checkpoint", CHECKPOINT, "-o", trace, "--", *command], cwd=place, env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=300)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if done.returncode:
        return [f"ended with status {done.returncode}: {last_line(done.stderr)}"]
    return check(f"{room}/vmarea", trace)


def check(vmarea, trace):
    """Returns what is wrong with a trace."""
    wrong = []
    if (size := trace.stat().st_size) > TRACE_BYTES:
        wrong.append(f"{size} bytes, at most {TRACE_BYTES}: make the workload smaller")
    report = replay(vmarea, trace)
    wrong += [f"{report['lost']} samples were lost"] * bool(report["lost"])
    if differences := report["verify"]["differences"]:
        wrong.append(f"{differences} differences: {report['first_difference']}")
    if not report["verify"]["vmas_compared"]:
        wrong.append("nothing was compared")
    dump = subprocess.run([vmarea, "trace", "dump", trace], capture_output=True, text=True, errors="replace", check=True).stdout
    for secret in private():
        if found := re.search(rf".*(?<![\w./-]){re.escape(secret)}(?![\w.-]).*", dump):
            wrong.append(f"contains {secret}: {found.group()[:200]}")
    return wrong


def private():
    """Returns the names of this machine, its user and its folders, which do not belong in a trace."""
    users = {os.environ.get(key, "root") for key in ("USER", "LOGNAME", "SUDO_USER")} - {"root"}
    return {os.uname().nodename, str(CORPUS.parent)} | users


def replay(vmarea, trace):
    done = subprocess.run([vmarea, "replay", "--policy", "linux", "--json", trace], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"corpus: {trace}: {last_line(done.stderr)}")
    return json.loads(done.stdout)


def version_of(name):
    done = subprocess.run(PROGRAMS[name].version, capture_output=True, text=True)
    return (done.stdout or done.stderr).strip().splitlines()[0]


def rows_there():
    """Returns the cells of each row of the table that exists, by name of the trace."""
    text = (CORPUS / "README.md").read_text()
    lines = text.split(MARK)[1].splitlines() if MARK in text else []
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line.startswith("| `")]
    return {row[0].strip("`"): row for row in rows}


def shown(command):
    """A command as one would type it, in the recording's folder."""
    text = " ".join(shlex.quote(word) for word in command).replace("/tmp/corpus/", "")
    return f"`{text}`".replace("|", r"\|")


def row(vmarea, name, version):
    trace = CORPUS / f"{name}.vmtrace"
    report = replay(vmarea, trace)
    info = subprocess.run([vmarea, "trace", "info", "--json", trace], capture_output=True, text=True, check=True)
    header = json.loads(info.stdout)["header"]
    undecided = report["verify"]["undecided"]
    return [f"`{name}`", PROGRAMS[name].habit, version, shown(header["command"]), header["kernel_release"], f"{report['events']:,}",
            f"{report['policies']['linux']['vmas_peak']:,}", f"no, {undecided:,} undecided" if undecided else "yes",
            f"{trace.stat().st_size:,}"]


def write_table(vmarea, versions):
    """Writes the table; a trace that was not recorded anew keeps its version."""
    old = {name: cells[2] for name, cells in rows_there().items()}
    names = [name for name in PROGRAMS if (CORPUS / f"{name}.vmtrace").exists()]
    rows = [row(vmarea, name, versions.get(name) or old[name]) for name in names]
    table = [HEAD, ["---"] * 5 + ["---:"] * 2 + ["---", "---:"], *rows]
    lines = "".join(f"| {' | '.join(cells)} |\n" for cells in table)
    readme = CORPUS / "README.md"
    before, _, after = readme.read_text().split(MARK)
    readme.write_text(f"{before}{MARK}{lines}{MARK}{after}")
    size = sum((CORPUS / f"{name}.vmtrace").stat().st_size for name in names)
    print(f"corpus: {len(names)} traces, {size} bytes, at most {ALL_BYTES}")
    return size <= ALL_BYTES


def record_all(room, names):
    """Records the programs, keeps the traces that are right, and writes the table; returns whether all are right."""
    versions, failed = {}, False
    for name in names:
        for attempt in range(ATTEMPTS):
            wrong = record(room, name)
            if not wrong:
                break
            print(f"corpus: {name}, attempt {attempt + 1}: {'; '.join(wrong)}", file=sys.stderr, flush=True)
        trace = pathlib.Path(room, f"{name}.vmtrace")
        if wrong:
            failed = True
            if trace.exists():
                print(f"    the recording is kept as {shutil.copy(trace, f'/tmp/failed-{name}.vmtrace')}", file=sys.stderr)
            continue
        shutil.copyfile(trace, CORPUS / trace.name)
        versions[name] = version_of(name)
        print(f"corpus: {name}: {trace.stat().st_size} bytes", flush=True)
    return write_table(f"{room}/vmarea", versions) and not failed


def main():
    if sys.argv[1:] == ["--list"]:
        return print("\n".join(PROGRAMS))
    prepare.leash(3600)
    if sys.argv[1:] == ["--table"]:
        return not write_table(prepare.program(), {})
    names = chosen(sys.argv[1:])
    if os.geteuid():
        print("corpus: recordings without root lack faults: run as root", file=sys.stderr)
        return 5
    packages, compiled = ({item for name in names for item in getattr(PROGRAMS[name], what)} for what in ("packages", "compiled"))
    prepare.packages(*packages)
    # The traces contain the paths of files, so the folder has the same name on every machine.
    if os.path.exists("/tmp/corpus"):
        sys.exit("corpus: /tmp/corpus exists: remove it if nothing else uses it")
    with prepare.room(*sorted(compiled), path="/tmp/corpus") as room:
        return not record_all(room, names)


if __name__ == "__main__":
    sys.exit(main())
