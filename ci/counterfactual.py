"""Prints the tables of ci/counterfactual.sh from the JSON of `vmarea run` for each program.

usage: counterfactual.py NAME=REPORT...
Exits with 1 if the share over all programs is below its goal.
"""

import json
import sys
from collections import Counter

GOALS = {"thesis": 0.90, "vmarea": 0.99}
POLICIES = ["linux", "linux-5.10", "thesis", "vmarea"]


def counts(reasons):
    return ", ".join(f"{n} {reason}" for reason, n in sorted(reasons.items())) or "none"


def table(programs, pooled):
    print("Anonymous merges that the kernel's rules refuse for page offset or anon_vma, and what became of them")
    print(f"{'program':12}{'refused':>9}  {'policy':12}{'merged':>9}{'share':>9}  the rest")
    for name, refused, policies in programs + [("all", *pooled)]:
        total = sum(refused.values())
        print(f"{name:12}{total:>9}  refused: {counts(refused)}")
        for policy, (merged, rest) in sorted(policies.items()):
            share = f"{merged / total:.1%}" if total else "-"
            print(f"{'':12}{'':9}  {policy:12}{merged:>9}{share:>9}  {counts(rest)}")


def vmas(reports):
    print("\nVMAs of all address spaces: at the peak, and at their ends")
    print(f"{'program':12}" + "".join(f"{policy:>22}" for policy in POLICIES))
    for name, report in reports:
        cells = []
        for policy in POLICIES:
            made = report["policies"][policy]
            cells.append(f"{made['vmas_peak']:,} / {made['vmas_exit']:,}")
        print(f"{name:12}" + "".join(f"{cell:>22}" for cell in cells))


def main():
    reports = []
    for argument in sys.argv[1:]:
        name, path = argument.split("=", 1)
        with open(path) as file:
            reports.append((name, json.load(file)))
    programs = []
    pooled = (Counter(), {})
    for name, report in reports:
        told = report["counterfactual"]
        policies = {}
        for policy, made in told["policies"].items():
            policies[policy] = (made["merged"], made["refused"])
            merged, rest = pooled[1].get(policy, (0, Counter()))
            pooled[1][policy] = (merged + made["merged"], rest + Counter(made["refused"]))
        pooled[0].update(told["refused"])
        programs.append((name, told["refused"], policies))
    table(programs, pooled)
    vmas(reports)
    total = sum(pooled[0].values())
    bad = 0
    for policy, goal in GOALS.items():
        merged = pooled[1].get(policy, (0, None))[0]
        if merged < goal * total:
            print(f"counterfactual: {policy} makes {merged} of {total}, the goal is {goal:.0%}", file=sys.stderr)
            bad = 1
    return bad


sys.exit(main())
