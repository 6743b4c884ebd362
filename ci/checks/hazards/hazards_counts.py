"""Keeps the sums of results files (hazards_results.py) in counts.tsv, which is committed, and prints the table of all.

usage: python3 ci/checks/hazards/hazards_counts.py [RESULTS...]

A row is what one results file has of one tested state, kernel and way; it replaces the row with the same beginning. Only
`status 0` and `killed` are merges that were at work; the other ones were refused, or found nothing to do.
"""

import collections
import pathlib
import signal
import sys

import hazards_identity
from hazards_results import Row

FILE = pathlib.Path(__file__).with_name("counts.tsv")
HEAD = ["tested", "kernel", "way", "begun", "ended", "seeds", "targets", "merges", "status 0", "killed", "failed", "failures"]
KEY = 4
NUMBERS = slice(6, 11)


def kept():
    """Returns the rows of counts.tsv by their keys."""
    lines = FILE.read_text(encoding="utf-8").splitlines()[1:] if FILE.exists() else []
    rows = [line.split("\t") for line in lines]
    return {tuple(row[:KEY]): row for row in rows}


def sums(path):
    """Returns the rows for a results file."""
    groups = collections.defaultdict(list)
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        columns = line.split("\t")
        groups[columns[3], columns[1], columns[7]].append(columns)
    for (tested, kernel, way), lines in groups.items():
        row = Row()
        for columns in lines:
            row.add(columns)
        failures = [f"seed {columns[2]}: {columns[9]}" for columns in lines if columns[9] != "passed"]
        times, seeds = [columns[0] for columns in lines], [int(columns[2]) for columns in lines]
        numbers = row.targets, row.statuses.total(), row.statuses[0], row.statuses[-signal.SIGKILL], row.failed
        yield [tested, kernel, way, min(times), max(times), f"{min(seeds)}-{max(seeds)}", *map(str, numbers), "; ".join(failures)]


def main():
    rows = kept()
    for path in sys.argv[1:]:
        rows |= {tuple(row[:KEY]): row for row in sums(path)}
    if sys.argv[1:]:
        FILE.write_text("".join("\t".join(row) + "\n" for row in [HEAD, *sorted(rows.values())]), encoding="utf-8")
    totals = collections.defaultdict(collections.Counter)
    for row in rows.values():
        totals[tuple(row[:3])].update(dict(zip(HEAD[NUMBERS], map(int, row[NUMBERS]))))
    print(f"{'tested':14}{'kernel':26}{'way':8}" + "".join(f"{name:>10}" for name in HEAD[NUMBERS]))
    for (tested, kernel, way), counts in sorted(totals.items()):
        mark = "*" * (tested == hazards_identity.of_sources())
        print(f"{tested + mark:14}{kernel:26}{way:8}" + "".join(f"{counts[name]:10}" for name in HEAD[NUMBERS]))
    print("* these sources")


if __name__ == "__main__":
    main()
