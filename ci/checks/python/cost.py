"""Compares the cost of a replay in Python with that of the program: instructions, and processor time in pairs.

The instructions decide, because other work on the machine does not change them: the call of `vmarea.replay` may need
at most 1.05 times those of the whole program. What Python needs to start is printed, but not part of the call.

usage: ci/checks/python/cost.py VMAREA TRACE [PAIRS]
"""

import os
import re
import statistics
import subprocess
import sys

LIMIT = 1.05
BEGIN = "import sys, vmarea\n"
CALL = "vmarea.replay(sys.argv[1], ['linux'])\n"


def instructions(*command):
    """Returns the number of instructions of a command."""
    counted = subprocess.run(
        ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", *command],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    found = re.search(r"I\s+refs:\s+([\d,]+)", counted.stderr)
    if not found or counted.returncode not in (0, 3):
        sys.exit(f"cost: nothing counted: {counted.stderr[-2000:]}")
    return int(found[1].replace(",", ""))


def seconds(*command):
    """Returns the processor time of a command."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):
        sys.exit(f"cost: {command[0]} has ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def main():
    program, trace, *pairs = sys.argv[1:]
    replay = [program, "replay", trace, "--policy", "linux", "--json"]
    python = [sys.executable, "-c"]
    of_program = instructions(*replay)
    start = instructions(*python, BEGIN, trace)
    of_python = instructions(*python, BEGIN + CALL, trace) - start
    ratio = of_python / of_program
    print(f"cost: instructions: program {of_program:,}, call in Python {of_python:,}: {ratio:.3f}; start of Python {start:,}")

    ratios = []
    for number in range(int(pairs[0]) if pairs else 10):
        both = [("program", replay), ("python", [*python, BEGIN + CALL, trace]), ("start", [*python, BEGIN, trace])]
        # Which comes first changes from pair to pair.
        used = {name: seconds(*command) for name, command in (both if number % 2 else both[::-1])}
        ratios.append((used["python"] - used["start"]) / used["program"])
    low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
    print(f"cost: processor time, {len(ratios)} pairs: median {middle:.3f}, from {low:.3f} to {high:.3f}")
    if ratio > LIMIT:
        sys.exit(f"cost: a replay in Python needs {ratio:.3f} times the instructions of the program: more than {LIMIT}")


main()
