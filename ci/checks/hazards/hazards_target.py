"""The target of hazards.py: how it is started, what it says, and what must be true of it."""

import collections
import ctypes
import os
import pathlib
import re
import signal
import struct
import subprocess
import time

# In an emulated machine (ci/run kernels), all takes longer.
IS_EMULATED = "HAZARDS_EMULATED" in os.environ
SLOWNESS = 10 if IS_EMULATED else 1
BEAT_TIMEOUT = 30 * SLOWNESS
# For what happens at once.
SOON = 2 * SLOWNESS
# Words of the board (board.h).
MAGIC, READY, BEATS, MADE, FAILED, OVER, JOINED, IDLE, REFUSED = range(9)
ERRNOS = 134
# What a call of vmarea_merge_range that had nothing to join counts as: the exit status of vmarea in this case.
NOTHING = 4


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


def children(pid):
    """Returns the children of a process."""
    found = []
    for thread in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in read(thread).split()]
    return found


def tell_stacks(pids):
    """Prints where each thread of these processes is in the kernel, innermost function first: what a hang waits for."""
    for pid in pids:
        print(f"process {pid}: {read(f'/proc/{pid}/cmdline').replace(chr(0), ' ')[:120]}")
        for folder in sorted(pathlib.Path(f"/proc/{pid}/task").glob("*")):
            state = read(folder / "stat").rpartition(") ")[2][:1]
            tracer = re.search(r"TracerPid:\s*(\d+)", read(folder / "status"))
            where = [line.split()[-1].split("+")[0] for line in read(folder / "stack").splitlines()[:6]]
            print(f"  {folder.name} {state} tracer {tracer and tracer[1]} call {read(folder / 'syscall').strip()}: {' < '.join(where)}")


class Target:
    """A running target."""

    def __init__(self, room, activities, seed, seconds, options):
        self.activities = activities
        self.seconds = seconds
        self.board_path = room / f"board-{seed}-{time.monotonic_ns()}"
        self.output_path = room / "target.out"
        command = [room / "target", self.board_path, room, str(seed), str(seconds), *options, *activities]
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

    def words(self, first, count):
        """Returns words of the board."""
        try:
            with open(self.board_path, "rb") as board:
                board.seek(8 * first)
                return struct.unpack(f"{count}Q", board.read(8 * count))
        except (OSError, struct.error):
            return (0,) * count

    def word(self, number):
        return self.words(number, 1)[0]

    def answers(self):
        """Returns how many of its own merges ended in each way: 0, NOTHING or a negative errno."""
        joined, idle, *refused = self.words(JOINED, 2 + ERRNOS)
        counts = {0: joined, NOTHING: idle, **{-errno: count for errno, count in enumerate(refused) if errno}}
        return collections.Counter({answer: count for answer, count in counts.items() if count})

    def last_line(self):
        """Returns the last line of output, or the one that says what is broken."""
        lines = self.output_path.read_text(errors="replace").splitlines()
        broken = [line for line in lines if line.startswith("BROKEN")]
        return (broken or lines or ["no output"])[0 if broken else -1]

    def has_ended(self):
        return self.process.poll() is not None

    def threads(self):
        """Returns state and user time of each thread that has not ended."""
        stats = [(path, read(path)) for path in pathlib.Path(f"/proc/{self.pid}/task").glob("*/stat")]
        fields = {path: stat.rpartition(") ")[2].split() for path, stat in stats if stat}
        return {path: (words[0], words[11]) for path, words in fields.items() if words[0] not in "ZX"}

    def is_stopped(self):
        """True if all threads that have not ended are in group-stop. Some of a target that merges itself may wait in the
        kernel for those that merge (docs/live.md), and stay there."""
        threads = self.threads()
        running = [path for path, (state, _) in threads.items() if state != "T"]
        if running and "within" in self.activities:
            time.sleep(0.1 * SLOWNESS)
            later = self.threads().items()
            running = [path for path, (state, used) in later if state != "T" and used != threads.get(path, ("", ""))[1]]
        return bool(threads) and not running

    def remains(self):
        """Returns the mappings that a merge has left: no program here maps private memory as executable."""
        return [line for line in read(f"/proc/{self.pid}/maps").splitlines()
                if re.search(r" r-xp 0+ 00:00 0\s*$", line)]

    def is_ending(self):
        """True if the target is about to end by itself."""
        return self.has_ended() or time.monotonic() - self.started > self.seconds - 0.2

    def check(self, was_stopped):
        """Checks the target after a merge. If it `was_stopped` by a SIGSTOP, it must be, and is continued."""
        if was_stopped and "stops" not in self.activities and not self.has_ended():
            until = time.monotonic() + SOON
            while not self.is_stopped() and time.monotonic() < until and not self.has_ended():
                time.sleep(0.005)
            if not self.is_stopped() and not self.has_ended():
                raise Failure("a SIGSTOP is lost")
        if was_stopped and not self.has_ended():
            os.kill(self.pid, signal.SIGCONT)
        beats, until = self.word(BEATS), time.monotonic() + BEAT_TIMEOUT
        while self.word(BEATS) == beats and not self.has_ended():
            if time.monotonic() > until:
                raise Failure("the target is left stopped" if self.is_stopped() else "the target hangs")
            time.sleep(0.01)
        if self.remains():
            raise Failure(f"left in the process: {self.remains()[0]}")

    def end_status(self):
        """Waits for the end, and returns the status."""
        try:
            return self.process.wait(timeout=max(0, self.started + self.seconds - time.monotonic()) + 90 * SLOWNESS)
        except subprocess.TimeoutExpired:
            states = {state for state, _ in self.threads().values()}
            raise Failure(f"the target does not end, threads are in {sorted(states)}") from None

    def finish(self):
        """Waits for the end, and checks what the target says."""
        status = self.end_status()
        if status or not self.last_line().startswith("done"):
            raise Failure(f"the target ended with status {status}: {self.last_line()}")

    def end_killed(self):
        """Checks the end after a SIGKILL: the process ends at once, and its children go on until they end."""
        until = time.monotonic() + 90 * SLOWNESS
        while self.exists_group():
            if time.monotonic() > until:
                raise Failure("a SIGKILL does not end the target, or a child of it hangs")
            time.sleep(0.01)
        if self.process.returncode != -signal.SIGKILL or self.last_line().startswith("BROKEN"):
            raise Failure(f"the target ended with status {self.process.returncode}: {self.last_line()}")

    def exists_group(self):
        """True if the target or a child of it has not ended."""
        has_ended = self.has_ended()
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return not has_ended
        return True

    def remove(self):
        """Ends the target by force, with its children."""
        for pid in [*children(self.pid), self.pid] if not self.has_ended() else []:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        self.process.wait()
        self.board_path.unlink(missing_ok=True)
