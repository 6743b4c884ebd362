import os
from collections.abc import Iterable

from ._errors import Error as Error
from ._errors import NothingToDo as NothingToDo
from ._errors import PermissionMissing as PermissionMissing
from ._errors import UsageError as UsageError
from ._results import PolicyResult as PolicyResult
from ._results import Replay as Replay
from ._results import Verify as Verify
from ._vmarea import Table as Table

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

def replay(
    path: str | os.PathLike[str],
    policies: Iterable[str] = ...,
    *,
    tables: Iterable[str] = ...,
    differences: int | str = ...,
) -> Replay: ...
def export(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    policies: Iterable[str] = ...,
) -> str | None: ...
