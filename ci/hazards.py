"""Merges a program that does at random what a merge could disturb, and checks both.

usage: see ci/hazards.sh. The first argument is the folder with the compiled programs `target` and `bully`.
"""

import argparse
import collections
import ctypes
import dataclasses
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

from hazards_kills import KILLS, kill_of
from hazards_results import record, summarize

STOPPED = "stop"
MODES = ["stop", "storm", "terminal", "continue", "memory", "attach", "dump", *KILLS, "interrupt", "freeze", "shrink",
         "second"]
# Modes after which epoll_wait may fail with EINTR, and those after which all calls may that only a handler interrupts.
STOPPING = {"stop", "storm", "terminal", "attach", "freeze", "kill-tracer", "kill-both"}
LOSING = {"kill-tracer", "kill-both"}
# Activities with which a merge may be refused, and the messages of these refusals.
REFUSALS = {
    "fork": "shares its memory|does not stop",
    "spawn": "shares its memory|does not stop",
    "share": "shares its memory",
    "limits": "has no room|cannot have the thread",
    "sandbox": "may not use userfaultfd|seccomp filter",
    "userfault": "does not stop",
    "stop": "does not stop",
    "freeze": "does not stop",
    "attach": "is traced by|does not stop|has no permission|no permission to trace",
    "second": "is at work|is traced by",
    "kill-merge": "is at work",
    "kill-tracer": "was killed|is at work",
    "kill-both": "was killed|is at work",
}
ALWAYS = "a pause of .* cannot be kept"
# Messages that are right only if the target has ended, or has executed itself.
ENDED = r"process \d+ has ended|no process|another program"
# Without `guards`, which is not for a program that makes guard pages writable.
FIXES = ["flags", "empties", "priming", "flags,empties", "flags,empties,priming"]
PAUSES_MS = [1, 3, 5, 10, 20, 50]
# With which a merge has pieces even on a busy machine, so that it can be killed in each step of them.
LONG_PAUSES_MS = [50, 500, 10_000]
# In an emulated machine (ci/kernels.sh), all takes longer, and stopping many threads takes half a second.
IS_EMULATED = "HAZARDS_EMULATED" in os.environ
SLOWNESS, PAUSE_SLOWNESS = (10, 100) if IS_EMULATED else (1, 1)
# Seconds into a merge; it would take long to wait for the middle of a long one.
LATEST_KILL = 3
MERGE_TIMEOUT = 60 * SLOWNESS
BEAT_TIMEOUT = 30 * SLOWNESS
# For what happens at once.
SOON = 2 * SLOWNESS
# Words of the board (board.h).
MAGIC, READY, BEATS, MADE = 0, 1, 2, 3

Row = collections.namedtuple("Row", "name activities bully load")
# Failures of merges before their agent was a thread of its own.
KNOWN = [
    Row("one SIGSTOP from outside, under load", ["pages"], ["stop"], 14),
    Row("restartable sequences", ["rseq", "pages"], [], 0),
    Row("mlockall(MCL_FUTURE)", ["pages", "future"], [], 0),
    Row("SIGCONT or SIGTSTP from outside", ["pages"], ["continue", "terminal"], 0),
    Row("Syscall User Dispatch", ["dispatch", "pages"], [], 0),
    Row("process_vm_writev and readv by another process", ["foreign", "pages"], ["memory"], 0),
    Row("first thread has ended", ["pages", "leader"], [], 0),
]


class Failure(Exception):
    """A check that failed."""


def die_with_parent():
    """Makes a child end when this script ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def in_own_group():
    """SIGTSTP stops only a process group that is not orphaned, so the group has its parent's session."""
    die_with_parent()
    os.setpgid(0, 0)
    if IS_EMULATED:
        # The merge goes first.
        os.nice(10)


def read(path):
    """Returns the contents of a file of /proc, empty if the process has ended."""
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except OSError:
        return ""


def field(status, name):
    """Returns the first word of a field of a status file."""
    found = re.search(rf"^{name}:\s*(\S+)", status, re.MULTILINE)
    return found[1] if found else ""


def children(pid):
    """Returns the children of a process."""
    found = []
    for thread in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in read(thread).split()]
    return found


class Target:
    """A running target."""

    def __init__(self, room, activities, seed, seconds, strict, adopts, loses_tracer):
        self.activities = activities
        self.seconds = seconds
        self.board_path = room / f"board-{seed}-{time.monotonic_ns()}"
        self.output_path = room / "target.out"
        command = [room / "target", self.board_path, room, str(seed), str(seconds)]
        command += ["--strict"] * strict + ["--adopt"] * adopts + ["--loses-tracer"] * loses_tracer + activities
        self.started = time.monotonic()
        with open(self.output_path, "wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, preexec_fn=in_own_group)
        self.pid = self.process.pid
        while not self.word(READY):
            if self.has_ended() or time.monotonic() > self.started + 60 * SLOWNESS:
                raise Failure(f"the target did not start: {self.last_line()}")
            time.sleep(0.01)
        # The names of those that were chosen by `random`.
        self.activities = self.output_path.read_text().splitlines()[0].split()[2:]

    def word(self, number):
        """Returns a word of the board."""
        try:
            with open(self.board_path, "rb") as board:
                board.seek(8 * number)
                return struct.unpack("Q", board.read(8))[0]
        except (OSError, struct.error):
            return 0

    def last_line(self):
        """Returns the last line of output, or the one that says what is broken."""
        lines = self.output_path.read_text(errors="replace").splitlines()
        broken = [line for line in lines if line.startswith("BROKEN")]
        return (broken or lines or ["no output"])[0 if broken else -1]

    def has_ended(self):
        return self.process.poll() is not None

    def is_stopped(self):
        """True if all threads that have not ended are in group-stop."""
        states = [field(read(status), "State") for status in pathlib.Path(f"/proc/{self.pid}/task").glob("*/status")]
        return bool(states) and all(state in "TZX" for state in states if state) and "T" in states

    def remains(self):
        """Returns the mappings that a merge has left: no program here maps private memory as executable."""
        return [line for line in read(f"/proc/{self.pid}/maps").splitlines()
                if re.search(r" r-xp 0+ 00:00 0\s*$", line)]

    def is_ending(self):
        """True if the target is about to end by itself."""
        return self.has_ended() or time.monotonic() - self.started > self.seconds - 0.2

    def finish(self):
        """Waits for the end, and checks what the target says."""
        try:
            status = self.process.wait(timeout=max(0, self.started + self.seconds - time.monotonic()) + 90 * SLOWNESS)
        except subprocess.TimeoutExpired:
            states = {field(read(status), "State")
                      for status in pathlib.Path(f"/proc/{self.pid}/task").glob("*/status")}
            raise Failure(f"the target does not end, threads are in {sorted(states)}") from None
        if status or not self.last_line().startswith("done"):
            raise Failure(f"the target ended with status {status}: {self.last_line()}")

    def remove(self):
        """Ends the target by force, with its children."""
        for pid in [*children(self.pid), self.pid] if not self.has_ended() else []:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        self.process.wait()
        self.board_path.unlink(missing_ok=True)


class Merge:
    """A run of `vmarea merge`."""

    def __init__(self, vmarea, target, options, room, name="merge"):
        self.target = target
        self.options = options
        self.output_path = room / f"{name}.out"
        self.command = [vmarea, "merge", "-p", str(target.pid), *options]
        with open(self.output_path, "wb") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=output, preexec_fn=die_with_parent)

    def wait(self):
        """Returns the exit status; kills a merge that hangs."""
        try:
            return self.process.wait(timeout=MERGE_TIMEOUT)
        except subprocess.TimeoutExpired:
            for pid in [*children(self.process.pid), self.process.pid]:
                os.kill(pid, signal.SIGKILL)
            self.process.wait()
            raise Failure(f"vmarea merge {' '.join(self.options)} hangs") from None

    def output(self):
        return self.output_path.read_text(errors="replace")

    def check(self, status, causes):
        """Raises a failure unless the exit status is one that is documented for these circumstances."""
        output = self.output()
        allowed = "|".join([ALWAYS, *(REFUSALS[cause] for cause in causes if cause in REFUSALS)])
        if status in (0, 4) or (status == 7 and "interrupt" in causes):
            return
        if status in (-signal.SIGKILL, -signal.SIGINT) and {"kill-merge", "kill-both", "interrupt"} & set(causes):
            return
        if status in (1, 5) and re.search(allowed, output):
            return
        # A target may end in the middle of the merge. The end of its last thread takes a moment.
        until = time.monotonic() + SOON
        while not self.target.has_ended() and time.monotonic() < until:
            time.sleep(0.01)
        has_ended = self.target.has_ended() or "execute" in causes
        if not (has_ended and (self.target.process.returncode or re.search(ENDED, output))):
            raise Failure(f"vmarea merge {' '.join(self.options)} ended with {status}: {output.strip()[:300]}")


@dataclasses.dataclass
class Run:
    """What is common to all merges of one target."""

    vmarea: str
    room: pathlib.Path
    seed: int
    random: random.Random
    by: str
    bully: list
    # The target accepts descriptors that are not its own, which earlier merges had.
    adopts: bool = False
    activities: list = dataclasses.field(default_factory=list)
    # How long a merge takes, roughly.
    usual: float = 0.3 * SLOWNESS
    merges: int = 0
    # How many merges ended with each exit status.
    statuses: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    # The kills, each as it stands in the results.
    kills: list = dataclasses.field(default_factory=list)

    def only_kills(self):
        return bool(self.bully) and set(self.bully) <= set(KILLS)

    def options(self):
        """Returns random options of a merge."""
        pause = self.random.choice(LONG_PAUSES_MS if self.only_kills() else PAUSES_MS) * PAUSE_SLOWNESS
        options = ["--apply", "--max-pause", f"{pause}ms"]
        by = self.by or self.random.choice([None, None, "move", "copy"])
        options += ["--by", by] if by else []
        options += ["--copy", str(self.random.choice([10, 1000, 100000]))] if self.random.random() < 0.3 else []
        options += ["--fix", self.random.choice(FIXES)] if self.random.random() < 0.2 else []
        return options

    def start_bully(self, mode, target, merge):
        """Starts the bully for about as long as a merge takes."""
        seconds = self.usual * 1.2 if mode in (STOPPED, "interrupt", *KILLS) else max(0.1, self.usual)
        seconds = min(seconds, LATEST_KILL) if mode in KILLS else seconds
        command = [self.room / "bully", mode, str(target.pid), target.board_path, str(self.random.randrange(1 << 30)),
                   f"{seconds:.4f}", str(merge.process.pid)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)

    def choose_modes(self):
        """Returns what the bully does during a merge."""
        # A merge that nobody kills shows how long one takes.
        if not self.bully or (self.only_kills() and self.merges % 16 == 8):
            return []
        modes = self.random.sample(self.bully, self.random.randint(1, len(self.bully)))
        # Two modes that stop and continue the process would undo each other's work.
        if STOPPED in modes and {"storm", "terminal", "continue", *KILLS} & set(modes):
            return [STOPPED]
        # Of two kills, the second would find nothing.
        kills = [mode for mode in modes if mode in KILLS]
        return [mode for mode in modes if mode not in kills[1:]]

    def merge(self, target):
        """Merges once, while the bully is at work."""
        modes = self.choose_modes()
        begun = time.monotonic()
        merge = Merge(self.vmarea, target, self.options(), self.room)
        second = Merge(self.vmarea, target, self.options(), self.room, "second") if "second" in modes else None
        bullies = {mode: self.start_bully(mode, target, merge) for mode in modes if mode != "second"}
        causes = [*target.activities, *modes]
        try:
            status = merge.wait()
            if status == 0:
                self.usual += (time.monotonic() - begun - self.usual) / 4
            second_status = second.wait() if second else 0
            outputs = {mode: bully.communicate(timeout=MERGE_TIMEOUT)[0] for mode, bully in bullies.items()}
        finally:
            for bully in bullies.values():
                bully.kill()
        self.merges += 1
        self.statuses[status] += 1
        for mode, output in outputs.items():
            if bullies[mode].returncode == 77:
                raise Failure(f"{output.strip()} (bully {mode})")
            self.kills += kill_of(output, status, merge.output())
        merge.check(status, causes)
        if second:
            second.check(second_status, causes)
        if set(KILLS) & set(modes):
            self.sweep(target, causes)
        self.check(target, STOPPED in modes and outputs[STOPPED].strip() == "stop 1")

    def sweep(self, target, causes):
        """Removes what a killed merge has left, when the rest of it has ended."""
        passing = "|".join(["is at work|is traced by", *(REFUSALS[cause] for cause in causes if cause in REFUSALS)])
        until = time.monotonic() + MERGE_TIMEOUT
        while True:
            resume = Merge(self.vmarea, target, ["--resume"], self.room)
            status = resume.wait()
            is_refused = status and re.search(passing, resume.output())
            if not is_refused or time.monotonic() > until:
                return resume.check(status, set(causes) - set(KILLS))
            time.sleep(0.05)

    def check(self, target, was_stopped):
        """Checks the target after a merge."""
        changes_state = "stops" in target.activities
        if was_stopped and not changes_state and not target.has_ended():
            until = time.monotonic() + SOON
            while not target.is_stopped() and time.monotonic() < until and not target.has_ended():
                time.sleep(0.005)
            if not target.is_stopped() and not target.has_ended():
                raise Failure("a SIGSTOP is lost")
        if was_stopped and not target.has_ended():
            os.kill(target.pid, signal.SIGCONT)
        beats, until = target.word(BEATS), time.monotonic() + BEAT_TIMEOUT
        while target.word(BEATS) == beats and not target.has_ended():
            if time.monotonic() > until:
                raise Failure("the target is left stopped" if target.is_stopped() else "the target hangs")
            time.sleep(0.01)
        if target.remains():
            raise Failure(f"left in the process: {target.remains()[0]}")


def spin(load):
    """Starts processes that keep the processors busy."""
    return [subprocess.Popen(["sh", "-c", "while :; do :; done"], preexec_fn=die_with_parent) for _ in range(load)]


def merge_target(run, activities, seconds, most, load=0):
    """Starts a target and merges it until it ends; returns a failure, or None."""
    spinners = spin(load)
    target = None
    try:
        strict = not set(run.bully) & STOPPING and not run.adopts
        target = Target(run.room, activities, run.seed, seconds, strict, run.adopts, bool(set(run.bully) & LOSING))
        run.activities = target.activities
        while not target.is_ending() and run.merges < most:
            run.merge(target)
        target.finish()
    except Failure as failure:
        line = target.last_line() if target and target.has_ended() else ""
        return f"{line}; {failure}" if line.startswith("BROKEN") and line not in str(failure) else str(failure)
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
        if target:
            target.remove()
    return None


def search(arguments, room):
    """Merges targets until the number of merges is reached. Returns the numbers of passed and failed targets."""
    passed = failed = merges = 0
    seed, usual = arguments.seed, Run.usual
    while merges < arguments.merges:
        chance = random.Random(seed)
        activities = arguments.only or ["pages", "random"]
        bully = arguments.bully
        if bully is None:
            bully = chance.sample(MODES, chance.choice([0, 1, 1, 2]))
        run = Run(arguments.vmarea, room, seed, chance, arguments.by, bully, usual=usual)
        failure = merge_target(run, activities, arguments.seconds, arguments.merges - merges, arguments.load)
        record(arguments, run, activities, arguments.load, failure)
        merges += max(1, run.merges)
        usual = run.usual
        passed, failed = passed + (failure is None), failed + (failure is not None)
        seed += 1
    summarize(arguments)
    return passed, failed


def known(arguments, room):
    """Searches for the known failures. Returns the numbers of rows that were not found and that were found."""
    found = []
    for row in KNOWN:
        merges, failure, seed = 0, None, arguments.seed
        while merges < arguments.merges and not failure:
            chance = random.Random(seed)
            bully = [chance.choice(row.bully)] if row.bully else []
            run = Run(arguments.vmarea, room, seed, chance, arguments.by or "move", bully, adopts=True)
            failure = merge_target(run, row.activities, arguments.seconds, arguments.merges - merges, row.load)
            record(arguments, run, row.activities, row.load, failure)
            merges += max(1, run.merges)
            seed += 1
        found.append((row.name, f"found after {merges} merges: {failure}" if failure else "not found"))
    for name, verdict in found:
        print(f"{name:48}  {verdict}")
    count = sum(verdict != "not found" for _, verdict in found)
    return len(found) - count, count


def names(text):
    return [name for name in text.split(",") if name]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("room", type=pathlib.Path)
    parser.add_argument("--vmarea", required=True)
    parser.add_argument("--merges", type=int)
    parser.add_argument("--by", choices=["move", "copy"])
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1000000)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--only", type=names)
    parser.add_argument("--bully", type=names)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--results", required=True)
    parser.add_argument("--known", action="store_true")
    arguments = parser.parse_args()
    arguments.merges = arguments.merges or 200
    unknown = set(arguments.bully or []) - set(MODES)
    if unknown:
        sys.exit(f"hazards: no mode {', '.join(unknown)}; there are {', '.join(MODES)}")
    with tempfile.TemporaryDirectory(dir=arguments.room) as folder:
        room = pathlib.Path(folder)
        for program in ("target", "bully"):
            os.link(arguments.room / program, room / program)
        passed, failed = (known if arguments.known else search)(arguments, room)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed != 0)


main()
