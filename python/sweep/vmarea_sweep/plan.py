"""What a sweep has to do: the traces that match, without those that are done.

A trace is identified by path, size and time of its last change, as by make and rsync: reading all traces to learn
that nothing is left would take longer than listing them. The folder of results belongs to one list of policies and
one version of vmarea, which its file `sweep.json` names; a sweep with others is refused, because the rows of both
would be counted as one.
"""

import datetime
import fnmatch
import hashlib
import json
import posixpath
import re
from dataclasses import dataclass

from pyarrow import dataset, fs

from . import storage

# Version of the table's columns.
SCHEMA = 1
RUNS = "runs"
# An error that may not happen again; the next sweep deletes the row and tries again.
FAILED = "failed-"
WILDCARD = re.compile(r"[*?\[]")


class Refused(Exception):
    """A request that cannot be carried out; the text is for the user."""


@dataclass(frozen=True)
class Job:
    """What all tasks of a sweep have in common."""

    out: str
    policies: tuple[str, ...]
    compare: bool
    version: str

    def describe(self):
        """Returns what a folder of results is made of, as `sweep.json` stores it."""
        return {
            "schema": SCHEMA,
            "vmarea": self.version,
            "policies": list(self.policies),
            "compare": self.compare,
        }


@dataclass(frozen=True)
class Trace:
    """A trace that is to be replayed."""

    path: str
    size: int
    modified_ns: int
    key: str

    @property
    def day(self):
        """Returns the day of the last change in UTC, which is the partition of the trace's rows."""
        seconds = self.modified_ns // 1_000_000_000
        return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).date().isoformat()


def key_of(job, path, size, modified_ns):
    parts = json.dumps([path, size, modified_ns, job.describe()])
    return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()


def find(job, pattern):
    """Returns the traces that match a path or a glob, sorted by day and path.

    `*` and `?` do not match a slash, `**` does. A folder stands for all `*.vmtrace` below it. Raises `Refused` if
    there is no such file or folder.
    """
    scheme = pattern.split("://")[0] + "://" if "://" in pattern else ""
    query = ""
    if scheme and "?" in pattern and "=" in pattern.rsplit("?", 1)[1]:
        # Options of the file system, for example `?region=eu-west-1`; they contain no slash.
        pattern, query = pattern.rsplit("?", 1)
        query = "?" + query
    parts = pattern.split("/")
    wild = next((n for n, part in enumerate(parts) if WILDCARD.search(part)), len(parts))
    system, base = storage.resolve("/".join(parts[:wild] or ["."]) + query)
    rest = "/".join(parts[wild:])
    info = system.get_file_info(base)
    if info.type == fs.FileType.File and not rest:
        infos = [info]
    elif info.type == fs.FileType.Directory or rest:
        infos = storage.files_below(system, base)
        matches = expression(rest or "**/*.vmtrace")
        infos = [one for one in infos if matches(posixpath.relpath(one.path, base))]
    else:
        raise Refused(f"{pattern}: no such file or folder")
    traces = [named(job, system, info, scheme, query) for info in infos]
    return sorted(traces, key=lambda trace: (trace.day, trace.path))


def named(job, system, info, scheme, query):
    """Returns the trace of a listed file; on a remote file system its path is a URI again."""
    local = isinstance(system, fs.LocalFileSystem)
    path = info.path if local else f"{scheme}{info.path.lstrip('/') if scheme != 'file://' else info.path}{query}"
    modified = info.mtime_ns or 0
    return Trace(path, info.size or 0, modified, key_of(job, path, info.size, modified))


def expression(glob):
    """Returns a function that tells whether a relative path matches a glob with `**`."""
    pieces = []
    for part in glob.split("/"):
        if part == "**":
            pieces.append("(?:[^/]+/)*")
        else:
            # fnmatch's `.` would match a slash.
            translated = fnmatch.translate(part).removeprefix("(?s:").removesuffix(r")\Z").removesuffix(r")\z")
            pieces.append(translated.replace(".*", "[^/]*").replace("(?s:", "(?:") + "/")
    whole = re.compile("".join(pieces).removesuffix("/") + r"\Z")
    return lambda path: whole.match(path) is not None


def claim(job):
    """Makes the folder of results the one of this sweep, or checks that it is. Raises `Refused` otherwise."""
    system, out = storage.resolve(job.out)
    path = posixpath.join(out, "sweep.json")
    if storage.exists(system, path):
        with system.open_input_stream(path) as file:
            known = json.loads(file.read())
        if known != job.describe():
            raise Refused(
                f"{job.out} contains the results of another sweep: {json.dumps(known)}; "
                f"this one is {json.dumps(job.describe())}. Use another --out"
            )
        return
    try:
        storage.store(system, path, (json.dumps(job.describe()) + "\n").encode())
    except OSError as error:
        raise Refused(f"cannot write to {job.out}: {error}") from error


def remaining(job, traces):
    """Returns the traces that have no rows yet. Rows of earlier failures are deleted, to be tried again."""
    system, out = storage.resolve(job.out)
    wanted = {trace.key for trace in traces}
    done, read = set(), []
    for info in storage.files_below(system, posixpath.join(out, RUNS)):
        name = info.base_name
        if name.startswith(FAILED):
            if name.removeprefix(FAILED).removesuffix(".parquet") in wanted:
                system.delete_file(info.path)
        elif single := re.fullmatch(r"part-([0-9a-f]{32})-1\.parquet", name):
            done.add(single[1])
        elif name.endswith(".parquet"):
            read.append(info.path)
    if read:
        for batch in dataset.dataset(read, filesystem=system, format="parquet").to_batches(columns=["key"]):
            done.update(batch.column("key").to_pylist())
    return [trace for trace in traces if trace.key not in done]


def batches(traces, size):
    """Returns lists of at most `size` traces, each of one day."""
    made = []
    for trace in traces:
        if not made or len(made[-1]) == size or made[-1][0].day != trace.day:
            made.append([])
        made[-1].append(trace)
    return made


def part_of(job, traces):
    """Returns the path of the file for a batch's rows: equal for equal batches, so that a repetition replaces it."""
    joined = "".join(trace.key for trace in traces).encode()
    name = traces[0].key if len(traces) == 1 else hashlib.blake2b(joined, digest_size=16).hexdigest()
    return folder_of(job, traces[0]) + f"/part-{name}-{len(traces)}.parquet"


def failed_of(job, trace):
    """Returns the path of the file for a failure."""
    return folder_of(job, trace) + f"/{FAILED}{trace.key}.parquet"


def folder_of(job, trace):
    _, out = storage.resolve(job.out)
    return posixpath.join(out, RUNS, f"day={trace.day}")
