"""Runs test suites of other projects natively and under `vmarea run`, and compares the outcomes.

usage: suites.py [--share] [--only TEXT] [--list] [--keep FOLDER] SUITE...
Exits with 3 if anything differs from the kernel, or if a program ends differently than natively and is not an exception.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile

import runs
from runs import Limits, Run

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_EXCEPTIONS = 10
COLUMNS = "{:12}{:>6}{:>28}{:>22}{:>15}{:>11}{:>8}"

# A subset that covers each kind of call within seconds.
SHARE = {
    "kselftest": {
        "mm/map_fixed_noreplace", "mm/mremap_dontunmap", "mm/mremap_test", "mm/mlock2-tests", "mm/mkdirty",
        "mm/map_populate", "mm/mdwe_test", "mm/memfd_secret", "mm/mseal_test", "mm/seal_elf",
        "mincore/mincore_selftest",
    },
    "stress-ng": {"brk", "madvise", "mlock", "mmapfixed", "mremap", "shm-sysv", "stackmmap", "vm-addr"},
}

# Number of operations of a stressor, if the default takes too long or tests too little.
OPERATIONS = 40
OPERATIONS_OF = {
    "bigheap": 200, "brk": 4000, "env": 4, "malloc": 20000, "stack": 10, "userfaultfd": 400, "vm-segv": 100,
    "mlockmany": 2, "mmapmany": 2, "shm": 4, "tmpfs": 4, "dev-shm": 4, "swap": 4, "msyncmany": 4,
}
OPTIONS_OF = {
    "bigheap": ["--bigheap-growth", "64k"],
    "mmap": ["--mmap-bytes", "16m"],
    "mremap": ["--mremap-bytes", "8m"],
    "vm": ["--vm-bytes", "16m"],
    "vm-addr": ["--vm-addr-method", "all"],
    "vm-rw": ["--vm-rw-bytes", "4m"],
    "vm-splice": ["--vm-splice-bytes", "1m"],
    "shm": ["--shm-bytes", "4m"],
    "shm-sysv": ["--shm-sysv-bytes", "4m"],
    "msync": ["--msync-bytes", "4m"],
}

LIMITS = {
    "kselftest": Limits(60, 240, 240),
    "stress-ng": Limits(90, 90, 240),
    "ltp": Limits(400, 400, 240),
}


def lines(name):
    with open(os.path.join(HERE, name)) as file:
        return [line.strip() for line in file if line.strip() and not line.startswith("#")]


def reasons(name):
    """Reads lines of the form `SUITE NAME: REASON` into a dictionary."""
    found = {}
    for line in lines(name):
        run, _, reason = line.partition(": ")
        suite, _, program = run.partition(" ")
        found[suite, program] = reason
    return found


def kselftest(folder):
    known = set()
    for line in lines("kselftest"):
        words, settings = line.split(), {}
        while "=" in words[0]:
            setting, _, value = words.pop(0).partition("=")
            settings[f"/proc/sys/vm/{setting}"] = value
        place, program, *arguments = words
        known.add(f"{place}/{program}")
        path = os.path.join(folder, place, program)
        name = " ".join([f"{place}/{program}", *arguments])
        if os.access(path, os.X_OK):
            yield Run("kselftest", name, [path, *arguments], os.path.join(folder, place), settings)
        else:
            print(f"suites: kselftest: {name} was not built", flush=True)


def stress_ng(_folder):
    said = subprocess.run(["stress-ng", "--class", "vm?"], capture_output=True, text=True, check=False)
    names = (said.stdout + said.stderr).partition("stressors: ")[2].split()
    if not names:
        sys.exit("suites: stress-ng does not tell its stressors of the class vm")
    for name in names:
        operations = OPERATIONS_OF.get(name, OPERATIONS)
        command = ["stress-ng", f"--{name}", "1", f"--{name}-ops", str(operations), "--timeout", "10"]
        yield Run("stress-ng", name, command + OPTIONS_OF.get(name, []))


# The calls in runtest/syscalls that create, change or report mappings, or that affect such calls.
LTP_CALLS = (
    "brk sbrk clone3 execve fork vfork get_mempolicy getrlimit setrlimit madvise mbind memfd_create migrate_pages mincore "
    "mlock mlock2 mlockall mmap move_pages mprotect mremap mseal msync munlock munlockall munmap pkey process_madvise prctl "
    "process_vm_readv process_vm_writev remap_file_pages set_mempolicy shmat shmctl shmdt shmget userfaultfd vmsplice"
).split()


def ltp(folder):
    programs = os.path.join(folder, "testcases", "bin")
    os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
    os.environ["LTPROOT"] = folder
    # Tests with a fixed duration run for a tenth of it; under a tracer all tests have more time.
    os.environ["LTP_RUNTIME_MUL"] = "0.1"
    os.environ["LTP_TIMEOUT_MUL"] = "10"
    for listed in ("mm", "hugetlb", "syscalls", "syscalls-ipc"):
        path = os.path.join(folder, "runtest", listed)
        if not os.path.exists(path):
            continue
        with open(path) as file:
            entries = [line.split(None, 1) for line in file if line.strip() and not line.startswith("#")]
        for name, command in entries:
            program = command.split()[0]
            if listed.startswith("syscalls") and program.rstrip("0123456789") not in LTP_CALLS:
                continue
            if os.access(os.path.join(programs, program), os.X_OK):
                yield Run("ltp", name, ["bash", "-c", command.strip()])


SUITES = {"kselftest": kselftest, "ltp": ltp, "stress-ng": stress_ng}


def chosen(suite, folder, options):
    """Returns the runs of a suite, without those in `left-out`."""
    left_out = {program for listed, program in reasons("left-out") if listed == suite}
    for run in SUITES[suite](folder):
        words = {run.name, run.name.split()[0], os.path.basename(run.command[-1].split()[0])}
        if words & left_out:
            continue
        if options.share and not words & SHARE.get(suite, set()):
            continue
        if options.only and options.only not in run.name:
            continue
        yield run


def judge(result, exceptions):
    """Returns the verdict, and the reason if an exception applies."""
    run = result.run
    if not result.failed:
        return "ok", ""
    reason = exceptions.get((run.suite, run.name), "")
    return ("excepted", reason) if reason and result.excusable else ("FAILED", "")


def say(result, exceptions):
    """Prints the details of a failed run, or one line for any other run."""
    verdict, excepted = judge(result, exceptions)
    run = result.run
    counts = f"{result.number('calls'):>9} calls {result.number('opaque'):>7} opaque"
    print(f"  {run.suite:10} {run.name:44} {result.seconds:6.1f} s {counts}  {verdict}", flush=True)
    if not result.failed:
        return
    if excepted:
        print(f"      excepted: {excepted}")
    if result.trouble:
        print(f"      {result.trouble}")
    if result.other_outcome:
        print(f"      ended with {result.recorded}, natively with {' / '.join(map(str, result.native))}")
    if result.differences:
        print(f"      {result.differences} differences")
        for group in result.report["differences"]:
            print(f"      {group['count']} × {group['cause']}")
            for key, value in (group["shown"] or [{}])[0].items():
                if value is not None and key != "cause":
                    print(f"        {key}: {value}")
    sys.stdout.flush()


def table(results):
    print(COLUMNS.format("suite", "runs", "with differences (total)", "opaque", "other outcome", "undecided", "lost"))
    for suite in SUITES:
        of_suite = [result for result in results if result.run.suite == suite]
        if not of_suite:
            continue

        def total(key, of_suite=of_suite):
            return sum(result.number(key) for result in of_suite)

        differing = [result for result in of_suite if result.differences]
        others = [result for result in of_suite if result.other_outcome or result.trouble]
        opaque = f"{total('opaque'):,} ({total('opaque') * 100 / max(1, total('calls')):.2f} %)"
        differ = f"{len(differing)} ({total('differences'):,})"
        print(COLUMNS.format(suite, len(of_suite), differ, opaque, len(others), f"{total('undecided'):,}", f"{total('lost'):,}"))


def summary(results, exceptions):
    print()
    table(results)
    failed = [result for result in results if result.failed]
    for result in failed:
        key = result.run.suite, result.run.name
        what = []
        if result.differences:
            what.append(f"{result.differences} differences")
        if result.other_outcome:
            what.append(f"ended with {result.recorded}, natively with {result.native[0]}")
        if result.trouble:
            what.append(result.trouble)
        mark = judge(result, exceptions)[0]
        print(f"{mark:9} {' '.join(key)}: {'; '.join(what)}")
    names = {(result.run.suite, result.run.name) for result in results if not result.failed}
    for key in exceptions.keys() & names:
        print(f"needless  {' '.join(key)}: is an exception, and came out equal")
    return any(judge(result, exceptions)[0] == "FAILED" for result in failed)


def main():
    parser = argparse.ArgumentParser()
    for option in ("--share", "--list"):
        parser.add_argument(option, action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--keep")
    parser.add_argument("suites", nargs="+", metavar="SUITE=FOLDER")
    options = parser.parse_args()
    exceptions = reasons("exceptions")
    if len(exceptions) > MOST_EXCEPTIONS:
        sys.exit(f"suites: {len(exceptions)} exceptions, and {MOST_EXCEPTIONS} are the most")
    if options.keep:
        os.makedirs(options.keep, exist_ok=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    results = []
    with tempfile.TemporaryDirectory(prefix="suites.") as room:
        os.chmod(room, 0o755)
        os.environ["SUITES_ROOM"] = room
        for word in options.suites:
            suite, _, folder = word.partition("=")
            for run in chosen(suite, folder, options):
                if options.list:
                    print(suite, run.name)
                    continue
                result = runs.measure(run, os.environ["VMAREA"], LIMITS[suite], options.keep)
                say(result, exceptions)
                results.append(result)
    if options.list:
        return 0
    if not results:
        sys.exit("suites: there was nothing to run")
    return 3 if summary(results, exceptions) else 0


sys.exit(main())
