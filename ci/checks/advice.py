"""Follows the advice of `vmarea explain` for busy programs and for small ones of 12 habits, and compares the result.

The number of mappings that is promised may differ from the number afterwards by 2 %, the safe command must achieve 90 %
of what all safe repairs achieve, and each program must give right results until its end. Needs root.

For each program, the safe command of the plan is run first, and then each command that is not safe. One row per
command shows the number of mappings that `explain` and the dry run promised, the number afterwards, and the lowest
number that all safe repairs reached.

A busy program makes and unmaps mappings by itself. So the counts are taken close in time: `explain`, the dry run and
the command follow each other directly, the number afterwards is read from /proc as soon as the command ends, and TIME
is the duration of all of this. OWN is the number of mappings that the program itself added between `explain` and the
command, which counts the mappings again before it changes any. The number afterwards is compared with PROMISED + OWN.
SWING is by how much the number of mappings varied in the two seconds before, when nobody repaired anything. It excuses
nothing: a promise may be missed by 2 %.

If a busy program does not get what was promised, it is started once more, and is stopped while the plan is made and
followed.

The lowest number does not depend on the plan: `merge` is repeated, with the other safe repairs and a long pause,
until it saves nothing more.

usage: ci/run advice -- [PROGRAM...]     ci/run advice --list
       VMAREA=path/of/vmarea takes that binary instead of building one
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import prepare

# Seconds for which a program runs.
os.environ["SECONDS_ATTACHED"] = "23"
import attach  # noqa: E402
from attach import LASTS, Program  # noqa: E402

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
# Size of a habit.
SIZE = "2200"
JAVA = "default-jdk-headless"


def runtime(name, process, *command, packages=()):
    return Program([*command, f"{{programs}}/runtimes/{name}", str(LASTS)], process, list(packages))


# Programs that check their own results while they run. Those of ci/run attach are servers under load.
REAL = {
    "ruby-fibers": runtime("fibers.rb", "ruby", "ruby", packages=["ruby"]),
    "php-fibers": runtime("fibers.php", "php", "php", packages=["php-cli"]),
    "python-buffers": runtime("buffers.py", "python3", "python3"),
    "perl-strings": runtime("strings.pl", "perl", "perl", packages=["perl-base"]),
    "java-waves": runtime("Waves.java", "java", "java", "-XX:+UseG1GC", "-Xms8m", "-Xmx512m",
                          "-XX:MaxHeapFreeRatio=10", "-XX:MinHeapFreeRatio=5", packages=[JAVA]),
} | {name: attach.PROGRAMS[name] for name in [
    "redis", "memcached", "postgres", "nginx", "node-http", "go-http", "java-g1", "java-zgc", "ruby", "qemu", "jemalloc",
]}
COLUMNS = "{:<27} {:<19} {:>6} {:>8} {:>7} {:>6} {:>6} {:>5} {:>4} {:>5} {:>8} {:>8}"


def vmarea(room, *arguments):
    """Runs vmarea; returns the JSON result."""
    done = subprocess.run([f"{room}/vmarea", *arguments, "--json"], capture_output=True, text=True)
    if done.returncode not in (0, 4):
        raise RuntimeError(f"vmarea {' '.join(arguments)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def count(pid):
    """Counts the mappings of a process as the kernel does."""
    lines = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    return sum(not line.endswith("[vsyscall]") for line in lines)


def swing(pid):
    """Returns by how much the number of mappings varies while nothing repairs the process."""
    counts = []
    for _ in range(20):
        counts.append(count(pid))
        time.sleep(0.1)
    return max(counts) - min(counts)


def all_safe(room, pid):
    """Makes every safe repair until none saves anything; returns the lowest number of mappings."""
    least = count(pid)
    for _ in range(5):
        vmarea(room, "merge", "-p", str(pid), "--fix", "empties", "--apply", "--max-pause", "1s")
        now = count(pid)
        if now >= least:
            break
        least = now
    return least


@contextlib.contextmanager
def stopped(pid, is_stopped):
    """Stops a process during the block, if asked to."""
    if is_stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if is_stopped:
            os.kill(pid, signal.SIGCONT)


def follow(room, name, pid, is_stopped=False):
    """Follows each command of the plan; returns what was wrong."""
    faults, tried = [], set()
    while True:
        with stopped(pid, is_stopped):
            wrong = follow_next(room, name, pid, tried)
        if wrong is None:
            return faults
        faults += wrong


def follow_next(room, name, pid, tried):
    """Follows the first command of the plan whose repairs were not tried; returns what was wrong, or None."""
    varies = swing(pid)
    begun = time.monotonic()
    report = vmarea(room, "explain", "-p", str(pid))
    plan = report["plan"]
    safe = plan["safe"]
    stages = [stage for stage in [safe, *plan["not_safe"]] if stage["command"] and tuple(stage["fixes"]) not in tried]
    if not stages:
        if not tried:
            print(COLUMNS.format(name, "none", report["mappings"], report["mappings"], "", report["mappings"], "", "", "", varies, "", ""),
                  flush=True)
        return None
    stage = stages[0]
    tried.add(tuple(stage["fixes"]))
    words = [word for word in stage["command"].split()[1:] if word != "--apply"]
    dry = vmarea(room, *words)
    result = vmarea(room, *words, "--apply")
    left = count(pid)
    seconds = time.monotonic() - begun
    own = result["before"] - report["mappings"]
    promised = stage["after"]
    wrong = [] if abs(left - promised - own) <= 0.02 * promised else ["promise"]
    least, share = "", ""
    if stage is safe:
        least = min(left, all_safe(room, pid))
        gained, possible = stage["before"] - left, stage["before"] - least
        if possible > 0:
            share = f"{100 * gained / possible:.0f} %"
            wrong += ["share"] if gained < 0.9 * possible else []
    print(COLUMNS.format(name, ",".join(stage["fixes"]), stage["before"], promised, dry["after"], left, least, share,
                         own, varies, f"{seconds:.1f} s", f"{result['longest_pause_us'] / 1e3:.1f} ms"),
          "WRONG: " + ", ".join(wrong) if wrong else "", flush=True)
    return wrong


def habit(room, name):
    """Follows the advice for a habit; returns what was wrong."""
    command = [f"{room}/built/boundaries", name, SIZE, room]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        words = child.stdout.readline().split()
        if not words:
            print(f"{name:<27} cannot be made here")
            return []
        # A habit may be that of a child.
        return follow(room, name, int(words[0]))
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def real(room, name):
    """Follows the advice for a busy program, which must end well; returns what was wrong."""
    faults = real_once(room, name, is_stopped=False)
    if faults and set(faults) <= {"promise", "share"}:
        # The program's own changes may be the reason.
        faults = real_once(room, name, is_stopped=True)
    return faults


def real_once(room, name, is_stopped):
    """Follows the advice for a real program; returns what was wrong."""
    program = REAL[name]
    with tempfile.TemporaryDirectory(dir=room) as place:
        os.chmod(place, 0o777)
        environment = dict(os.environ, HOME=place, TMPDIR=place)
        with open(f"{place}/out", "w") as out:
            running = subprocess.Popen(attach.command_of(program, room, []), cwd=place, env=environment,
                                       stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        try:
            time.sleep(5)
            pid = attach.find(running.pid, program)
            if pid is None or running.poll() is not None:
                return [f"{name} did not start"]
            faults = follow(room, f"{name}, stopped" if is_stopped else name, pid, is_stopped)
            if not os.path.exists(f"/proc/{pid}"):
                faults.append(f"{name} ended during the repair")
            if status := running.wait(LASTS + 60):
                faults.append(f"{name} ended with status {status}")
        except subprocess.TimeoutExpired:
            faults.append(f"{name} does not end")
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
        if faults:
            print(pathlib.Path(f"{place}/out").read_text(errors="replace")[-1500:], file=sys.stderr)
    return faults


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join([*REAL, *HABITS]))
        return 0
    names = sys.argv[1:] or [*REAL, *HABITS]
    if unknown := [name for name in names if name not in REAL and name not in HABITS]:
        sys.exit(f"no program {unknown[0]}: one of {' '.join([*REAL, *HABITS])}")
    prepare.leash(3600)
    prepare.packages(*{package for name in names if name in REAL for package in REAL[name].packages})
    with prepare.room(*attach.compiled(), profile="debug") as room:
        subprocess.run(["gcc", "-O1", "-o", f"{room}/built/boundaries", "tests/support/src/boundaries/main.c"], check=True)
        return run(room, names)


def run(room, names):
    """Follows the advice for each program; returns whether something was wrong."""
    print(COLUMNS.format("PROGRAM", "REPAIRS", "BEFORE", "PROMISED", "DRY RUN", "AFTER", "LEAST", "SHARE", "OWN", "SWING", "TIME", "PAUSE"),
          flush=True)
    right = True
    for name in names:
        try:
            faults = real(room, name) if name in REAL else habit(room, name)
        except RuntimeError as error:
            faults = [str(error)]
        if faults:
            right = False
            print(f"{name}: FAILED: {', '.join(faults)}", flush=True)
    return not right


sys.exit(main())
