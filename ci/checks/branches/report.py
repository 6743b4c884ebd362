"""Makes the table of branches of ci/checks/branches from the results of gcov, as a section of docs/evidence.md.

A branch is one direction of one condition, as gcov counts them. It is named by the function, the line from the
function's first one, and its number in that line.

usage: report.py GCOV.json KERNEL SEED REPLAYED PACKAGE
"""

import collections
import json
import pathlib
import sys
import tomllib

HERE = pathlib.Path(__file__).parent
MOST_EXCLUDED, LEAST_REACHED = 0.10, 0.90


def branches_of(results, left_out):
    """Returns {function: {line from its first: [times taken]}} of mm/vma.c, without the functions that are left out."""
    file = next(f for f in results["files"] if f["file"].endswith("mm/vma.c"))
    first = {f["name"]: f["start_line"] for f in file["functions"]}
    found = collections.defaultdict(dict)
    for line in file["lines"]:
        taken = [b["count"] for b in line["branches"] if not b["throw"]]
        name = line.get("function_name")
        if taken and name not in left_out:
            found[name][line["line_number"] - first[name]] = taken
    return dict(sorted(found.items(), key=lambda item: first[item[0]]))


def excluded_of(rows, branches, wrong):
    """Returns {(function, line, number): reason}. A row names lines, `12`, or single branches of them, `12.1`."""
    excluded = {}
    for row in rows:
        for name in row["lines"].split():
            line, _, number = name.partition(".")
            taken = branches.get(row["function"], {}).get(int(line), [])
            if not taken or number and int(number) >= len(taken):
                wrong.append(f"{row['function']}+{name} is excluded and is no branch")
                continue
            numbers = [int(number)] if number else [n for n in range(len(taken)) if not taken[n]]
            for n in numbers:
                excluded[row["function"], int(line), n] = row["why"]
                if taken[n]:
                    wrong.append(f"{row['function']}+{line}.{n} is excluded and was reached {taken[n]} times")
    return excluded


def listed(function, lines, excluded):
    """Returns how many branches of a function are reached, missed and excluded, and the list of its branches."""
    counts = collections.Counter()
    cells = []
    for line, taken in sorted(lines.items()):
        missed = []
        for number, times in enumerate(taken):
            if times:
                counts["reached"] += 1
            elif (function, line, number) in excluded:
                counts["excluded"] += 1
            else:
                counts["missed"] += 1
                missed.append(number)
        reached = sum(times > 0 for times in taken)
        text = f"{line}: {reached}/{len(taken)}"
        cells.append(f"**{text}** ({', '.join(f'.{n}' for n in missed)})" if missed else text)
    return counts, ", ".join(cells)


def main():
    results, kernel, seed, replayed, package = sys.argv[1:]
    table = tomllib.loads((HERE / "branches.toml").read_text())
    left_out = {name for row in table["out"] for name in row["functions"].split()}
    branches = branches_of(json.loads(pathlib.Path(results).read_text()), left_out)
    wrong = []
    excluded = excluded_of(table["excluded"], branches, wrong)
    total = collections.Counter()
    rows = []
    for function, lines in branches.items():
        counts, cell = listed(function, lines, excluded)
        total += counts
        rows.append(f"| `{function}` | {sum(counts.values())} | {counts['reached']} | {counts['missed'] or ''} | "
                    f"{counts['excluded'] or ''} | {cell} |")
    count, others = sum(total.values()), sum(total.values()) - total["excluded"]
    print(f"\nSequences of seed {seed} on Linux {kernel}, replayed in `mm/vma.c` of `{package}`:\n{replayed.strip()}. Of")
    print(f"{count} branches {total['excluded']} are excluded ({total['excluded'] / count:.1%}); of the other {others} "
          f"the calls reach {total['reached']} ({total['reached'] / others:.1%}).")
    print("\n| excluded | why no call of a sequence reaches it |\n|--:|---|")
    for why, times in collections.Counter(excluded.values()).most_common():
        print(f"| {times} | {table['reasons'][why]} |")
    print("\n| left out, as functions | why |\n|---|---|")
    for row in table["out"]:
        print(f"| {', '.join(f'`{name}`' for name in row['functions'].split())} | {row['why']} |")
    print("\n| function | branches | reached | missed | excluded | line from the function's first: reached/branches |")
    print("|---|--:|--:|--:|--:|---|")
    print("\n".join(rows))
    if total["excluded"] > MOST_EXCLUDED * count:
        wrong.append(f"{total['excluded']} of {count} branches are excluded, more than {MOST_EXCLUDED:.0%}")
    if total["reached"] < LEAST_REACHED * others:
        wrong.append(f"{total['reached']} of {others} branches are reached, less than {LEAST_REACHED:.0%}")
    for what in wrong:
        print(f"branches: {what}", file=sys.stderr)
    sys.exit(bool(wrong))


main()
