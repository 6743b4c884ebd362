"""The file with the results of hazards.py: a line for each target, to which all runs add.

Columns: time, kernel, seed, digest of the binary, activities, modes of the bully, load, way, merges, result, exit
statuses of the merges with their numbers, and the kills (hazards_kills.py), if there are any.
"""

import collections
import datetime
import hashlib
import pathlib
import platform

import hazards_kills

COLUMNS = 11


def digest(path):
    """Returns a name of a binary."""
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()[:12]


def record(arguments, run, activities, load, failure):
    """Adds a line to the results, and prints it."""
    columns = [datetime.datetime.now().isoformat(timespec="seconds"), platform.release(), str(run.seed),
               digest(run.vmarea), ",".join(run.activities or activities), ",".join(run.bully) or "-", str(load),
               run.by or "-", str(run.merges), failure or "passed",
               ",".join(f"{status}:{count}" for status, count in sorted(run.statuses.items()))]
    columns += [",".join(run.kills)] if run.kills else []
    line = "\t".join(column.replace("\t", " ").replace("\n", " ") for column in columns)
    results = pathlib.Path(arguments.results)
    results.parent.mkdir(parents=True, exist_ok=True)
    with open(results, "a") as file:
        file.write(line + "\n")
    kills = f"{len(run.kills):3} kills  " if run.kills else ""
    print(f"seed {run.seed:<10} {run.merges:4} merges  {run.statuses[0]:4} with status 0  {kills}{columns[4]:40} {columns[5]:30} {columns[9]}", flush=True)


def summarize(arguments):
    """Prints tables of all results of this binary."""
    table = collections.defaultdict(lambda: [0, 0, 0])
    statuses = collections.Counter()
    kills, disturbed, damaged = [], 0, 0
    for line in pathlib.Path(arguments.results).read_text().splitlines():
        columns = line.split("\t")
        if len(columns) not in (COLUMNS, COLUMNS + 1) or columns[3] != digest(arguments.vmarea):
            continue
        has_failed = columns[9] != "passed"
        for name in columns[4].split(",") + [f"bully {mode}" for mode in columns[5].split(",") if mode != "-"]:
            row = table[name]
            row[0] += 1
            row[1] += int(columns[8])
            row[2] += has_failed
        if set(hazards_kills.KILLS) & set(columns[5].split(",")):
            disturbed, damaged = disturbed + 1, damaged + has_failed
        for entry in filter(None, columns[10].split(",")):
            status, count = entry.split(":")
            statuses[int(status)] += int(count)
        kills += columns[COLUMNS].split(",") if len(columns) > COLUMNS else []
    print(f"{'':24}{'runs':>8}{'merges':>10}{'failed':>8}")
    for name, (runs, merges, failed) in sorted(table.items()):
        print(f"{name:24}{runs:8}{merges:10}{failed:8}")
    print("merges by exit status:", ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items())))
    if kills:
        hazards_kills.tell(kills, damaged, disturbed)
