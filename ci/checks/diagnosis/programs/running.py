"""Starts the programs of the benchmark, waits for the line that says that one is ready, and ends them.

A program is a function that gets a `Room`, makes there what it needs, and returns a `Start`. It is registered with
the packages of Debian, as NAME or as COMMAND:NAME if any such command will do, and of the Python package index, that it needs.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

SOURCES = pathlib.Path(__file__).parent / "sources"
LIB = "/usr/lib/x86_64-linux-gnu/"
SECONDS = 240
PROGRAMS = {}


@dataclasses.dataclass
class Start:
    """How to start a program. `ready` is searched in what it prints; `inside` names the process to look at, if it is a
    descendant, or `holds` is part of its command line, and `grown` is the memory in bytes that it must have; `until` is asked
    again and again if it prints nothing; `feed` is written to its standard input, which stays open."""

    command: list
    ready: str = "^ready"
    env: dict = dataclasses.field(default_factory=dict)
    inside: str = ""
    holds: str = ""
    grown: int = 0
    until: object = None
    feed: str = ""


@dataclasses.dataclass
class Program:
    """A program of a table, and what it needs."""

    start: object
    debian: tuple
    pip: tuple


def program(name, *debian, pip=(), into=PROGRAMS):
    """Registers a program with the packages that it needs."""
    def add(start):
        assert name not in into, name
        into[name] = Program(start, debian, pip)
        return start
    return add


class Room:
    """A folder of its own for a program."""

    def __init__(self, path, python):
        self.path, self.python = pathlib.Path(path), python

    def write(self, name, text):
        (self.path / name).write_text(text, encoding="utf-8")
        return str(self.path / name)

    def run(self, *command, **more):
        done = subprocess.run([str(word) for word in command], cwd=self.path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=SECONDS, **more)
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stdout[-600:]}")
        return done.stdout

    def compiled(self, source, *options, by=None, name=None):
        """Compiles a source in C, C++ or Rust; returns the program's path."""
        made = str(self.path / (name or source.partition(".")[0]))
        by = by or {"c": "gcc", "cpp": "g++", "rs": "rustc"}[source.rpartition(".")[2]]
        self.run(by, *(["-O1", "-w", "-pthread"] if by != "rustc" else ["-O"]), "-o", made, SOURCES / source, *options)
        return made

    def java(self, source, *classpath):
        """Compiles a class; returns the beginning of its command."""
        path = ":".join([str(self.path), *classpath])
        self.run("javac", "-cp", path, "-d", self.path, SOURCES / source)
        return ["-cp", path, source.partition(".")[0]]


    def answers(self, address):
        """Returns a condition: whether something listens at a socket's path in the room, or at a port of this machine."""
        def ask():
            family = socket.AF_INET if isinstance(address, int) else socket.AF_UNIX
            with socket.socket(family) as asking:
                asking.settimeout(1)
                return asking.connect_ex(("127.0.0.1", address) if isinstance(address, int) else str(self.path / address)) == 0
        return ask


def free_port():
    """Returns a port of this machine at which nothing listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def children(pid):
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            yield from map(int, pathlib.Path(f"/proc/{pid}/task/{thread}/children").read_text().split())


def read(pid, name):
    """Returns a file of a process's folder in /proc; empty if the process has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def find(pid, start):
    """Returns the first process that `start` asks for among a process and its descendants, or None."""
    resident = read(pid, "statm").split()[1:2]
    named = not start.inside or read(pid, "comm").strip() == start.inside[:15]
    if named and start.holds in read(pid, "cmdline") and resident and int(resident[0]) * 4096 >= start.grown:
        return pid
    return next(filter(None, (find(child, start) for child in children(pid))), None)


def family(pid):
    """Returns a process and its descendants."""
    return [pid, *(one for child in children(pid) for one in family(child))]


def wait_for_line(process, pattern, deadline):
    """Reads what the program prints until a line matches."""
    text = b""
    while time.monotonic() < deadline:
        if select.select([process.stdout], [], [], 0.2)[0]:
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                raise RuntimeError(f"it ended: {text.decode(errors='replace')[-600:]}")
            text += data
            if re.search(pattern.encode(), text, re.MULTILINE):
                return
    raise RuntimeError(f"it is not ready after {SECONDS} s: {text.decode(errors='replace')[-600:]}")


def wait_until(process, condition, deadline):
    """Asks until the answer is true."""
    while not condition():
        if process.poll() is not None:
            # What it has started may still hold the pipe.
            os.set_blocking(process.stdout.fileno(), False)
            raise RuntimeError(f"it ended: {(process.stdout.read() or b'').decode(errors='replace')[-600:]}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"it is not ready after {SECONDS} s")
        time.sleep(0.05)


@contextlib.contextmanager
def running(start, room):
    """Yields the process to look at, once it is ready; kills the program and what it has started at the end."""
    deadline = time.monotonic() + SECONDS
    process = subprocess.Popen([str(word) for word in start.command], cwd=room.path, env=os.environ | start.env, start_new_session=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        if start.feed:
            process.stdin.write(start.feed.encode())
            process.stdin.flush()
        if start.until:
            wait_until(process, start.until, deadline)
        else:
            wait_for_line(process, start.ready, deadline)
        wait_until(process, lambda: find(process.pid, start), deadline)
        yield find(process.pid, start)
    finally:
        # Some are in a session of their own, and some have a parent that has ended.
        for pid in family(process.pid)[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


def missing(table, names):
    """Returns the packages of Debian that programs need and that ci/lib/install.sh should look at."""
    wanted = {name for program in names for name in table[program].debian}
    return sorted({name.rpartition(":")[2] for name in wanted if ":" not in name or not shutil.which(name.partition(":")[0])})


def environment(names, folder):
    """Returns a Python with these packages of the Python package index, as NAME==VERSION, in a venv that is kept in `folder`,
    with an empty file for each that is installed."""
    python = folder / "bin/python"
    if not names:
        return sys.executable
    if not python.exists():
        subprocess.run(["/usr/bin/python3", "-m", "venv", folder], check=True)
    for name in names:
        if not (folder / name).exists():
            subprocess.run([python, "-m", "pip", "install", "-q", name], check=True)
            (folder / name).touch()
    return str(python)
