"""Makes the measurements of ci/run pauses.

usage: pauses.py ROOM [--new FILE] [--old FILE] [--threads N,...] [--pairs N] [--seconds N]
                 [--mappings N]
The folder ROOM contains the program `pauses`.
"""

import argparse
import collections
import json
import math
import mmap
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import time

# What the 95th percentile of the standstill may be above that without a merge, and the merge's work relative to the
# old tool's.
MOST_ABOVE_MS, MOST_WORK = 5.0, 1.2
# For so many threads it is checked; for more, the tables say how it is.
CHECKED_THREADS = 100
ASKED_MS = 5
# How often a tool may refuse a pause before a longer one is asked for.
REFUSALS = 3
# struct board of pauses.c: the words of its header, and sizes in bytes.
READY, STOP, COUNT = range(3)
HEADER, BOARD_BYTES = 24, 24 + 16 * 500000
WITHOUT, NEW, OLD = "without", "new", "old"

# One run: standstills in ms during the merge, the longest first; number of pieces; the longest pause in ms that the
# tool reports; number of mappings afterwards; wall-clock time, and processor time of the tool and the target, in ms.
Run = collections.namedtuple("Run", "standstills pieces said left wall tool target")


class Refused(Exception):
    """The tool cannot keep the pause, and names another one."""

    def __init__(self, milliseconds):
        super().__init__()
        self.milliseconds = milliseconds


def board(room):
    """Returns the path of a new board."""
    path = room / "board"
    path.unlink(missing_ok=True)
    path.touch()
    os.truncate(path, BOARD_BYTES)
    return path


class Target:
    """A running program `pauses`."""

    def __init__(self, room, threads, mappings):
        path = board(room)
        with open(path, "r+b") as file:
            self.board = mmap.mmap(file.fileno(), BOARD_BYTES)
        self.process = subprocess.Popen([room / "pauses", path, str(threads), str(mappings)], stdout=subprocess.PIPE)
        self.pid = self.process.pid
        while not self.word(READY):
            if self.process.poll() is not None:
                sys.exit("pauses: the target did not start")
            time.sleep(0.01)
        # Until all threads have started.
        time.sleep(0.3)

    def word(self, at):
        return struct.unpack_from("Q", self.board, 8 * at)[0]

    def standstills(self, begin, end):
        """Returns the standstills that overlap an interval, in ms."""
        found = (struct.unpack_from("QQ", self.board, HEADER + 16 * i) for i in range(self.word(COUNT)))
        return [length / 1e6 for at, length in found if at < end and at + length > begin]

    def mappings(self):
        return pathlib.Path(f"/proc/{self.pid}/maps").read_text().count("\n")

    def finish(self):
        """Ends the target, which checks its memory."""
        struct.pack_into("Q", self.board, 8 * STOP, 1)
        try:
            said = self.process.communicate(timeout=30)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            sys.exit("pauses: the target does not end")
        if self.process.returncode:
            sys.exit(f"pauses: the target ended with status {self.process.returncode}: {said.decode()}")


def checked(command):
    """Runs a command; returns what it prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                          check=False)
    if done.returncode and (named := re.search(r"--max-pause (\d+)ms permits it", done.stdout)):
        raise Refused(int(named[1]))
    if done.returncode:
        sys.exit(f"pauses: {' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def merge(tool, pid, pause):
    return [tool, "merge", "-p", str(pid), "--apply", "--max-pause", f"{pause}ms"]


def work(options, threads, tool, pause):
    """Returns the processor time in ms that the tool and the target need if no thread of the target does anything."""
    program = [options.room / "pauses", board(options.room), str(threads), str(options.mappings)]
    said = checked([*program, *merge(tool, "@", pause)])
    return [int(word) / 1e6 for word in said.splitlines()[-1].split()]


def run(options, threads, tool, pause, like):
    """Measures one target, merged by a tool, or not merged for as long as other runs took in the median."""
    used = work(options, threads, tool, pause) if tool else (0, 0)
    target = Target(options.room, threads, options.mappings)
    report = {"pieces": round(middle(like, "pieces")), "longest_pause_us": 0}
    try:
        begin = time.monotonic_ns()
        if tool:
            said = checked([*merge(tool, target.pid, pause), "--json"])
            report = json.loads(said[said.index("{"):])
        else:
            time.sleep(middle(like, "wall") / 1e3)
        end = time.monotonic_ns()
        left = target.mappings()
        # A last standstill is recorded when the thread goes on.
        time.sleep(0.05)
        standstills = sorted(target.standstills(begin, end), reverse=True)
    finally:
        target.finish()
    return Run(standstills, report["pieces"], report["longest_pause_us"] / 1e3, left, (end - begin) / 1e6, *used)


def measure(options, threads):
    """Measures all pairs for a number of threads; returns the pause and the runs of each kind."""
    tools = {NEW: options.new} | ({OLD: options.old} if options.old else {}) | {WITHOUT: None}
    order, pause = list(tools), ASKED_MS
    runs = {kind: [] for kind in order}
    pair, refusals, begun = 0, 0, time.monotonic()
    while pair == 0 or pair < options.pairs and time.monotonic() - begun < options.seconds:
        try:
            done = {}
            # Each is the first in turn. The run without a merge lasts as long as those with one.
            for kind in order[pair % len(order):] + order[:pair % len(order)]:
                like = [result for of in order[:-1] for result in runs[of]] or list(done.values())
                done[kind] = run(options, threads, tools[kind], pause, like)
        except Refused as refused:
            refusals += 1
            print(f"threads {threads}: {pause} ms refused, {refused.milliseconds} ms named", file=sys.stderr)
            if refusals % REFUSALS == 0:
                # All runs have the same pause. It is not quite the shortest, so that it is rarely refused.
                pause = max(pause + 1, math.ceil(refused.milliseconds * 1.25))
                runs, pair = {kind: [] for kind in order}, 0
            continue
        for kind, result in done.items():
            runs[kind].append(result)
        pair += 1
    return pause, {kind: runs[kind] for kind in order[-1:] + order[:-1]}


def middle(runs, name):
    """Returns the median of a field; 0 if there are no runs."""
    return statistics.median(getattr(result, name) for result in runs) if runs else 0


def percentile(values):
    """Returns the 95th percentile: the smallest value that is not below 95 % of them; 0 if there is none."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1] if values else 0.0


def median(values, digits=2):
    """Returns the median and its 95 % interval, by order statistics, as text."""
    low, high = interval(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def interval(values):
    ordered, count = sorted(values), len(values)
    low = max(int((count - 1.96 * math.sqrt(count)) / 2), 1)
    return ordered[low - 1], ordered[count - low]


def of_pieces(result):
    """Returns the 95th percentile of as many of the longest standstills as there were pieces."""
    return percentile(result.standstills[:result.pieces])


def longest(result):
    return max(result.standstills, default=0.0)


def table(runs):
    """Prints what was measured in each kind of run."""
    rows = [
        ("pieces", lambda r: r.pieces, 0),
        ("standstills", lambda r: len(r.standstills), 0),
        ("  95th percentile, ms", lambda r: percentile(r.standstills), 2),
        ("  95th, one for each piece", of_pieces, 2),
        ("  the longest, ms", longest, 2),
        ("  the longest, as reported", lambda r: r.said, 2),
        ("  their sum, % of the time", lambda r: sum(r.standstills) / r.wall * 100, 1),
        ("wall-clock time, ms", lambda r: r.wall, 0),
        ("processor, the tool, ms", lambda r: r.tool, 0),
        ("processor, the target, ms", lambda r: r.target, 0),
        ("mappings afterwards", lambda r: r.left, 0),
    ]
    print(f"{'':30}" + "".join(f"{kind:28}" for kind in runs))
    for name, value, digits in rows:
        print(f"{name:30}" + "".join(f"{median(list(map(value, results)), digits):28}" for results in runs.values()))
    for name, values in (
        ("all runs: 95th of all, ms", lambda rs: [s for r in rs for s in r.standstills]),
        ("  95th, one for each piece", lambda rs: [s for r in rs for s in r.standstills[:r.pieces]]),
        ("  95th of the longest, ms", lambda rs: list(map(longest, rs))),
    ):
        print(f"{name:30}" + "".join(f"{percentile(values(results)):<28.2f}" for results in runs.values()))


def pairwise(runs, one, other, combine):
    return [combine(a, b) for a, b in zip(runs[one], runs[other])]


def judge(threads, runs):
    """Prints the differences and ratios of the pairs; returns what is more than it may be."""
    wrong = []
    for kind in list(runs)[1:]:
        above = pairwise(runs, kind, WITHOUT, lambda a, b: of_pieces(a) - of_pieces(b))
        every = pairwise(runs, kind, WITHOUT, lambda a, b: percentile(a.standstills) - percentile(b.standstills))
        most = pairwise(runs, kind, WITHOUT, lambda a, b: longest(a) - longest(b))
        print(f"{kind} above without, in ms: 95th percentile {median(every)}, one for each piece {median(above)}, "
              f"longest {median(most)}")
        if kind == NEW and threads <= CHECKED_THREADS and interval(above)[1] > MOST_ABOVE_MS:
            wrong.append(f"{threads} threads: the 95th percentile may be more than {MOST_ABOVE_MS} ms above")
    if OLD in runs:
        busy = pairwise(runs, NEW, OLD, lambda a, b: (a.tool + a.target) / (b.tool + b.target))
        wall = pairwise(runs, NEW, OLD, lambda a, b: a.wall / b.wall)
        print(f"new / old: wall-clock time {median(wall)}, processor time {median(busy)}")
        for what, ratios in (("wall-clock time", wall), ("processor time", busy)):
            if threads <= CHECKED_THREADS and statistics.median(ratios) > MOST_WORK:
                wrong.append(f"{threads} threads: {what} is more than {MOST_WORK} of the old tool's")
    return wrong


def main():
    parser = argparse.ArgumentParser(prog="ci/run pauses")
    parser.add_argument("room", type=pathlib.Path)
    parser.add_argument("--new", required=True)
    parser.add_argument("--old")
    parser.add_argument("--threads", default="1,100,1000")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=110)
    parser.add_argument("--mappings", type=int, default=20000)
    options = parser.parse_args()
    wrong = []
    for threads in map(int, options.threads.split(",")):
        begun = time.monotonic()
        pause, runs = measure(options, threads)
        print(f"\n{threads} threads, {options.mappings} mappings, --max-pause {pause}ms, {len(runs[NEW])} of each, "
              f"{time.monotonic() - begun:.0f} s", flush=True)
        table(runs)
        wrong += judge(threads, runs)
    for line in wrong:
        print(f"pauses: FAILED: {line}")
    return 3 if wrong else 0


sys.exit(main())
