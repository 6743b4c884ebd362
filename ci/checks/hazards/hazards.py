"""Merges a program that does at random what a merge could disturb, and checks both.

usage: see ci/run hazards. The first argument is the folder with the compiled programs `target` and `bully`.
"""

import argparse
import collections
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import hazards_identity
from hazards_results import record, summarize
from hazards_run import Outside, Run, Within
from hazards_target import Failure, die_with_parent

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


def spin(load):
    """Starts processes that keep the processors busy."""
    return [subprocess.Popen(["sh", "-c", "while :; do :; done"], preexec_fn=die_with_parent) for _ in range(load)]


def merge_target(run, activities, seconds, most, load=0):
    """Starts a target and merges it until it ends; returns a failure, or None."""
    spinners = spin(load)
    target = None
    try:
        target = run.start(activities, seconds)
        run.activities = target.activities
        while not target.is_ending() and run.counted() < most:
            run.step(target)
        run.finish(target)
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
    form = Within if arguments.by in Within.WAYS else Outside
    seed, usual = arguments.seed, Run.usual
    while merges < arguments.merges:
        chance = random.Random(seed)
        activities = arguments.only or ["pages", "random"]
        bully = arguments.bully
        if bully is None:
            bully = chance.sample(form.MODES, chance.choice([0, 1, 1, 2]))
        by = arguments.by or chance.choice(form.WAYS)
        run = form(arguments.vmarea, room, seed, chance, by, bully, usual=usual)
        failure = merge_target(run, activities, arguments.seconds, arguments.merges - merges, arguments.load)
        record(arguments, run, activities, arguments.load, failure)
        merges += max(1, run.counted())
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
            run = Outside(arguments.vmarea, room, seed, chance, arguments.by or "move", bully, adopts=True)
            failure = merge_target(run, row.activities, arguments.seconds, arguments.merges - merges, row.load)
            record(arguments, run, row.activities, row.load, failure)
            merges += max(1, run.counted())
            seed += 1
        found.append((row.name, f"found after {merges} merges: {failure}" if failure else "not found"))
    for name, verdict in found:
        print(f"{name:48}  {verdict}")
    count = sum(verdict != "not found" for _, verdict in found)
    return len(found) - count, count


def names(text):
    return [name for name in text.split(",") if name]


def parse():
    """Returns the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("room", type=pathlib.Path)
    parser.add_argument("--vmarea", required=True)
    parser.add_argument("--identity")
    parser.add_argument("--merges", type=int, default=200)
    parser.add_argument("--by", choices=[*Outside.WAYS, *Within.WAYS])
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1000000)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--only", type=names)
    parser.add_argument("--bully", type=names)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--results", required=True)
    parser.add_argument("--known", action="store_true")
    arguments = parser.parse_args()
    modes = (Within if arguments.by in Within.WAYS else Outside).MODES
    unknown = set(arguments.bully or []) - set(modes)
    if unknown:
        sys.exit(f"hazards: no mode {', '.join(unknown)}; there are {', '.join(modes)}")
    if arguments.known and arguments.by in Within.WAYS:
        sys.exit("hazards: --known is for merges from outside")
    of_file, of_sources = hazards_identity.of_file, hazards_identity.of_sources
    arguments.identity = arguments.identity or (of_file(arguments.vmarea) if arguments.known else of_sources())
    return arguments


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory(dir=arguments.room) as folder:
        room = pathlib.Path(folder)
        for program in ("target", "bully"):
            os.link(arguments.room / program, room / program)
        passed, failed = (known if arguments.known else search)(arguments, room)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed != 0)


main()
