"""Linux's virtual memory areas, outside of Linux.

`explain` says why the mappings of a process are separate. `record` records what a program does to its address spaces,
`replay` replays the recording under several merge policies, `compare` says where two policies part, and `export`
writes a replay's tables as Parquet files.

Tables are `Table`s, which every library can read that knows the Arrow C data interface, without a copy and without
pyarrow: `polars.DataFrame(table)`, `duckdb.from_arrow(table)`, `pyarrow.table(table)`,
`pandas.DataFrame.from_arrow(table)`. docs/tables.md describes their columns, docs/python.md has examples.
"""

import os
import re

from . import _recording, _results, _vmarea
from ._errors import Error, NothingToDo, PermissionMissing, UsageError
from ._results import (
    Comparison,
    Difference,
    Explanation,
    FailedCalls,
    PolicyResult,
    Reason,
    Recording,
    Replay,
    Side,
    TraceComparison,
    Verify,
)
from ._vmarea import Table

__all__ = [
    "Comparison",
    "Difference",
    "Error",
    "Explanation",
    "FailedCalls",
    "NothingToDo",
    "PermissionMissing",
    "PolicyResult",
    "Reason",
    "Recording",
    "Replay",
    "Side",
    "Table",
    "TraceComparison",
    "UsageError",
    "Verify",
    "compare",
    "explain",
    "export",
    "record",
    "replay",
]

POLICIES = ("linux", "linux-5.10", "thesis", "vmarea")
MAPPING = re.compile(r"^\s*[0-9a-f]+-[0-9a-f]+ [r-][w-][x-][ps] ", re.MULTILINE)


def replay(path, policies=POLICIES, *, tables=(), differences=1):
    """Replays a trace under these policies and compares the result with the recorded kernel's.

    `linux`, the rules of the recorded kernel, is always included. `tables` names the tables to make: "events", "vmas",
    "lifetimes", "merges", "differences". `differences` is the number of differences to list for each cause in the report, or "all".
    """
    report, end, made = _vmarea.replay(path, names(policies), names(tables), str(differences))
    return _results.replay(os.fspath(path), report, end, made)


def explain(what, *, all=False, rss=False, bpf=True):
    """Explains why the mappings of a process are separate.

    `what` is the number of a process, the text of /proc/PID/maps or smaps, or the path of a file with such a text. "-" is a file
    of this name; standard input is `sys.stdin.read()`.
    With `all`, the result has a table of the mappings. For a process, `rss` reads smaps, which takes longer, and `bpf`
    reads the kernel's own data, which needs CAP_BPF and CAP_PERFMON and is left out, with a note, without them.
    """
    if isinstance(what, int):
        made = _vmarea.explain_process(what, all, rss, bpf)
    elif isinstance(what, str) and ("\n" in what or MAPPING.match(what)):
        made = _vmarea.explain_text("text", what, all)
    else:
        made = _vmarea.explain_file(what, all)
    return _results.explanation(*made)


def compare(traces, policies):
    """Compares two policies on one trace, on several, or on all traces in a folder.

    A trace that cannot be read is in `failed` of the result. Raises `Error` if no trace could be read.
    """
    given = [traces] if isinstance(traces, (str, os.PathLike)) else list(traces)
    paths, skipped = _files(given)
    compared, failed, last = [], {}, None
    for path in paths:
        try:
            compared.append(_results.compared(path, *_vmarea.compare(path, names(policies))))
        except UsageError:
            raise
        except Error as error:
            failed[path] = str(error).removeprefix(f"{path}: ")
            last = error
        else:
            if end := compared[-1].end:
                failed[path] = end
    if not compared:
        raise last or NothingToDo("there are no traces")
    return Comparison(tuple(side.name for side in compared[0].policies), compared, failed, skipped)


def record(command=None, output="vmarea.vmtrace", *, pid=None, seconds=None, checkpoint=None, by="auto"):
    """Records a program to its end, or the process `pid` for some seconds, into a trace file.

    `command` is a list of the program and its arguments, which shares the standard streams of this process.
    `checkpoint` also reads the kernel's list of mappings after that many calls. `by` is the method: "observing" (as
    root; a process does not stop, and a program only at rare calls), "tracing" (a process stops at each system call, a
    program at each memory call), or "auto": observing if it is permitted and nothing else needs stops.
    """
    if (command is None) == (pid is None):
        raise UsageError("give a command or a pid")
    given = {"output": os.fsdecode(output), "checkpoint": checkpoint, "by": by}
    if pid is None:
        if seconds is not None:
            raise UsageError("a program is recorded to its end: give seconds with a pid")
        made = _recording.run("record", {"command": names(command), **given})
    else:
        made = _recording.run("attach", {"pid": pid, "seconds": seconds, **given})
    return _results.recording(os.fspath(output), *made)


def export(path, folder, policies=POLICIES):
    """Writes all tables of a trace as Parquet files to a folder.

    Each file appears only when all are complete. Returns why the trace ended early, or None.
    """
    return _vmarea.export(path, folder, names(policies))


def names(given):
    """Returns a list of names; a single string is a mistake that would be taken for its letters."""
    if isinstance(given, (str, bytes)):
        raise UsageError(f"a list is needed, not the text {given!r}")
    return [os.fsdecode(name) for name in given]


def _files(given):
    """Returns the traces among files and folders, and the other files of the folders."""
    paths, skipped = [], []
    for path in map(os.fspath, given):
        if not os.path.isdir(path):
            paths.append(path)
            continue
        for name in sorted(os.listdir(path)):
            file = os.path.join(path, name)
            usable = os.path.isfile(file) and (name.endswith(".vmtrace") or _vmarea.is_trace(file))
            (paths if usable else skipped).append(file)
    return paths, skipped
