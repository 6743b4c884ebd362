"""Linux's virtual memory areas, outside of Linux: replays of recorded address spaces."""

import os

from . import _results, _vmarea
from ._errors import Error, NothingToDo, PermissionMissing, UsageError
from ._results import PolicyResult, Replay, Verify
from ._vmarea import Table

__all__ = [
    "Error",
    "NothingToDo",
    "PermissionMissing",
    "PolicyResult",
    "Replay",
    "Table",
    "UsageError",
    "Verify",
    "export",
    "replay",
]


def replay(path, policies=("linux", "linux-5.10", "thesis", "vmarea"), *, tables=(), differences=1):
    """Replays a trace under these policies and compares the result with the recorded kernel's.

    `tables` names the tables to make: "events", "vmas", "merges", "differences".
    `differences` is the number of differences to list for each cause, or "all".
    """
    report, end, made = _vmarea.replay(os.fspath(path), list(policies), list(tables), str(differences))
    return _results.replay(os.fspath(path), report, end, made)


def export(path, folder, policies=("linux", "linux-5.10", "thesis", "vmarea")):
    """Writes all tables of a trace as Parquet files to a folder.

    Each file appears only when all are complete. Returns why the trace ended early, or None.
    """
    return _vmarea.export(os.fspath(path), os.fspath(folder), list(policies))
