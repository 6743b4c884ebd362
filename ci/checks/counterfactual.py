"""Counts the merges that the kernel's rules refuse because of page offset or anon_vma, and other policies would make.

Records real programs, evaluates the other policies at every merge attempt of the replay, in the same state, and prints
the counts of each program and the share over all programs. Fails if this share is below 90 % for `thesis` or 99 % for
`vmarea`. Only root can see all pages.

usage: ci/run counterfactual -- [PROGRAM...]     ci/run counterfactual --list
       VMAREA=path/of/vmarea takes that binary instead of building one
"""

import glob
import json
import os
import subprocess
import sys
from collections import Counter

import prepare

LIBRARIES = f"/usr/lib/{os.uname().machine}-linux-gnu"

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


def commands(room, place):
    """Returns the command of each program, which runs in the folder `place`."""
    mimalloc = "".join(glob.glob(f"{LIBRARIES}/libmimalloc.so.2*")[:1])
    return {
        "gcc": ["gcc", "-O2", "-c", "-o", "big.o", f"{room}/built/big.c"],
        "make": ["make", "-j2", "-C", f"{room}/programs/project", f"OUT={place}/project"],
        "redis": [f"{room}/programs/redis.sh"],
        "jemalloc": ["env", f"LD_PRELOAD={LIBRARIES}/libjemalloc.so.2", f"{room}/built/allocate"],
        "mimalloc": ["env", f"LD_PRELOAD={mimalloc}", f"{room}/built/allocate"],
        "commit": [f"{room}/built/commit"],
    }


def record(room, name):
    """Runs a program; returns the JSON about it."""
    place, report = f"{room}/{name}", f"{room}/{name}.json"
    os.mkdir(place)
    command = ["timeout", "--kill-after=10", "600", f"{room}/vmarea", "run", f"--json={report}", "--", *commands(room, place)[name]]
    done = subprocess.run(command, cwd=place, env=os.environ | {"TMPDIR": place}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    # Status 3: something differs from the kernel; ci/run programs checks that.
    if done.returncode not in (0, 3):
        print(*done.stderr.splitlines()[-25:], sep="\n", file=sys.stderr)
        sys.exit(f"counterfactual: {name} ended with {done.returncode}")
    with open(report) as file:
        return json.load(file)


def main():
    known = list(commands("", ""))
    if sys.argv[1:] == ["--list"]:
        return print("\n".join(known))
    names = sys.argv[1:] or known
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"counterfactual: no program '{unknown[0]}': one of {' '.join(known)}")
    prepare.packages("libjemalloc2", "libmimalloc2.0")
    with prepare.room("allocate", "commit", "big.c") as room:
        return judge([(name, record(room, name)) for name in names])


def judge(reports):
    """Prints the tables; returns whether a share is below its goal."""
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
