"""Prints the figures that ci/kernel-figures.sh has measured as Markdown tables, with ratios to Linux.

usage: figures.py COUNT; each line on standard input is TEST WHO MODE FIGURE COUNTS NUMBER
"""

import sys

HEAD = """# Moves and page faults in an emulator

`ci/kernel-figures.sh` measures the same static program in `kernel/` and in Debian's Linux 6.12, both under QEMU, and
prints this page. The spacing test is that of the thesis "VMA merging in Linux" (Jakub Matěna, tables 4.2 and 4.3): mappings
of one page with gaps between them are moved next to each other; the thesis's kernel and the policies `thesis` and `vmarea`
then merge them. Page faults write to pages of anonymous memory for the first time.

Instructions are those of the whole machine, on one CPU (`-icount shift=0`), so two threads take turns. In `kernel/`
only the program runs, and the figures are the same from run to run. In Linux, kernel threads run in between, so its
figures vary: those of its spacing test by up to a factor of two, so the difference between the two columns of its row,
and between their ratios, is noise. Times are counts of the time stamp counter with 2 emulated CPUs; they depend on the
machine and on its load, and say little if the machine does other work. The second number is the ratio to Linux.

Linux does more at each system call and page fault than this kernel: accounting, control groups, auditing, memory
policies. QEMU counts each repetition of a string instruction: this kernel clears a page in 512 repetitions, and Linux,
where it clears by bytes (`rep stosb`), in 4,096, which is a part of its page faults.
"""

TITLES = {
    "spacing": "Spacing test: {} mappings are moved next to each other; in parentheses, the mappings that remain",
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
