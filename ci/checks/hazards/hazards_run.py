"""The merges of one target of hazards.py, from outside or from within, and the bullies that disturb them."""

import collections
import dataclasses
import pathlib
import random
import re
import signal
import subprocess
import time

import hazards_merge
from hazards_kills import KILLS, kill_of
from hazards_merge import Merge
from hazards_target import IS_EMULATED, NOTHING, SLOWNESS, Failure, Target, die_with_parent

STOPPED = "stop"
# Modes after which epoll_wait may fail with EINTR, and those after which all calls may that only a handler interrupts.
# SIGCONT, which the kernel else drops if it is ignored, wakes any thread while the first one is traced.
STOPPING = {"stop", "storm", "terminal", "continue", "attach", "freeze", "kill-tracer", "kill-both"}
LOSING = {"kill-tracer", "kill-both"}
# Without `guards`, which is not for a program that makes guard pages writable.
FIXES = ["flags", "empties", "priming", "flags,empties", "flags,empties,priming"]
PAUSES_MS = [1, 3, 5, 10, 20, 50]
# With which a merge has pieces even on a busy machine, so that it can be killed in each step of them.
LONG_PAUSES_MS = [50, 500, 10_000]
# In an emulated machine, stopping many threads takes half a second.
PAUSE_SLOWNESS = 100 if IS_EMULATED else 1
# Seconds into a merge; it would take long to wait for the middle of a long one.
LATEST_KILL = 3
# Of so many disturbances that may be a SIGKILL, one is.
PATIENCE = 8


@dataclasses.dataclass
class Run:
    """What is common to all merges of one target."""

    tested: str
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
    # How many merges ended with each exit status.
    statuses: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    # The kills, each as it stands in the results.
    kills: list = dataclasses.field(default_factory=list)

    def merges(self):
        return sum(self.statuses.values())

    def counted(self):
        """Returns the number of merges that count for --merges."""
        return self.merges()

    def start(self, activities, seconds, options=()):
        """Starts the target."""
        is_strict = not set(self.bully) & STOPPING and not self.adopts
        flags = {"--strict": is_strict, "--adopt": self.adopts, "--loses-tracer": bool(set(self.bully) & LOSING)}
        options = [*options, *(flag for flag, is_set in flags.items() if is_set)]
        return Target(self.room, activities, self.seed, seconds, options)

    def finish(self, target):
        """Waits for the end of the target, and checks it."""
        target.finish()

    def start_bully(self, mode, target, seconds, vmarea=0):
        """Starts the bully for some seconds."""
        command = [self.room / "bully", mode, str(target.pid), target.board_path, str(self.random.randrange(1 << 30)),
                   f"{seconds:.4f}", str(vmarea)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)

    def choose_modes(self):
        """Returns what the bully does during a merge."""
        if not self.bully:
            return []
        modes = self.random.sample(self.bully, self.random.randint(1, len(self.bully)))
        # Two modes that stop and continue the process would undo each other's work.
        if STOPPED in modes and {"storm", "terminal", "continue", *KILLS} & set(modes):
            return [STOPPED]
        return modes

    def outputs(self, bullies):
        """Waits for the bullies. Returns what each has said."""
        try:
            outputs = {mode: bully.communicate(timeout=hazards_merge.TIMEOUT)[0] for mode, bully in bullies.items()}
        except subprocess.TimeoutExpired as hang:
            raise Failure(f"the bully {hang.cmd[1]} hangs") from None
        for mode, output in outputs.items():
            if bullies[mode].returncode == 77:
                raise Failure(f"{output.strip()} (bully {mode})")
        return outputs


class Outside(Run):
    """Merges by `vmarea merge`."""

    WAYS = ["move", "copy"]
    MODES = ["stop", "storm", "terminal", "continue", "memory", "attach", "dump", *KILLS, "interrupt", "freeze",
             "shrink", "second"]

    def only_kills(self):
        return bool(self.bully) and set(self.bully) <= set(KILLS)

    def options(self):
        """Returns random options of a merge."""
        pause = self.random.choice(LONG_PAUSES_MS if self.only_kills() else PAUSES_MS) * PAUSE_SLOWNESS
        options = ["--apply", "--max-pause", f"{pause}ms", "--by", self.by]
        options += ["--copy", str(self.random.choice([10, 1000, 100000]))] if self.random.random() < 0.3 else []
        options += ["--fix", self.random.choice(FIXES)] if self.random.random() < 0.2 else []
        return options

    def choose_modes(self):
        # A merge that nobody kills shows how long one takes.
        if self.only_kills() and self.merges() % 16 == 8:
            return []
        modes = super().choose_modes()
        # Of two kills, the second would find nothing.
        kills = [mode for mode in modes if mode in KILLS]
        return [mode for mode in modes if mode not in kills[1:]]

    def start_bullies(self, modes, target, vmarea):
        """Starts the bullies for about as long as a merge takes."""
        bullies = {}
        for mode in modes:
            seconds = self.usual * 1.2 if mode in (STOPPED, "interrupt", *KILLS) else max(0.1, self.usual)
            seconds = min(seconds, LATEST_KILL) if mode in KILLS else seconds
            bullies[mode] = self.start_bully(mode, target, seconds, vmarea)
        return bullies

    def step(self, target):
        """Merges once, while the bully is at work."""
        modes = self.choose_modes()
        begun = time.monotonic()
        merge = Merge(self.tested, target, self.options(), self.room)
        second = Merge(self.tested, target, self.options(), self.room, "second") if "second" in modes else None
        bullies = self.start_bullies([mode for mode in modes if mode != "second"], target, merge.process.pid)
        causes = [*target.activities, *modes]
        try:
            status = merge.wait()
            if status == 0:
                self.usual += (time.monotonic() - begun - self.usual) / 4
            second_status = second.wait() if second else 0
            self.statuses[status] += 1
            outputs = self.outputs(bullies)
        finally:
            for bully in bullies.values():
                bully.kill()
        for output in outputs.values():
            self.kills += kill_of(output, status, merge.output())
        merge.check(status, causes)
        if second:
            second.check(second_status, causes)
        if set(KILLS) & set(modes):
            self.sweep(target, causes)
        target.check(outputs.get(STOPPED, "").strip() == "stop 1")

    def sweep(self, target, causes):
        """Removes what a killed merge has left, when the rest of it has ended."""
        passing = "|".join(["is at work|is traced by", *hazards_merge.messages(causes)])
        until = time.monotonic() + hazards_merge.TIMEOUT
        while True:
            resume = Merge(self.tested, target, ["--resume"], self.room)
            status = resume.wait()
            is_refused = status and re.search(passing, resume.output())
            if not is_refused or time.monotonic() > until:
                return resume.check(status, set(causes) - set(KILLS))
            time.sleep(0.05)


class Within(Run):
    """Merges by the target itself, by vmarea_merge_range."""

    WAYS = ["within"]
    END = "end"
    MODES = ["stop", "storm", "terminal", "continue", "memory", "attach", "dump", "freeze", "shrink", END]
    # An activity with which perhaps no merge joins anything, or a merge ends the target (docs/live.md).
    HINDRANCE = "limits"

    is_killed = False

    def counted(self):
        return self.statuses[0]

    def start(self, activities, seconds, options=()):
        # The first activity runs in the main thread.
        place = self.random.choice([0, len(activities)])
        activities = [*activities[:place], "within", *activities[place:]]
        return super().start(activities, seconds, [*options, "--library", self.tested])

    def choose_modes(self):
        modes = super().choose_modes()
        # A debugger waits for a thread that waits for one that SIGSTOP has stopped (docs/live.md).
        passed_over = {"attach"} if STOPPED in modes else set()
        if self.random.randrange(PATIENCE):
            passed_over.add(self.END)
        return [mode for mode in modes if mode not in passed_over]

    def step(self, target):
        """Lets the target merge for a while, while the bully is at work."""
        modes = self.choose_modes()
        bullies = {mode: self.start_bully(mode, target, self.usual) for mode in modes}
        try:
            time.sleep(self.usual)
            outputs = self.outputs(bullies)
        finally:
            for bully in bullies.values():
                bully.kill()
        self.statuses = target.answers()
        # The end of all threads takes a moment, in which this is called again.
        self.is_killed |= outputs.get(self.END, "").strip() == "end 1"
        if not self.is_killed:
            target.check(outputs.get(STOPPED, "").strip() == "stop 1")

    def finish(self, target):
        if self.is_killed:
            return target.end_killed()
        is_hindered = self.HINDRANCE in target.activities
        if not is_hindered or target.end_status() != -signal.SIGABRT:
            target.finish()
        self.statuses = target.answers()
        if not self.statuses[0] and self.statuses[NOTHING] and not is_hindered:
            raise Failure("no merge has joined anything")
        return None
