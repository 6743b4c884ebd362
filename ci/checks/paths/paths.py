"""Prints what ci/run paths has counted as a Markdown table, with ratios to Linux.

usage: paths.py [--check]; each line on standard input is
  WHO instructions NAME: MEDIAN LEAST    or    WHO flushes NAME: ENTRIES WHOLE
With --check, exits with 3 if a row is above its limit.
"""

import re
import sys

HEAD = """# Path lengths

`ci/run paths` runs the same static program, `kernel/programs/paths.c`, in `kernel/` and in Debian's Linux 6.12, both in
QEMU with `-icount shift=0` and one CPU, and prints this page. Each row is the number of instructions of one call or one
access that faults, from user mode to user mode. Linux runs with `nopti mitigations=off transparent_hugepage=never`. The
CPU lacks `erms` and `fsrm`, so both kernels clear a page with 512 repetitions of `stosq` and copy it with 512 of
`movsq`, each of which counts.

In `kernel/` only the program runs; its figure is the median. In Linux, timers and kernel threads interrupt the
program, and the clock leaps while the CPU is idle; its figure is therefore the least of all. At each call Linux also
does work that `kernel/` does not: accounting, control groups, auditing, security modules.

*Flushed* is the number of entries that one call or fault removes from the TLB one by one, and of times that it flushes
the TLB as a whole, which includes every switch to another address space. In Linux they are those of the tracepoint
`tlb:tlb_flush`. A whole flush counts as much as 33 entries: Linux flushes the whole TLB if there are more.
"""

# The highest permitted ratio; a row without a limit here has `USUAL`.
USUAL = 0.8
FAULT = 0.5
EQUAL = 1.0
# Number of entries that a whole flush counts for (`tlb_single_page_flush_ceiling`).
WHOLE = 33


def limit_of(name):
    """Returns the highest permitted ratio of a row."""
    if name.startswith("write after"):
        return EQUAL
    return FAULT if "fault" in name else USUAL


def parse(lines):
    """Returns the two numbers of each row by what is counted, row and kernel, and the rows in order."""
    found, order = {}, []
    for line in lines:
        who, mode, name, one, other = re.match(r"(\S+) (\S+) (.*): (\S+) (\S+)$", line).groups()
        found[mode, name, who] = (float(one), float(other))
        if name not in order:
            order.append(name)
    return found, order


def amount(number):
    """A number of flushes, without decimals that say nothing."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


def weight(flushes):
    """Returns a number of flushed entries that is as costly as these entries and whole flushes."""
    entries, whole = flushes
    return entries + WHOLE * whole


def main():
    found, order = parse(sys.stdin)
    above = []
    print(HEAD)
    print("| call or access | Linux 6.12 | `kernel/` | ratio | limit | flushed, Linux | flushed, `kernel/` |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    settings = [name for name in order if name.startswith("=")]
    for name in order:
        if name in settings:
            continue
        linux, ours = found["instructions", name, "linux"][1], found["instructions", name, "ours"][0]
        limit = limit_of(name)
        if ours > limit * linux:
            above.append(name)
        cells = [name, f"{linux:,.0f}", f"{ours:,.0f}", f"{ours / linux:.2f}", f"{limit:.1f}"]
        for who in ("linux", "ours"):
            entries, whole = found["flushes", name, who]
            cells.append(f"{amount(entries)} + {amount(whole)} whole")
        theirs, own = (weight(found["flushes", name, who]) for who in ("linux", "ours"))
        if own > theirs:
            above.append(f"flushes of {name}")
        print("|", " | ".join(cells), "|")
    print()
    for name in settings:
        linux, ours = found["instructions", name, "linux"][1], found["instructions", name, "ours"][0]
        print(f"For comparison, {name[2:]} takes {linux:.0f} instructions in Linux and {ours:.0f} in `kernel/`.\\")
    print(f"Rows above their limit: {len(above)}.")
    for name in above:
        print(f"- {name}")
    if above and "--check" in sys.argv:
        sys.exit(3)


main()
