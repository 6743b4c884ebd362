"""Results as dataclasses, made from the JSON that the native half returns.

Each dataclass has the fields that programs use most; `report` or `json` has everything, in the form that the command
line writes with `--json` (docs/schemas).
"""

from __future__ import annotations

import dataclasses
import json
import typing

T = typing.TypeVar("T")


def of(kind: type[T], fields: dict[str, typing.Any], **others: typing.Any) -> T:
    """Makes a dataclass from the fields of the same names, and from `others`."""
    names = [field.name for field in dataclasses.fields(kind) if field.name not in others]  # type: ignore[arg-type]
    return kind(**{name: fields.get(name) for name in names}, **others)


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
    """Result of a replay under one policy: numbers of VMAs at the peak and at the end, merges, refusals, splits."""

    vmas_peak: int
    vmas_peak_single: int
    vmas_exit: int
    splits: int
    merges: dict[str, int]
    refusals: dict[str, int]


@dataclasses.dataclass(frozen=True)
class FailedCalls:
    """Memory calls that failed in the same way, as docs/replaying.md describes them; `first` is the text of the first one.

    `errno` is None for `brk`, and `reason` if it is not known. `function` made the first call, if its stack was recorded.
    """

    call: str
    errno: str | None
    count: int
    reason: str | None
    remedy: str | None
    first: str
    function: str | None


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
    failed_calls: list[FailedCalls]
    notes: list[str]
    tables: dict[str, typing.Any]
    report: dict[str, typing.Any] = dataclasses.field(repr=False)

    @property
    def complete(self) -> bool:
        """True if the whole trace was read."""
        return self.end is None


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why mappings are separate, and how many of them a remedy would merge."""

    reason: str
    words: str
    mappings: int
    certain: int
    joinable: int
    detail: str


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Why the mappings of a process are separate; `mappings_table` has each of them, if it was asked for.

    `limit` is None for a copied list that does not say it. `report` has the causes, and what else is scarce.
    """

    name: str
    pid: int | None
    source: str
    mappings: int
    limit: int | None
    joinable: int
    reasons: list[Reason]
    advice: str
    command: str | None
    notes: list[str]
    mappings_table: typing.Any = dataclasses.field(repr=False)
    report: dict[str, typing.Any] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Side:
    """What one of two policies did on a trace."""

    name: str
    vmas_peak: int
    vmas_exit: int
    splits: int
    merges: dict[str, int]
    only_merges: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Difference:
    """Calls of one kind that differ in the same way: what each policy `did`, and how often."""

    call: str
    place: str
    did: tuple[str, str]
    count: int
    first_call: int


@dataclasses.dataclass(frozen=True)
class TraceComparison:
    """Two policies on one trace; `end` says why only a part of it was compared, or is None."""

    trace: str
    end: str | None
    calls: int
    differing_calls: int
    policies: tuple[Side, Side]
    differences: list[Difference]
    report: dict[str, typing.Any] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two policies on several traces; `failed` maps the traces that could not be read to the reason."""

    policies: tuple[str, str]
    traces: list[TraceComparison]
    failed: dict[str, str]
    skipped: list[str]


@dataclasses.dataclass(frozen=True)
class Recording:
    """A recorded program or process; `status` is the exit status as shells count it (128 + N for signal N)."""

    path: str
    status: int
    bytes: int
    events: int
    calls: int
    faults: int
    lost: int
    address_spaces: int
    notes: list[str]


def replay(path: str, text: str, end: str | None, tables: dict[str, typing.Any]) -> Replay:
    """Makes a result from the JSON of a report."""
    report = json.loads(text)
    policies = {name: of(PolicyResult, one) for name, one in report["policies"].items()}
    verify = of(Verify, report["verify"])
    failed = [_failed(one) for one in report["failed_calls"]]
    return of(
        Replay,
        report,
        path=path,
        end=end,
        verify=verify,
        policies=policies,
        failed_calls=failed,
        tables=tables,
        report=report,
    )


def _failed(group: dict[str, typing.Any]) -> FailedCalls:
    """Makes a result from the JSON of a group of failed calls."""
    first = group["first"]
    return of(FailedCalls, group, first=first["text"], function=first["function"])


def explanation(text: str, table: typing.Any, notes: list[str]) -> Explanation:
    """Makes a result from the JSON of a report on a process."""
    report = json.loads(text)
    reasons = [of(Reason, one) for one in report["reasons"]]
    advice = report["advice"]
    return of(
        Explanation,
        report,
        reasons=reasons,
        advice=advice["text"],
        command=advice["command"],
        notes=notes,
        mappings_table=table,
        report=report,
    )


def compared(path: str, text: str, end: str | None) -> TraceComparison:
    """Makes a result from the JSON of a comparison."""
    report = json.loads(text)
    sides = tuple(of(Side, one) for one in report["policies"])
    differences = [of(Difference, one, did=tuple(one["did"])) for one in report["differences"]]
    return of(TraceComparison, report, trace=path, end=end, policies=sides, differences=differences, report=report)


def recording(path: str, status: int, counts: list[tuple[str, int]], notes: list[str], size: int) -> Recording:
    """Makes a result from what the recorder returns."""
    signal = status & 0x7F
    code = 128 + signal if signal else (status >> 8) & 0xFF
    return of(Recording, dict(counts), path=path, status=code, notes=notes, bytes=size)
