"""The file with the results of hazards.py: a line for each target, to which all runs add.

Columns: time, kernel, seed, name of what was tested (hazards_identity.py), activities, modes of the bully, load, way,
merges, result, exit statuses of the merges with their numbers, and the kills (hazards_kills.py), if there are any.
Of merges from within, 0 counts the calls that joined something, 4 those that had nothing to join, and a negative errno
those that failed.
"""

import collections
import datetime
import pathlib
import platform

import hazards_kills

COLUMNS = 11


def record(arguments, run, activities, load, failure):
    """Adds a line to the results, and prints it."""
    columns = [datetime.datetime.now().isoformat(timespec="seconds"), platform.release(), str(run.seed),
               arguments.identity, ",".join(run.activities or activities), ",".join(run.bully) or "-", str(load),
               run.by, str(run.merges()), failure or "passed",
               ",".join(f"{status}:{count}" for status, count in sorted(run.statuses.items()))]
    columns += [",".join(run.kills)] if run.kills else []
    line = "\t".join(column.replace("\t", " ").replace("\n", " ") for column in columns)
    results = pathlib.Path(arguments.results)
    results.parent.mkdir(parents=True, exist_ok=True)
    with open(results, "a") as file:
        file.write(line + "\n")
    kills = f"{len(run.kills):3} kills  " if run.kills else ""
    print(f"seed {run.seed:<10} {run.by:6} {run.merges():4} merges  {run.statuses[0]:4} with status 0  {kills}{columns[4]:40} {columns[5]:30} {columns[9]}", flush=True)


class Row:
    """Sums of some of the lines."""

    HEAD = f"{'targets':>8}{'merges':>10}{'status 0':>10}{'kills':>8}{'failed':>8}"

    def __init__(self):
        self.targets = self.failed = 0
        self.statuses, self.kills = collections.Counter(), []

    def add(self, columns):
        self.targets += 1
        self.failed += columns[9] != "passed"
        for entry in filter(None, columns[10].split(",")):
            status, count = entry.split(":")
            self.statuses[int(status)] += int(count)
        self.kills += columns[COLUMNS].split(",") if len(columns) > COLUMNS else []

    def __str__(self):
        merges = sum(self.statuses.values())
        return f"{self.targets:8}{merges:10}{self.statuses[0]:10}{len(self.kills):8}{self.failed:8}"


def tell(title, rows):
    """Prints a table."""
    print(f"\n{title:32}{Row.HEAD}")
    for name, row in sorted(rows.items()):
        print(f"{name:32}{row}")


def summarize(arguments):
    """Prints tables of all results that have the identity of this run."""
    activities, ways, killed = collections.defaultdict(Row), collections.defaultdict(Row), Row()
    for line in pathlib.Path(arguments.results).read_text().splitlines():
        columns = line.split("\t")
        if len(columns) not in (COLUMNS, COLUMNS + 1) or columns[3] != arguments.identity:
            continue
        modes = [mode for mode in columns[5].split(",") if mode != "-"]
        for name in columns[4].split(",") + [f"bully {mode}" for mode in modes]:
            activities[name].add(columns)
        ways[f"{columns[7]}, Linux {columns[1]}"].add(columns)
        if set(hazards_kills.KILLS) & set(modes):
            killed.add(columns)
    tell("activity", activities)
    tell("way and kernel", ways)
    for name, row in sorted(ways.items()):
        print(f"{name}: merges by status:", ", ".join(f"{status}: {n}" for status, n in sorted(row.statuses.items())))
    if killed.kills:
        hazards_kills.tell(killed.kills, killed.failed, killed.targets)
