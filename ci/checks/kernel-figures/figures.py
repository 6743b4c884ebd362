"""Prints the figures that ci/run kernel-figures has measured as Markdown tables, with ratios to Linux.

usage: figures.py COUNT; each line on standard input is TEST WHO MODE FIGURE COUNTS NUMBER
"""

import sys

HEAD = """# Moves and page faults in an emulator

`ci/run kernel-figures` runs the same static program in `kernel/` and in Debian's Linux 6.12, both under QEMU, and
prints this page. The spacing test is taken from the thesis "VMA merging in Linux" (Jakub Matěna, tables 4.2 and 4.3):
one-page mappings with gaps between them are moved next to each other. The thesis's kernel and the policies `thesis` and
`vmarea` then merge these mappings. The page-fault test writes to each page of new anonymous memory once.

Instructions are counted in the whole machine, which then has one CPU (`-icount shift=0`), so two threads take turns. In
`kernel/` only the program runs, and every run gives the same figures. In Linux, kernel threads also run, so its figures
vary: in the spacing test by up to a factor of two. The difference between the two figures of Linux there, and therefore
between the ratios in the two columns, is noise. Times are read from the time stamp counter with 2 emulated CPUs; they
depend on the machine and on its load. The second number in each cell is the ratio to Linux, and a number in parentheses
is the number of mappings at the end.

At each system call and page fault, Linux does work that this kernel does not: accounting, control groups, auditing, memory
policies. QEMU counts each repetition of a string instruction. This kernel clears a page in 512 repetitions; Linux needs
4,096 if it clears the page byte by byte (`rep stosb`), and these are included in the figures for its page faults.
"""

TITLES = {
    "spacing": "Spacing test: {} mappings moved next to each other",
    "faults": "Page faults: {} pages of each thread",
}
NAMES = {
    "same": "one anon_vma",
    "different": "different anon_vmas",
    "one_thread": "one thread",
    "two_own": "two threads, a VMA each",
    "two_shared": "two threads, one VMA",
}
LOCKS = {
    "default": "Linux's lock since 6.15",
    "mmap": "`mmap_lock` only",
    "flagged": "counter with a flag",
    "aligned": "read-write lock in the VMA",
    "boxed": "read-write lock, allocated",
}


def cell(test, value, linux):
    """One figure, its ratio to Linux, and for the spacing test what is left."""
    counts, number = value
    left = f" ({number})" if test == "spacing" else ""
    return f"{counts / 1e6:.2f} M, {counts / linux[0]:.2f}{left}"


def main():
    found = {}
    for line in sys.stdin:
        test, who, mode, figure, counts, number = line.split()
        found.setdefault((test, mode), {}).setdefault(who, {})[figure] = (int(counts), int(number))
    print(HEAD, end="")
    for (test, mode), rows in found.items():
        figures = list(rows["Linux"])
        print(f"\n## {TITLES[test].format(sys.argv[1])}, {mode}\n")
        print(f"| {'policy' if test == 'spacing' else 'VMA lock'} |", " | ".join(NAMES[f] for f in figures), "|")
        print("|---" * (len(figures) + 1) + "|")
        for who, values in rows.items():
            name = "Linux 6.12" if who == "Linux" else LOCKS.get(who, f"`{who}`")
            print(f"| {name} |", " | ".join(cell(test, values[f], rows["Linux"][f]) for f in figures), "|")


main()
