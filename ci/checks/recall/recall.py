"""Keeps where `vmarea-lab conform --recall` found each setting, and makes the table of docs/recall.md of it.

usage: recall.py [--write] REPORT.json...     reports of conform; --write keeps them and writes the table
       recall.py --check                      the table is made from what was kept
The exit status is 3 if a setting is neither found within 200,000 steps nor has a reason.
"""

import collections
import json
import pathlib
import re
import sys
import tomllib

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
KEPT = ROOT / "lab/results/recall.tsv"
TABLE = ROOT / "docs/recall.md"
BEGIN, END = "<!-- recall: made by `ci/run recall --write` -->", "<!-- end of recall -->"
HEAD = ["kernel", "seed", "steps", "setting", "instead of", "found after", "by"]
MOST_STEPS, MOST_REASONS = 200_000, 8


def kept():
    """Returns the kept rows."""
    lines = KEPT.read_text(encoding="utf-8").splitlines()[1:] if KEPT.exists() else []
    return [line.split("\t") for line in lines]


def rows_of(path):
    """Returns the rows of a report."""
    report = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    if report["differences"]:
        sys.exit(f"recall: {path} has differences: mend them first")
    head = [report["kernel"], str(report["seed"]), str(report["compared"])]
    for flip in report["recall"]:
        found = flip["found_after"] or ""
        yield [*head, flip["setting"], flip["instead_of"], str(found), flip["kind"] or ""]


def version(kernel):
    """Returns the part of a kernel's release that users know it by, as a key for sorting too."""
    return tuple(int(number) for number in re.match(r"(\d+)\.(\d+)", kernel).groups())


def by_rule(rows):
    """Returns {setting: {kernel: [(value, steps, kind)]}}; steps are 0 where nothing was found."""
    rules = collections.defaultdict(lambda: collections.defaultdict(list))
    for kernel, _, _, setting, _, found, kind in rows:
        name, _, value = setting.partition("=")
        rules[name][kernel].append((value, int(found or 0), kind))
    return rules


def soonest(of_kernels):
    """Returns (steps, kernel, value, kind) of the kernel on which a value was found first."""
    found = [(steps, kernel, value, kind) for kernel, all in of_kernels.items() for value, steps, kind in all if steps]
    return min(found, default=None)


def cell(values):
    """Returns the table's cell for a kernel: steps, for each other value."""
    texts = [f"{steps:,}" if steps else "–" for _, steps, _ in values]
    return ", ".join(texts)


def table(rows, reasons):
    """Returns the lines of the table, and what is wrong with them."""
    kernels = sorted({row[0] for row in rows}, key=version, reverse=True)
    names = [".".join(map(str, version(kernel))) for kernel in kernels]
    lines = [f"| setting | {' | '.join(names)} | the first difference |", "|---|" + "--:|" * len(kernels) + "---|"]
    wrong = []
    without = []
    for name, of_kernels in sorted(by_rule(rows).items()):
        first = soonest(of_kernels)
        cells = [cell(of_kernels[kernel]) if kernel in of_kernels else "" for kernel in kernels]
        if name in reasons:
            if first:
                wrong.append(f"{name} has a reason, and was found")
            without.append(name)
            shown = f"none: {reasons[name]}"
        elif not first or first[0] > MOST_STEPS:
            wrong.append(f"{name} is not found within {MOST_STEPS:,} steps, and has no reason")
            shown = "not found"
        else:
            steps, kernel, value, kind = first
            shown = f"`{name}={value}` on {'.'.join(map(str, version(kernel)))}: {kind.replace('|', '/')}"
        lines.append(f"| `{name}` | {' | '.join(cells)} | {shown} |")
    wrong += [f"{name} has a reason, and is no setting" for name in reasons if name not in by_rule(rows)]
    if len(without) > MOST_REASONS:
        wrong.append(f"{len(without)} settings have a reason; at most {MOST_REASONS} may")
    releases = ", ".join(f"{kernel} (seed {seed}, {int(steps):,} steps)" for kernel, seed, steps in sorted(
        {tuple(row[:3]) for row in rows}, key=lambda row: version(row[0]), reverse=True))
    total = len(by_rule(rows))
    head = [f"{total - len(without)} of {total} settings were found, on Linux {releases}.", ""]
    return head + lines, wrong


def main():
    arguments = sys.argv[1:]
    rows = kept()
    for path in (argument for argument in arguments if not argument.startswith("--")):
        new = list(rows_of(path))
        rows = [row for row in rows if row[0] != new[0][0]] + new
    reasons = tomllib.loads((HERE / "reasons.toml").read_text(encoding="utf-8"))
    lines, wrong = table(rows, reasons)
    text = TABLE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    made = "\n".join([before + BEGIN, "", *lines, "", END + after])
    if "--write" in arguments:
        KEPT.write_text("".join("\t".join(row) + "\n" for row in [HEAD, *rows]), encoding="utf-8")
        TABLE.write_text(made, encoding="utf-8")
    elif "--check" in arguments:
        if made != text:
            wrong.append("docs/recall.md is not what lab/results/recall.tsv gives")
        own = set(re.findall(r"\b[a-z_]+(?=,$)", rules_source(), re.M))
        names = {name.rpartition(".")[2] for name in by_rule(rows)}
        wrong += [f"{name} has no row: run ci/run recall --write" for name in sorted(own - names - {"advice", "dontunmap"})]
    else:
        print("\n".join(lines))
    for line in wrong:
        print(f"recall: {line}", file=sys.stderr)
    sys.exit(3 if wrong else 0)


def rules_source():
    """Returns the patterns that take `Rules` apart, in which no rule can be missing."""
    text = (ROOT / "crates/merge/src/policy/setting.rs").read_text(encoding="utf-8")
    patterns = re.findall(r"let (?:Rules|AdviceRules|DontunmapRules) \{\n(.*?)\} =", text, re.S)
    return "".join(re.sub(r"^.*: _,\n", "", pattern, flags=re.M).replace(" ", "") for pattern in patterns)


main()
