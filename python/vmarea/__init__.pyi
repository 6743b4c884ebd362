import os
from collections.abc import Iterable

from ._errors import Error as Error
from ._errors import NothingToDo as NothingToDo
from ._errors import PermissionMissing as PermissionMissing
from ._errors import UsageError as UsageError
from ._results import Comparison as Comparison
from ._results import Difference as Difference
from ._results import Explanation as Explanation
from ._results import FailedCalls as FailedCalls
from ._results import PolicyResult as PolicyResult
from ._results import Reason as Reason
from ._results import Recording as Recording
from ._results import Replay as Replay
from ._results import Side as Side
from ._results import TraceComparison as TraceComparison
from ._results import Verify as Verify
from ._vmarea import Table as Table

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

_Path = str | os.PathLike[str]

def replay(
    path: _Path,
    policies: Iterable[str] = ...,
    *,
    tables: Iterable[str] = ...,
    differences: int | str = ...,
) -> Replay: ...
def explain(what: int | _Path, *, all: bool = ..., rss: bool = ..., bpf: bool = ...) -> Explanation: ...
def compare(traces: _Path | Iterable[_Path], policies: Iterable[str]) -> Comparison: ...
def record(
    command: Iterable[_Path] | None = ...,
    output: _Path = ...,
    *,
    pid: int | None = ...,
    seconds: float | None = ...,
    checkpoint: int | None = ...,
    by: str = ...,
) -> Recording: ...
def export(path: _Path, folder: _Path, policies: Iterable[str] = ...) -> str | None: ...
