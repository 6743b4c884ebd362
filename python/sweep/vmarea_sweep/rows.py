"""The table of a sweep: one row for each trace and policy, or one for a trace that cannot be replayed."""

import datetime
import io
import os
import posixpath

import pyarrow as pa
from pyarrow import parquet

COUNTS = pa.list_(pa.struct([("name", pa.string()), ("count", pa.int64())]))
DIFFERENCES = pa.list_(
    pa.struct(
        [
            ("call", pa.string()),
            ("place", pa.string()),
            ("first_did", pa.string()),
            ("did", pa.string()),
            ("count", pa.int64()),
            ("first_call", pa.int64()),
        ]
    )
)

# Status of a row; only `failed` may change if the sweep is started again.
OK, CUT_OFF, BAD, FAILED = "ok", "cut off", "bad", "failed"

# Name, type, meaning.
COLUMNS = [
    ("key", pa.string(), "identifies the trace: a hash of path, size, time of its last change, policies and version"),
    ("trace", pa.string(), "path or URI of the trace"),
    ("labels", pa.map_(pa.string(), pa.string()), "parts of the path of the form `name=value`, such as `host=web1`"),
    ("size", pa.int64(), "size of the trace in bytes"),
    ("modified", pa.timestamp("us", "UTC"), "time of the last change of the trace; its day in UTC is the partition `day`"),
    ("status", pa.string(), "`ok`, `cut off` (replayed up to that point), `bad` (no replay), or `failed` (tried again)"),
    ("error", pa.string(), "why the trace was not replayed, or not to its end"),
    ("program", pa.string(), "name of the recorded program, without its folder"),
    ("command", pa.string(), "the recorded command, with its arguments"),
    ("kernel", pa.string(), "`uname -r` of the recorded machine"),
    ("max_map_count", pa.int64(), "mappings that a process may have on the recorded machine"),
    ("events", pa.int64(), "events in the trace"),
    ("calls", pa.int64(), "system calls in the trace"),
    ("faults", pa.int64(), "page faults in the trace"),
    ("lost", pa.int64(), "samples that the recorder lost"),
    ("differs", pa.int64(), "results and VMAs in which the core, under the recorded kernel's rules, differs from it"),
    ("undecided", pa.int64(), "results and boundaries that depend on events that were not recorded"),
    ("policy", pa.string(), "name of the policy; the other columns from here on are its results"),
    ("vmas_peak", pa.int64(), "VMAs of all live address spaces together at the peak"),
    ("vmas_peak_single", pa.int64(), "VMAs of one address space at its peak, which `max_map_count` limits"),
    ("vmas_exit", pa.int64(), "sum of the VMAs that the address spaces had when they ended"),
    ("splits", pa.int64(), "splits of VMAs"),
    ("merges", COUNTS, "merges, by kind"),
    ("refusals", COUNTS, "pairs of adjacent VMAs that were not merged, by reason"),
    ("differing_calls", pa.int64(), "with `--compare`: calls that differ from those under the first policy"),
    ("differences", DIFFERENCES, "with `--compare`: these calls by kind, place and what each policy did"),
]
SCHEMA = pa.schema([pa.field(name, kind, metadata={"description": about}) for name, kind, about in COLUMNS])


def of_trace(trace):
    """Returns the columns that are known before the trace is opened."""
    # A time stamp has microseconds; a float would not have them all.
    modified = datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(
        microseconds=trace.modified_ns // 1000
    )
    folders = trace.path.split("?")[0].split("/")[:-1]
    return {
        "key": trace.key,
        "trace": trace.path,
        "labels": [tuple(part.split("=", 1)) for part in folders if "=" in part],
        "size": trace.size,
        "modified": modified,
    }


def of_failure(trace, status, error):
    """Returns the row of a trace that was not replayed."""
    return {**of_trace(trace), "status": status, "error": " ".join(str(error).split())}


def of_replay(trace, header, replayed, end, compared):
    """Returns the rows of a replay, one for each policy, in the order of their names.

    `end` says why the replay is incomplete. `compared` maps names of policies to their comparison with the first one.
    """
    shared = {
        **of_trace(trace),
        "status": CUT_OFF if end else OK,
        "error": end,
        "program": program(header["command"], trace.path),
        "command": " ".join(header["command"]),
        "kernel": header["kernel_release"],
        "max_map_count": int(header["settings"].get("vm.max_map_count", 0)) or None,
        "events": replayed["events"],
        "calls": replayed["calls"],
        "faults": replayed["faults"],
        "lost": replayed["lost"],
        "differs": replayed["verify"]["differences"],
        "undecided": replayed["verify"]["undecided"],
    }
    return [
        {**shared, "policy": name, **of_policy(policy), **of_comparison(compared.get(name))}
        for name, policy in sorted(replayed["policies"].items())
    ]


def of_policy(policy):
    return {
        "vmas_peak": policy["vmas_peak"],
        "vmas_peak_single": policy["vmas_peak_single"],
        "vmas_exit": policy["vmas_exit"],
        "splits": policy["splits"],
        "merges": counts(policy["merges"]),
        "refusals": counts(policy["refusals"]),
    }


def of_comparison(compared):
    if compared is None:
        return {}
    return {
        "differing_calls": compared["differing_calls"],
        "differences": [
            {
                "call": group["call"],
                "place": group["place"],
                "first_did": group["did"][0],
                "did": group["did"][1],
                "count": group["count"],
                "first_call": group["first_call"],
            }
            for group in compared["differences"]
        ],
    }


def counts(by_name):
    return [{"name": name, "count": count} for name, count in sorted(by_name.items())]


def program(command, path):
    """Returns the name of a recorded program: that of the command, or of the trace if it has none."""
    words = [word for word in command if "=" not in word and os.path.basename(word) != "env"]
    name = os.path.basename(words[0]) if words else ""
    return name or posixpath.basename(path).split("?")[0].removesuffix(".vmtrace")


def parquet_of(rows):
    """Returns rows as the content of a Parquet file."""
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    out = io.BytesIO()
    parquet.write_table(table, out, compression="zstd")
    return out.getvalue()
