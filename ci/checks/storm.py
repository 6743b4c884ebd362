"""Measures what recording costs a program that makes memory calls as fast as it can, and that it records exactly.

Each pair runs the program (tests/programs/storm.c) alone and recorded, in alternating order. Prints for each storm and
method the median of the ratios of wall-clock time and of processor time (the recorder's included), with the interval
that contains the median of the population with a probability of 95 %. Fails if observing takes more than 3 times as
long as the program alone in the median, if a call was lost, or if a replay differs from the kernel. Needs root.

usage: ci/run storm -- [--share] [PAIRS]     --share: two storms, short, and only observed
       VMAREA=path/of/vmarea takes that binary instead of building one
"""

import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import prepare

# Largest median of the ratio of wall-clock time, observed to alone.
MOST = 3.0
# Kind, threads, and rounds, which make about a second alone. A round of mmap and of mprotect makes two calls, one of
# mixed six.
STORMS = [("mmap", 1, 600_000), ("mprotect", 1, 500_000), ("mixed", 1, 60_000), ("mmap", 2, 300_000),
          ("mixed", 2, 30_000)]
# Tracing takes more than ten times as long as the program alone, so few pairs suffice to see it.
TRACED_PAIRS = 3


def run(command, room):
    """Runs a command, which must succeed; returns its wall-clock and processor seconds."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, cwd=room, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE)
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"storm: {' '.join(map(str, command))}: wait status {status}\n{errors.decode()}")
    return time.perf_counter() - begun, usage.ru_utime + usage.ru_stime


def summary(ratios):
    """Returns the median and its 95 % interval, by order statistics, as text."""
    ordered, count = sorted(ratios), len(ratios)
    low = max(int((count - 1.96 * math.sqrt(count)) / 2), 1)
    return f"{statistics.median(ordered):6.2f} ({ordered[low - 1]:.2f} to {ordered[count - low]:.2f})"


def differences(vmarea, trace):
    """Replays a trace; returns what is wrong with it, and the number of calls."""
    replay = subprocess.run([vmarea, "replay", "--policy", "linux", "--json", trace], capture_output=True,
                            check=False)
    try:
        report = json.loads(replay.stdout)
    except ValueError:
        sys.exit(f"storm: replay: {replay.stderr.decode()}")
    verify, wrong = report["verify"], []
    for what, number in (("differences", verify["differences"]), ("lost", report["lost"]),
                         ("undecided", verify["undecided"])):
        if number:
            wrong.append(f"{number} {what}")
    if not verify["vmas_compared"]:
        wrong.append("nothing was compared")
    return wrong, report["calls"]


def measure(vmarea, room, storm, method, pairs):
    """Measures one storm by one method; prints a row, and returns what is wrong."""
    kind, threads, rounds = storm
    program = ["./storm", kind, str(threads), str(rounds)]
    trace = room / "storm.vmtrace"
    recorded = [vmarea, "record", "--by", method, "-o", trace, "--", *program]
    walls, busy = [], []
    for number in range(pairs):
        # The two alternate in running first, so that neither always runs with warmer caches.
        first, second = (program, recorded) if number % 2 else (recorded, program)
        times = {id(command): run(command, room) for command in (first, second)}
        (wall, cpu), (wall_alone, cpu_alone) = times[id(recorded)], times[id(program)]
        walls.append(wall / wall_alone)
        busy.append(cpu / cpu_alone)
    wrong, calls = differences(vmarea, trace)
    least = (6 if kind == "mixed" else 2) * threads * rounds
    if calls < least:
        wrong.append(f"only {calls} of {least} calls")
    median = statistics.median(walls)
    if method == "observing" and median > MOST:
        wrong.append(f"slower than {MOST} times")
    print(f"{kind:9}{threads:8}  {method:10}{calls:9} {pairs:4}  {summary(walls):24}{summary(busy):24}"
          f"{', '.join(wrong) or 'ok'}", flush=True)
    return wrong


def main():
    share = sys.argv[1:2] == ["--share"]
    pairs = int((sys.argv[1 + share :] or [5 if share else 21])[0])
    prepare.needs_root("a command can be observed only by root")
    prepare.packages()
    vmarea = prepare.program(profile="packaged")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["gcc", "-O2", "-Wall", "-pthread", "-o", f"{folder}/storm", "tests/programs/storm.c"], check=True)
        return measure_all(vmarea, pathlib.Path(folder), pairs, share)


def measure_all(vmarea, room, pairs, share):
    """Prints a row for each storm and method; returns the exit status."""
    print(f"{'storm':9}{'threads':>8}  {'method':10}{'calls':>9} {'pairs':>4}  {'wall':24}{'processor':24}", flush=True)
    failed = False
    for kind, threads, rounds in STORMS[2:4] if share else STORMS:
        storm = (kind, threads, rounds // 2 if share else rounds)
        failed |= bool(measure(vmarea, room, storm, "observing", pairs))
        if not share:
            failed |= bool(measure(vmarea, room, storm, "tracing", min(pairs, TRACED_PAIRS)))
    return 3 if failed else 0


sys.exit(main())
