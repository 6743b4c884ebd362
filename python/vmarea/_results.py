"""Results as dataclasses, made from the JSON that the native half returns."""

from __future__ import annotations

import dataclasses
import json
import typing


@dataclasses.dataclass(frozen=True)
class Verify:
    """Comparison with the kernel."""

    processes: int
    vmas_compared: int
    results_compared: int
    differences: int
    undecided: int
    resyncs: int


@dataclasses.dataclass(frozen=True)
class PolicyResult:
    """Result of a replay under one policy."""

    vmas_peak: int
    vmas_exit: int
    merges: dict[str, int]
    refusals: dict[str, int]
    attempts: dict[str, dict[str, int]]
    pgoff_updates: int
    pgoff_merges: int
    expand_merges: int
    collected: int
    splits: int
    lookups: int
    last_used_hits: int


@dataclasses.dataclass(frozen=True)
class Replay:
    """Result of a replay; `end` says why the trace ended early, or is None if it is complete."""

    path: str
    end: str | None
    events: int
    calls: int
    faults: int
    lost: int
    verify: Verify
    policies: dict[str, PolicyResult]
    differences: list[dict[str, typing.Any]]
    notes: list[str]
    tables: dict[str, typing.Any]
    report: dict[str, typing.Any] = dataclasses.field(repr=False)

    @property
    def complete(self) -> bool:
        """True if the whole trace was read."""
        return self.end is None


def replay(path: str, text: str, end: str | None, tables: dict[str, typing.Any]) -> Replay:
    """Makes a result from the JSON of a report."""
    report = json.loads(text)
    return Replay(
        path=path,
        end=end,
        events=report["events"],
        calls=report["calls"],
        faults=report["faults"],
        lost=report["lost"],
        verify=Verify(**report["verify"]),
        policies={name: PolicyResult(**one) for name, one in report["policies"].items()},
        differences=report["differences"],
        notes=report["notes"],
        tables=tables,
        report=report,
    )
