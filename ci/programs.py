"""Prints the rows of ci/programs.sh: evaluates the JSON of one `vmarea run`.

usage: programs.py head
       programs.py row NAME USER BEGIN END EXIT_STATUS REPORT
Exits with 1 if the report is missing or incomplete, if anything differs, if more than one result in ten thousand is
undecided as root, or if the run failed. An observer does not see in which order two threads did what does not take
mmap_lock for writing (MADV_DONTNEED beside munmap), so a busy machine can leave single results undecided.
"""

import json
import sys

COLUMNS = ["events", "calls", "faults", "lost", "opaque", "VMAs", "results", "differ", "undecided", "resyncs"]
FORMAT = "{:16}{:8}" + "{:>11}" * len(COLUMNS) + "{:>9}  {}"


def head():
    print(FORMAT.format("program", "user", *COLUMNS, "seconds", ""), flush=True)


def row(name, user, begun, ended, status, path):
    seconds = f"{float(ended) - float(begun):.1f}"
    try:
        with open(path) as file:
            report = json.load(file)
        if report["schema"] != 1:
            raise ValueError(f"schema {report['schema']}, not 1")
        verify = report["verify"]
        numbers = [report[key] for key in ("events", "calls", "faults", "lost", "opaque")]
        numbers += [
            verify[key]
            for key in ("vmas_compared", "results_compared", "differences", "undecided", "resyncs")
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(FORMAT.format(name, user, *["-"] * len(COLUMNS), seconds, f"FAILED: {error!r}, exit status {status}"))
        return 1

    faults = []
    if verify["differences"]:
        faults.append("differs")
    if user == "root" and verify["undecided"] * 10_000 > verify["results_compared"]:
        faults.append("undecided as root")
    if not verify["vmas_compared"]:
        faults.append("nothing was compared")
    if int(status) and not verify["differences"]:
        faults.append(f"exit status {status}")
    print(FORMAT.format(name, user, *numbers, seconds, "FAILED: " + ", ".join(faults) if faults else "ok"), flush=True)
    for key, value in (report.get("first_difference") or {}).items():
        print(f"    {key}: {value}", flush=True)
    return bool(faults)


sys.exit(head() if sys.argv[1] == "head" else row(*sys.argv[2:]))
