"""Counts the cache lines that two calls on separate ranges share, for each pair of calls and each kind of writers.

Prints docs/conflicts.md. Fails if fewer than 99 % of the pairs share no line with parts and arenas. Takes some minutes:
valgrind logs every access to memory. The program prints the address of its marks, and each pair of calls before it makes
the pair; the log has the accesses between the marks. Two calls conflict if both use a line of 64 bytes and at least one
of them writes it.

usage: ci/run conflicts > docs/conflicts.md
"""
import collections
import os
import subprocess
import sys

import prepare

LINE = 64
# The goal for parts with arenas, in per cent.
GOAL = 99

INTRODUCTION = """# Which calls share cache lines

Two calls that do not share a cache line, or only read those that they share, can run on two CPUs without waiting for
each other. `ci/run conflicts` makes each pair of the calls below, and prints this page. One thread makes the first call
and then another thread the second, on ranges that are gigabytes apart in one address space, or in two address spaces of
one machine. valgrind logs each access to memory. A *conflict* is a line of 64 bytes that both calls use and at least one
writes. Each thread has made its call twice before, so the log lacks what only a first call allocates. `munmap-found`
unmaps what a search has placed, in an arena at its end; `munmap` unmaps a range far from the ends of a part. Two `brk`
calls in one address space, and two calls of which each maps or unmaps at the highest free place of the same part, do not
commute and are left out. The method is that of COMMUTER (Clements et al.: *The Scalable Commutativity Rule*, SOSP 2013),
which found conflicts in the kernel; there, 68 % of Linux's tests had none, of other calls than these.

[Writers in parallel](writers.md) explains *one writer*, *parts* and *arenas*.
"""


class Calls:
    """The lines that each of the two calls of a pair uses and writes, with the instruction that did so first."""

    def __init__(self):
        self.uses = [{}, {}]
        self.writes = [{}, {}]

    def conflicts(self):
        """Yields (line, instruction that writes, other instruction that uses the line)."""
        for writer in (0, 1):
            for line, code in self.writes[writer].items():
                other = self.writes[1 - writer].get(line) or self.uses[1 - writer].get(line)
                if other is not None:
                    yield line, code, other


def pairs(log):
    """Yields (None, address of the marks), and then (pair, Calls) in the order of the log."""
    first, last, pair, calls, now, code = 0, 0, None, None, None, None
    for text in log:
        kind = text[:3]
        if kind == 'I  ':
            code = text
        elif kind in (' S ', ' L ', ' M '):
            address, size = text[3:].split(',')
            address = int(address, 16)
            if kind != ' L ' and first <= address < last:
                number = (address - first) // LINE
                now = None if number % 2 else number // 2
                if number == 3:
                    yield pair, calls
            elif now is not None:
                for line in range(address // LINE, (address + int(size) - 1) // LINE + 1):
                    calls.uses[now].setdefault(line, code)
                    if kind != ' L ':
                        calls.writes[now].setdefault(line, code)
        elif text.startswith('pair '):
            pair, calls = text.split()[1:], Calls()
        elif text.startswith('marks '):
            first = int(text.split()[1], 16)
            last = first + 4 * LINE
            yield None, first


class Symbols:
    """The functions of a program that was loaded at an address that is known from its marks."""

    def __init__(self, program, marks):
        names = subprocess.run(['nm', '-C', program], check=True, capture_output=True, text=True).stdout
        own = next(int(row.split()[0], 16) for row in names.splitlines() if row.endswith('::MARKS'))
        self.program, self.moved, self.known = program, marks - own, {}

    def name(self, code):
        """The innermost function of the project at an instruction, with its file and line."""
        address = int(code[3:].split(',')[0], 16) - self.moved
        if address not in self.known:
            told = subprocess.run(['addr2line', '-ifCe', self.program, hex(address)],
                                  check=True, capture_output=True, text=True).stdout.splitlines()
            frames = list(zip(told[::2], told[1::2]))
            ours = [frame for frame in frames if '/crates/' in frame[1] and 'primitive' not in frame[1]]
            function, place = (ours or frames or [('?', '?')])[0]
            place = place.split('/crates/')[-1].split(' ')[0]
            self.known[address] = f'`{function.split("<")[0].rstrip(":")}` ({place})'
        return self.known[address]


def measure(program, writers, placement):
    """Returns the lines that each pair of calls shares."""
    command = ["valgrind", "--tool=lackey", "--trace-mem=yes", "--log-fd=1", program, writers, placement]
    log = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    symbols, found = None, []
    for pair, calls in pairs(log.stdout):
        if pair is None:
            symbols = Symbols(program, calls)
            continue
        lines = {}
        for line, write, other in calls.conflicts():
            lines.setdefault(line, (symbols.name(write), symbols.name(other)))
        found.append((*pair, list(lines.values())))
    if log.wait() or not found:
        sys.exit('conflicts: the log has no pair')
    return {'writers': writers, 'placement': placement, 'pairs': found}


def free(pairs, where):
    """Returns how many of the pairs in `where` share no line, and how many there are."""
    counts = [len(lines) for *_, place, lines in pairs if place == where]
    return sum(count == 0 for count in counts), len(counts)


def page(results):
    named = {'mmap_lock': 'one writer', 'parts': 'parts'}
    print(INTRODUCTION)
    print('| writers | placement | one address space | two address spaces |\n|---|---|---:|---:|')
    missed = False
    for result in results:
        cells = []
        for where in ('same', 'different'):
            without, all_of = free(result['pairs'], where)
            cells.append(f'{100 * without / all_of:.1f} % ({without} of {all_of})')
            if (result['writers'], result['placement']) == ('parts', 'arena'):
                missed |= 100 * without < GOAL * all_of
        print('|', named[result['writers']], '|', result['placement'], '|', ' | '.join(cells), '|')
    print('\nThe share of the pairs without a conflict. The goal for parts with arenas is', GOAL, '%.')
    for result in results:
        for where, title in (('same', 'one address space'), ('different', 'two address spaces')):
            print(f'\n## {named[result["writers"]].capitalize()}, {result["placement"]} placement, {title}\n')
            section(result['pairs'], where)
    sys.exit(missed)


def section(pairs, where):
    """Prints the matrix of the pairs and the places in the code that share a line."""
    rows = {(a, b): lines for a, b, place, lines in pairs if place == where}
    if not any(rows.values()):
        print('No pair shares a line.')
        return
    order = list(dict.fromkeys(a for a, _ in rows))
    order += [b for _, b in rows if b not in order]
    print('Number of shared lines:\n\n| |', ' | '.join(order), '|')
    print('|---' + '|---:' * len(order) + '|')
    for row in order:
        cells = (rows.get((row, column), rows.get((column, row))) for column in order)
        print(f'| {row} |', ' | '.join('–' if lines is None else str(len(lines)) for lines in cells), '|')
    shared = collections.Counter()
    for lines in rows.values():
        shared.update({tuple(line) for line in lines})
    print('\n| written by | used by | pairs |\n|---|---|---:|')
    for (write, other), count in shared.most_common(12):
        print(f'| {write} | {other} | {count} |')
    if len(shared) > 12:
        print(f'\n{len(shared) - 12} more places share a line.')


def main():
    prepare.packages("valgrind", "binutils")
    os.environ |= {"CARGO_PROFILE_RELEASE_DEBUG": "line-tables-only", "CARGO_PROFILE_RELEASE_STRIP": "none",
                   "CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16"}
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", "lab/Cargo.toml",
                    "-p", "vmarea-experiments", "--example", "conflicts"], check=True)
    program = prepare.TARGET / "release/examples/conflicts"
    # In the order of the page.
    page([measure(program, writers, placement) for writers in ("mmap_lock", "parts") for placement in ("arena", "exact")])


main()
