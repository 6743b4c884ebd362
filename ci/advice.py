#!/usr/bin/env python3
"""Follow the advice of `vmarea explain` for programs of different habits, and compare it with the result.

For each program, the safe command of the plan is run, and then each command that is not safe. A row shows how many
mappings `explain` promised, how many there are afterwards, and which share of all safe repairs the advice achieved.
usage: ci/advice.py VMAREA FOLDER (use ci/advice.sh)
"""

import json
import os
import signal
import subprocess
import sys
import time

VMAREA, FOLDER = sys.argv[1:]
N = "2200"
# Habits of the program in tests/support/src/boundaries.
HABITS = [
    "anon_vma_committed",  # random commits in a reservation
    "anon_vma_mapped",  # streams that grow between others
    "page_offset",  # buffers moved by mremap
    "guard_protected",  # fibers with mprotect guards
    "guard_touched_apart",  # stacks that are used after their guards are made
    "flags_dontfork",  # buffers for RDMA
    "flags_decommitted",  # empty reservations of an allocator
    "anon_vma_shared_with_child",  # pages shared since a fork
    "protection_exec",  # write-xor-execute, as a JIT compiler
    "file_different",  # one mapping per file
    "flags_hugepage",  # huge pages for some parts
    "several_habits",
]
# Real programs: a name and a command that waits.
PYTHON = "import threading,time\nfor _ in range(200): threading.Thread(target=time.sleep,args=(60,)).start()\n"
REAL = [
    ("python_threads", ["python3", "-c", PYTHON + "print(flush=True)"]),
    ("http_server", ["python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]),
]


def run(arguments):
    """Runs vmarea; returns the status and the JSON result."""
    done = subprocess.run([VMAREA, *arguments, "--json", "-"], capture_output=True, text=True)
    if done.returncode not in (0, 4):
        sys.exit(f"{arguments}: {done.stderr}")
    return json.loads(done.stdout)


def follow(name, pid):
    """Follows each command of the plan; returns False if a count is wrong."""
    right, rows = True, 0
    while True:
        report = run(["explain", "-p", str(pid)])
        plan = report["plan"]
        stages = [plan["safe"], *plan["not_safe"]]
        stage = next((stage for stage in stages if stage["command"]), None)
        if stage is None:
            break
        words = stage["command"].split()[1:]
        journal = ["--journal", os.path.join(FOLDER, "journal")]
        run([*words, *journal, "--max-pause", "1s"])
        after = run(["explain", "-p", str(pid)])
        left, promised = after["mappings"], stage["after"]
        within = abs(left - promised) <= 0.02 * promised
        share = ""
        if stage is plan["safe"]:
            # What the safe repairs still save afterwards is what the advice missed.
            missed = after["plan"]["safe"]["before"] - after["plan"]["safe"]["after"]
            achieved = stage["before"] - left
            best = achieved + missed
            share = f"{100 * achieved / best:.0f} %"
            within = within and achieved >= 0.9 * best
        right = right and within and left < stage["before"]
        fixes = ",".join(stage["fixes"])
        row = f"{name:<27} {fixes:<13} {stage['before']:>7} {promised:>8} {left:>7} {share:>6}"
        print(row if within else row + "  WRONG", flush=True)
        rows += 1
        if left >= stage["before"]:
            break
    if rows == 0:
        print(f"{name:<27} {'none':<13} {report['mappings']:>7} {report['mappings']:>8} {report['mappings']:>7}")
    return right


def main():
    binary = os.path.join(FOLDER, "boundaries")
    source = os.path.join(os.path.dirname(__file__), "../tests/support/src/boundaries/main.c")
    subprocess.run(["cc", "-O1", "-o", binary, source], check=True)
    print(f"{'PROGRAM':<27} {'REPAIRS':<13} {'BEFORE':>7} {'PROMISED':>8} {'AFTER':>7} {'SHARE':>6}")
    right = True
    commands = [(name, [binary, name, N, FOLDER]) for name in HABITS] + REAL
    for name, command in commands:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            words = child.stdout.readline().split()
            if name in HABITS and not words:
                print(f"{name:<27} cannot be made here")
                continue
            # A habit may be that of a child.
            pid = int(words[0]) if name in HABITS else child.pid
            time.sleep(0.2)
            right = follow(name, pid) and right
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    sys.exit(0 if right else 1)


main()
