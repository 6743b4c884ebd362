"""Runs one test of another project, natively and under `vmarea run`.

Both runs use the same steps: a shell records the program's exit status, `timeout` ends the program and its
process group at the time limit, and `leash.py` kills the remaining processes. The run also ends if it would
exhaust the memory of the machine. Afterwards, kernel settings that the test changed are restored.
"""

import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time

LIB = os.path.abspath("ci/lib")

# Settings that a run may change and that are restored: files of one line.
SETTINGS = (
    "/proc/sys/vm/*",
    "/proc/sys/kernel/shm*",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/randomize_va_space",
    "/sys/kernel/mm/ksm/*",
    "/sys/kernel/mm/hugepages/*/nr_*hugepages",
    "/sys/kernel/mm/transparent_hugepage/*",
    "/sys/kernel/mm/transparent_hugepage/*/*",
)
# Files that trigger an action, or that are not settings. The kernel changes the last one by itself until a user sets it.
NO_SETTING = {"compact_memory", "drop_caches", "stat_refresh", "nr_hugepages_mempolicy", "min_free_kbytes"}

# Share of free memory below which a run is ended.
MEMORY_LEFT = 1 / 12


class Limits:
    """Time limits in seconds: natively, under vmarea, and for the replay afterwards."""

    def __init__(self, native, recorded, replay):
        self.native, self.recorded, self.replay = native, recorded, replay


def setting_files():
    for pattern in SETTINGS:
        for path in glob.glob(pattern):
            if os.path.isfile(path) and os.path.basename(path) not in NO_SETTING and os.access(path, os.W_OK):
                if os.stat(path).st_mode & 0o200 and os.stat(path).st_mode & 0o400:
                    yield path


def value_of(path):
    """Returns the current value of a setting; of a choice such as "always [madvise] never", the one in brackets."""
    with open(path) as file:
        text = file.read().strip()
    chosen = re.search(r"\[([^\]]+)\]", text)
    return chosen.group(1) if chosen else text


def settings():
    found = {}
    for path in setting_files():
        with contextlib.suppress(OSError):
            found[path] = value_of(path)
    return found


def swaps():
    with open("/proc/swaps") as file:
        return {line.split()[0] for line in file.readlines()[1:]}


@contextlib.contextmanager
def settings_kept(wanted):
    """Makes the settings that a run needs, and afterwards restores all settings that have changed."""
    before, swapping = settings(), swaps()
    for path, value in wanted.items():
        with open(path, "w") as file:
            file.write(value)
    try:
        yield
    finally:
        for path, value in before.items():
            with contextlib.suppress(OSError):
                if value_of(path) != value:
                    with open(path, "w") as file:
                        file.write(value)
        for path in swaps() - swapping:
            subprocess.run(["swapoff", path], check=False)


def memory_left():
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":") for line in file)
    return int(fields["MemAvailable"].split()[0]) / int(fields["MemTotal"].split()[0])


def watch_memory(process, over):
    """Ends the run through `leash.py` if the machine runs out of memory."""
    while process.poll() is None:
        if memory_left() < MEMORY_LEFT:
            over.set()
            process.terminate()
            return
        time.sleep(0.1)


class Outcome:
    """Outcome of a program: its exit status as in a shell, and the results of its test cases."""

    def __init__(self, status, text):
        self.status = status
        self.cases = tap(text)

    def __eq__(self, other):
        return self.key() == other.key()

    def key(self):
        """Key for comparing outcomes. The number of skipped cases depends on free resources, so only whether any was skipped counts."""
        return self.status, self.cases["failed"], self.cases["skipped"] > 0

    def __str__(self):
        said = ", ".join(f"{count} {what}" for what, count in self.cases.items() if count)
        return f"{self.status}" + (f" ({said})" if said else "")


def tap(text):
    """Returns the failed and the skipped cases from the TAP output of Linux's selftests."""
    failed = len(re.findall(r"^\s*not ok \d+", text, re.MULTILINE))
    skipped = len(re.findall(r"^\s*ok \d+.*# *SKIP", text, re.MULTILINE | re.IGNORECASE))
    return {"failed": failed, "skipped": skipped}


# Runs its other arguments as a command and writes the exit status to the file named by its first argument.
NOTE_STATUS = 'timeout --signal=KILL "$1" "${@:2}"; echo $? >"$0"'


def leashed(command, place, seconds, cwd):
    """Runs a command; returns its output, its status, and why this script ended it, if it did."""
    printed = os.path.join(place, "printed")
    environment = dict(os.environ, TMPDIR=place, HOME=place, LC_ALL="C.UTF-8")
    with open(printed, "wb") as out:
        process = subprocess.Popen(
            [sys.executable, os.path.join(LIB, "leash.py"), str(seconds), "setsid", "-w", *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )
        over = threading.Event()
        watch = threading.Thread(target=watch_memory, args=(process, over), daemon=True)
        watch.start()
        try:
            process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        watch.join()
    with open(printed, errors="replace") as file:
        # A test may print endlessly; the results of its cases are at the end of its output.
        file.seek(max(0, os.path.getsize(printed) - (1 << 20)))
        text = file.read()
    ended = "the memory of the machine goes out" if over.is_set() else ""
    if process.returncode == 124 and not ended:
        ended = f"not over after {seconds} s"
    return text, process.returncode, ended


def play(run, place, seconds, extra, before=()):
    """Runs the program with the prefix `before`; returns its outcome, its output, and why it was ended."""
    status_file = os.path.join(place, "status")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(status_file)
    command = [*before, "bash", "-c", NOTE_STATUS, status_file, str(seconds), *run.command]
    with settings_kept(run.settings):
        text, status, ended = leashed(command, place, seconds + extra, run.folder or place)
    try:
        with open(status_file) as file:
            outcome = Outcome(file.read().strip(), text)
    except FileNotFoundError:
        outcome = Outcome(ended or f"no status, {status} from outside", text)
    return outcome, text, ended


class Run:
    """A command, its working directory, and the settings that it needs."""

    def __init__(self, suite, name, command, folder=None, settings=None):
        self.suite, self.name, self.command = suite, name, command
        self.folder, self.settings = folder, settings or {}


class Result:
    """Result of a run under vmarea, compared with the native runs."""

    def __init__(self, run):
        self.run = run
        self.native, self.recorded = [], None
        self.report, self.trouble, self.seconds = None, "", 0.0

    def number(self, key):
        report = self.report or {}
        return {**report, **report.get("verify", {})}.get(key, 0)

    @property
    def differences(self):
        return self.number("differences")

    @property
    def other_outcome(self):
        return self.recorded is not None and self.recorded not in self.native

    @property
    def failed(self):
        return bool(self.trouble or self.differences or self.other_outcome)

    @property
    def excusable(self):
        """True if only the outcome of the program is wrong."""
        return self.other_outcome and not self.trouble and not self.differences


# Maximum slowdown of a program under a tracer, and a minimum time limit in seconds.
SLOWER = 40

# Maximum number of native runs to obtain the same outcome as under vmarea.
NATIVE_RUNS = 5

# Maximum number of runs under vmarea to obtain an outcome that is also native. Some tests choose addresses at random,
# and natively fail once in a dozen runs.
RECORDED_RUNS = 3


def measure(run, vmarea, limits, keep=None):
    """Runs the command natively and under vmarea; repeats both if only the outcome of the program is wrong."""
    for _ in range(RECORDED_RUNS):
        result = measure_once(run, vmarea, limits, keep)
        if not result.excusable:
            break
    return result


def measure_once(run, vmarea, limits, keep):
    """Runs the command natively and under vmarea, and natively again if the two outcomes differ."""
    result = Result(run)
    begun = time.monotonic()
    place = os.path.join(os.environ["SUITES_ROOM"], "place")
    fresh(place)
    outcome, _, _ = play(run, place, limits.native, 10)
    result.native.append(outcome)
    recorded = min(limits.recorded, SLOWER * (time.monotonic() - begun) + SLOWER)
    fresh(place)
    report, trace = (os.path.join(os.environ["SUITES_ROOM"], name) for name in ("report.json", "run.vmtrace"))
    for path in (report, trace):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    before = [vmarea, "run", f"--json={report}", "--trace", trace, "--"]
    result.recorded, text, ended = play(run, place, round(recorded), limits.replay, before)
    try:
        with open(report) as file:
            result.report = json.load(file)
        if result.report["schema"] != 1:
            raise ValueError(f"schema {result.report['schema']}, not 1")
    except (OSError, ValueError, KeyError) as error:
        said = [line for line in text.splitlines() if line.startswith("vmarea:")]
        result.trouble = ended or (said[-1] if said else f"no report: {error!r}")
    while result.other_outcome and len(result.native) < NATIVE_RUNS:
        fresh(place)
        result.native.append(play(run, place, limits.native, 10)[0])
    result.seconds = time.monotonic() - begun
    if keep and result.failed:
        name = os.path.join(keep, f"{run.suite}-{run.name}".replace("/", "_").replace(" ", "_"))
        with open(f"{name}.out", "w") as file:
            file.write(text)
        for path, end in ((trace, "vmtrace"), (report, "json")):
            with contextlib.suppress(FileNotFoundError):
                shutil.move(path, f"{name}.{end}")
    clear(place)
    return result


def clear(place):
    """Removes a folder, including mounts that an ended test has left in it."""
    with open("/proc/self/mounts") as file:
        mounted = [line.split()[1] for line in file]
    for path in reversed(mounted):
        if path.startswith(f"{place}/"):
            subprocess.run(["umount", "--lazy", path], check=False)
    shutil.rmtree(place, ignore_errors=True)


def fresh(place):
    clear(place)
    os.makedirs(place, exist_ok=True)
    os.chmod(place, 0o1777)
