"""The work of one task: replays a batch of traces one after another, and stores their rows.

A task runs in a worker process. It holds one trace at a time, and returns only counts. It may be repeated at any
time, by another worker as well: what is stored already is not replayed again.
"""

import contextlib
import os
import resource
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass

from pyarrow import fs, parquet

from . import binary, plan, rows, storage


@dataclass
class Outcome:
    """What became of a batch."""

    traces: int = 0
    ok: int = 0
    cut_off: int = 0
    bad: int = 0
    failed: int = 0
    # Errors of the last three kinds, the first few of them.
    errors: tuple[str, ...] = ()
    # Why the rows could not be stored; then the batch is not done.
    unwritten: str | None = None
    # Time and memory that the task has used.
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_bytes: int = 0

    def count(self, status, error):
        name = status.replace(" ", "_")
        setattr(self, name, getattr(self, name) + 1)
        if error and len(self.errors) < 5:
            self.errors += (error,)

    as_dict = asdict


def run(job, traces):
    """Replays a batch, stores its rows and returns its outcome. Every error is in the outcome."""
    begun, cpu = time.monotonic(), processor_time()
    outcome = Outcome(traces=len(traces))
    try:
        system, _ = storage.resolve(job.out)
        path = plan.part_of(job, traces)
        if storage.exists(system, path):
            for status in stored(system, path):
                outcome.count(status, None)
        else:
            replay_all(job, traces, system, path, outcome)
    except OSError as error:
        outcome.unwritten = f"cannot write to {job.out}: {error}"
    outcome.wall_seconds, outcome.cpu_seconds = time.monotonic() - begun, processor_time() - cpu
    usage = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    outcome.peak_bytes = sum(usage) * 1024
    return outcome


def processor_time():
    """Returns the processor time in seconds of this process and of the programs that it has run."""
    return sum(os.times()[:4])


def stored(system, path):
    """Returns the status of each trace in a part."""
    with system.open_input_file(path) as file:
        columns = parquet.read_table(file, columns=["key", "status"]).to_pydict()
    return dict(zip(columns["key"], columns["status"])).values()


def replay_all(job, traces, system, path, outcome):
    """Replays all traces; stores the final rows together, and each failure in a file of its own."""
    final, failures = [], []
    for trace in traces:
        made = rows_of(job, trace)
        status, error = made[0]["status"], made[0].get("error")
        outcome.count(status, error and f"{trace.path}: {error}")
        if status == rows.FAILED:
            failures.append((trace, made))
        else:
            final.append((trace, made))
    if failures and final:
        # The name of a part stands for the traces in it.
        path = plan.part_of(job, [trace for trace, _ in final])
    if final:
        storage.store(system, path, rows.parquet_of([row for _, made in final for row in made]))
    for trace, made in failures:
        storage.store(system, plan.failed_of(job, trace), rows.parquet_of(made))


def rows_of(job, trace):
    """Replays a trace and returns its rows; an error becomes a row."""
    try:
        with local_copy(trace) as path:
            header = binary.run("trace", "info", path, "--json", incomplete=1)[0]["header"]
            replayed, notes = binary.run("replay", path, "--json", *binary.flags(job.policies))
            ends = [line for line in notes.splitlines() if "only the events before it are usable" in line]
            compared = {}
            if job.compare:
                first, *others = job.policies
                for other in others:
                    both, _ = binary.run("compare", path, "--json", *binary.flags([first, other]), incomplete=6)
                    compared[both["policies"][1]] = both["traces"][0]
        return rows.of_replay(trace, header, replayed, ends[0] if ends else None, compared)
    except (OSError, MemoryError) as error:
        return [rows.of_failure(trace, rows.FAILED, error)]
    except (binary.BadTrace, binary.WrongPolicy) as error:
        # The path is a column, and may be that of a temporary copy.
        said = str(error).removeprefix(f"{path}: ")
        return [rows.of_failure(trace, rows.BAD, said)]


@contextlib.contextmanager
def local_copy(trace):
    """Gives the path of a trace on this machine: of the trace itself, or of a temporary copy of a remote one."""
    system, remote = storage.resolve(trace.path)
    if isinstance(system, fs.LocalFileSystem):
        # An unreadable file is a failure, not a bad trace.
        with open(remote, "rb"):
            pass
        yield remote
        return
    handle, path = tempfile.mkstemp(suffix=".vmtrace")
    try:
        with system.open_input_stream(remote) as source, os.fdopen(handle, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
        yield path
    finally:
        os.unlink(path)
