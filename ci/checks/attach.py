"""Attaches to 20 real programs that run already, and leaves them again.

Records each for some seconds, checks that the program ends as it does without vmarea, and that the replay of the
recording gives the kernel's results. Prints one row per program. `loop` attaches to one program and leaves it, 200 times.

usage: ci/run attach -- [--user root|nobody] [--by observing|tracing] [PROGRAM...]     ci/run attach --list
       ci/run attach -- [--by observing|tracing] loop [TIMES]
       VMAREA=path/of/vmarea takes that binary instead of building one; SECONDS_ATTACHED=N (3) records N seconds
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import prepare

SECONDS = int(os.environ.get("SECONDS_ATTACHED", "3"))
# A program runs for some seconds before and after the recording.
LASTS = SECONDS + 7
COLUMNS = ["events", "calls", "faults", "lost", "VMAs", "results", "differ", "undecided"]
NO_PERMISSION = 5
FORMAT = "{:16}{:8}" + "{:>10}" * len(COLUMNS) + "{:>9}  {}"


@dataclasses.dataclass
class Program:
    """A program that runs for LASTS seconds, checks its own results, and then ends with status 0."""

    command: list
    # Name of the process to attach to, one of the command's descendants. The oldest one, unless `newest`.
    process: str
    packages: list = dataclasses.field(default_factory=list)
    newest: bool = False
    # Only root may attach to the program: it is started by root. Others must be refused.
    root: bool = False


def serve(*server):
    return ["python3", "{programs}/serve.py", str(LASTS), *server]


def until_over(command):
    """Repeats a shell command until the time is up; fails if it fails."""
    return ["sh", "-ec", f"end=$(($(date +%s) + {LASTS})); while [ $(date +%s) -lt $end ]; do {command}; done"]


PROGRAMS = {
    "redis": Program(["{programs}/redis.sh", str(LASTS)], "redis-server"),
    "memcached": Program(["python3", "{programs}/servers/memcached.py", str(LASTS)], "memcached", ["memcached"], root=True),
    "postgres": Program(["{programs}/postgres.sh", str(LASTS)], "postgres", ["postgresql"]),
    "nginx": Program(
        serve("sh", "-c", "echo 'daemon off; worker_processes 1; pid {files}/pid; error_log stderr; events {} http { access_log off; "
              "server { listen 127.0.0.1:{port}; root {files}; } }' > conf; exec nginx -p {files} -c {files}/conf -e stderr"),
        "nginx", ["nginx-light"], newest=True),
    "lighttpd": Program(
        serve("sh", "-c", "printf 'server.document-root=\"{files}\"\\nserver.port={port}\\n"
              "server.bind=\"127.0.0.1\"\\n' > conf; exec lighttpd -D -f conf"),
        "lighttpd", ["lighttpd"]),
    "busybox-httpd": Program(serve("busybox", "httpd", "-f", "-p", "127.0.0.1:{port}", "-h", "{files}"), "busybox", ["busybox"]),
    "python-http": Program(
        serve("sh", "-c", "exec python3 -m http.server --bind 127.0.0.1 -d {files} {port} 2>/dev/null"), "python3", newest=True),
    "php": Program(serve("php", "-q", "-S", "127.0.0.1:{port}", "-t", "{files}"), "php", ["php-cli"]),
    "ruby": Program(
        serve("sh", "-c", "exec ruby -run -e httpd -- --bind-address=127.0.0.1 --port={port} {files} 2>/dev/null"),
        "ruby", ["ruby", "ruby-webrick"]),
    "node-http": Program(serve("node", "{programs}/servers/server.js", "{port}", "{files}"), "node"),
    "go-http": Program(serve("{built}/server", "{port}", "{files}"), "server", ["golang-go"]),
    "java-g1": Program(
        serve("java", "-XX:+UseG1GC", "-Xmx256m", "{programs}/servers/Server.java", "{port}", "{files}"),
        "java", ["default-jdk-headless"]),
    "java-zgc": Program(["java", "-XX:+UseZGC", "-Xmx256m", "{programs}/garbage.java", str(LASTS)], "java", ["default-jdk-headless"]),
    "goroutines": Program(["{built}/goroutines", str(LASTS)], "goroutines", ["golang-go"]),
    "node-workers": Program(until_over("node {programs}/workers.js 1500 >/dev/null"), "node"),
    "python-threads": Program(["python3", "{programs}/threads.py", "1", str(LASTS)], "python3"),
    "perl": Program(
        ["perl", "-e", "my $end = time + shift; my %h; while (time < $end) { $h{$_ % 50000} .= 'x' x ($_ % 500) "
         "for 1 .. 100000; %h = () if rand() < 0.3; }", str(LASTS)],
        "perl", ["perl-base"]),
    "make": Program(until_over("make -s -j2 -C {programs}/project OUT=$PWD/project; rm -r project"), "sh"),
    "jemalloc": Program(
        ["sh", "-c", "LD_PRELOAD=libjemalloc.so.2 exec python3 {programs}/threads.py 2 " + str(LASTS)], "python3", ["libjemalloc2"]),
    "qemu": Program(
        ["sh", "-c", f"timeout -s KILL {LASTS} qemu-system-x86_64 -accel tcg -display none -m 64; test $? = 137"],
        "qemu-system-x86", ["qemu-system-x86"]),
    "stress-mmap": Program(["stress-ng", "-q", "--mmap", "1", "--mmap-bytes", "16m", "--timeout", f"{LASTS}s"], "stress-ng-mmap", newest=True),
}


def parse(arguments):
    parser = argparse.ArgumentParser(prog="ci/run attach")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--user", choices=["root", "nobody"])
    parser.add_argument("--by", choices=["auto", "observing", "tracing"], default="auto")
    parser.add_argument("names", nargs="*", metavar="PROGRAM")
    chosen = parser.parse_args(arguments)
    if chosen.names[:1] == ["loop"]:
        return chosen
    unknown = [name for name in chosen.names if name not in PROGRAMS]
    if unknown:
        parser.error(f"no program {unknown[0]}: one of {' '.join(PROGRAMS)}")
    chosen.names = chosen.names or list(PROGRAMS)
    return chosen


def compiled():
    """Returns the Go programs, if Go is there."""
    return ["goroutines", "server"] if shutil.which("go") else []


def processes():
    """Returns (parent, start time, name) of every process, by process ID."""
    found = {}
    for entry in os.listdir("/proc"):
        try:
            stat = pathlib.Path(f"/proc/{entry}/stat").read_text() if entry.isdigit() else ""
        except OSError:
            continue
        if stat:
            name, fields = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
            found[int(entry)] = (int(fields[1]), int(fields[19]), name)
    return found


def find(root, program):
    """Waits for the process to attach to; returns its process ID, or None if it does not start."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        everyone = processes()

        def is_below(pid):
            while pid in everyone and pid != root:
                pid = everyone[pid][0]
            return pid == root

        named = [(started, pid) for pid, (_, started, name) in everyone.items()
                 if name == program.process[:15] and is_below(pid)]
        if named:
            return (max if program.newest else min)(named)[1]
        time.sleep(0.05)
    return None


def tracer(pid):
    """Returns the tracers of the process's threads that are not 0."""
    found = []
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        found += [lines["TracerPid"]] * (lines["TracerPid"] != "0")
    return found


def command_of(program, room, as_user):
    names = {"{programs}": f"{room}/programs", "{built}": f"{room}/built"}
    command = list(program.command)
    for name, path in names.items():
        command = [word.replace(name, path) for word in command]
    return as_user + command


def attach(name, user, by, room):
    """Attaches to one program; prints its row. Returns whether everything was right."""
    program = PROGRAMS[name]
    as_user = [] if user == "root" or os.geteuid() else ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    begun = time.monotonic()
    report, faults, refused = {}, [], False
    with tempfile.TemporaryDirectory(dir=room) as place:
        os.chmod(place, 0o777)
        environment = dict(os.environ, HOME=place, TMPDIR=place)
        with open(f"{place}/out", "w") as out:
            running = subprocess.Popen(command_of(program, room, [] if program.root else as_user), cwd=place,
                                       env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        pid = find(running.pid, program)
        time.sleep(2)
        if pid is not None and not os.path.exists(f"/proc/{pid}/task"):
            # The name belonged to a process that only prepared the start, as initdb's does.
            pid = find(running.pid, program)
        if pid is None or running.poll() is not None:
            faults.append("it did not start")
        else:
            refused = program.root and user != "root"
            faults += record([*as_user, f"{room}/vmarea"], pid, by, place, NO_PERMISSION if refused else 0)
            if os.path.exists(f"/proc/{pid}/task") and (left := tracer(pid)):
                faults.append(f"still traced by {left[0]}")
        try:
            if running.wait(LASTS + 60):
                faults.append(f"it ended with status {running.returncode}")
        except subprocess.TimeoutExpired:
            faults.append("it does not end")
            running.send_signal(signal.SIGKILL)
        if not faults and not refused:
            report, wrong = replay(f"{room}/vmarea", place, user)
            faults += wrong
        if faults:
            print(pathlib.Path(f"{place}/out").read_text(errors="replace")[-1500:], file=sys.stderr)
            if os.path.exists(f"{place}/trace"):
                kept = tempfile.mkstemp(suffix=f".{name}.vmtrace")[1]
                shutil.copy(f"{place}/trace", kept)
                print(f"    the recording is kept as {kept}", file=sys.stderr)
    numbers = [report.get(column, "-") for column in COLUMNS]
    seconds = f"{time.monotonic() - begun:.1f}"
    outcome = "FAILED: " + ", ".join(faults) if faults else "ok, refused" if refused else "ok"
    print(FORMAT.format(name, user, *numbers, seconds, outcome), flush=True)
    return not faults


def record(vmarea, pid, by, place, expected):
    """Records the process for SECONDS and expects an exit status; returns what was wrong."""
    command = [*vmarea, "record", "-p", str(pid), "--by", by, "--for", f"{SECONDS}s", "-o", f"{place}/trace"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 120, cwd=place)
    if done.returncode == expected:
        return []
    lines = done.stderr.strip().splitlines()
    return [f"record ended with status {done.returncode}: {lines[-1] if lines else 'no message'}"]


def replay(vmarea, place, user):
    """Replays the recording; returns the numbers of the row, and what was wrong."""
    done = subprocess.run([vmarea, "replay", "--json", f"{place}/trace"], capture_output=True, text=True, timeout=600)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return {}, [f"replay ended with status {done.returncode}: {done.stderr.strip()[-200:]}"]
    verify = report["verify"]
    numbers = {key: report[key] for key in ("events", "calls", "faults", "lost")}
    numbers |= {"VMAs": verify["vmas_compared"], "results": verify["results_compared"],
                "differ": verify["differences"], "undecided": verify["undecided"]}
    faults = ["differs"] if verify["differences"] else []
    if not verify["vmas_compared"]:
        faults.append("nothing was compared")
    for key, value in (report.get("first_difference") or {}).items():
        print(f"    {key}: {value}", file=sys.stderr)
    return numbers, faults


def loop(room, by, times):
    """Attaches to a program of eight threads and leaves it, over and over; the program must not notice."""
    vmarea = f"{room}/vmarea"
    seconds = []
    with tempfile.TemporaryDirectory(dir=room) as place:
        command = ["python3", f"{room}/programs/threads.py", "3", str(times * 3 + 60)]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(1)
        differences = undecided = 0
        for _ in range(times):
            begun = time.monotonic()
            done = subprocess.run([vmarea, "record", "-p", str(running.pid), "--by", by, "--for", "100ms",
                                   "-o", f"{place}/trace"],
                                  capture_output=True, text=True, timeout=120)
            seconds.append(time.monotonic() - begun)
            if done.returncode or running.poll() is not None or tracer(running.pid):
                print(f"attach: FAILED: status {done.returncode}: {done.stderr}", file=sys.stderr)
                return False
            numbers, _ = replay(vmarea, place, "root")
            differences += numbers["differ"]
            undecided += numbers["undecided"]
            os.unlink(f"{place}/trace")
        running.terminate()
        running.wait()
    print(f"attached and left {times} times: {differences} differences, {undecided} undecided, "
          f"median {statistics.median(seconds):.2f} s for 0.1 s of recording")
    return differences == 0


def main():
    chosen = parse(sys.argv[1:])
    if chosen.list:
        print("\n".join(PROGRAMS))
        return 0
    prepare.leash(7200)
    prepare.packages(*{package for name in chosen.names if name in PROGRAMS for package in PROGRAMS[name].packages})
    with prepare.room(*compiled()) as room:
        if chosen.names[:1] == ["loop"]:
            return not loop(room, chosen.by, int((chosen.names[1:] or ["200"])[0]))
        user = chosen.user or ("root" if os.geteuid() == 0 else "nobody")
        print(FORMAT.format("program", "user", *COLUMNS, "seconds", ""), flush=True)
        return not all([attach(name, user, chosen.by, room) for name in chosen.names])


if __name__ == "__main__":
    sys.exit(main())
