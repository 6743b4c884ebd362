"""Compares what programs print in kernel/ and in Linux, program by program.

After each program, kernel/ checks that no frame was lost and that the core's structures are consistent.

usage: compare.py OURS LINUX EXCEPTIONS; exit 3 where something differs that is not listed, or a check fails.
       compare.py --checks OURS; only the checks
"""

import pathlib
import re
import sys

# Selftests print addresses and times, so only their verdicts are compared; those of LTP stand within a line.
VERDICT = re.compile(r"ok|not ok|Bail out|# Totals|.*\b(?=T(PASS|FAIL|BROK|CONF)\b)")


def sections(path):
    """The lines of each program, with its status at the end."""
    found, name = {}, None
    text = re.sub(r"\x1b\[[0-9;]*m", "", pathlib.Path(path).read_text(errors="replace"))
    for line in text.splitlines():
        if line.startswith("=== check ") or line.startswith("=== status"):
            found[name].append(line)
            # What follows, up to the next mark, is only for people.
            if line.startswith("=== check "):
                name = None
        elif line.startswith("=== "):
            name = line[4:]
            found[name] = []
        elif name is not None:
            found[name].append(line)
    return found


def verdicts(lines):
    """What is compared: all lines of a program of ours, the verdicts of a selftest."""
    tap = [line for line in lines if VERDICT.match(line)]
    if not tap:
        return lines
    if any(re.search(r"\bT(PASS|FAIL|BROK|CONF)\b", line) for line in tap):
        tap = [re.sub(r"^.*?\b(?=T(PASS|FAIL|BROK|CONF)\b)|0x[0-9a-f]+|\d+|LTP_\w+", "", line) for line in tap]
    return [re.sub(r"0x[0-9a-f]+|\d{4,}|\d+MB", "N", line) for line in [*tap, lines[-1]]]


def take_checks(found):
    """Removes the results of the checks; returns the failed ones by program."""
    failed = {}
    for name, lines in found.items():
        last = lines.pop() if lines and lines[-1].startswith("=== check ") else "=== check was not made"
        if last != "=== check ok":
            failed[name] = last.removeprefix("=== check ")
    return failed


def report_checks(found):
    """Prints the failed checks; returns how many there are."""
    failed = take_checks(found)
    for name, why in failed.items():
        print(f"{name:32} frames and structures afterwards: {why}")
    return len(failed)


def main():
    if sys.argv[1] == "--checks":
        return 3 if report_checks(sections(sys.argv[2])) else 0
    ours, linux = (sections(path) for path in sys.argv[1:3])
    unchecked = report_checks(ours)
    listed = {}
    for line in pathlib.Path(sys.argv[3]).read_text().splitlines():
        if line and not line.startswith("#"):
            name, reason = line.split(": ", 1)
            listed[name] = reason
    failed, same = [], 0
    # Exceptions are listed for all programs, of which only some may have run.
    for name in sorted(ours | linux):
        one, other = (verdicts(of.get(name, ["does not run"])) for of in (ours, linux))
        passes = sum(re.match(r"ok\b(?!.*SKIP)|TPASS", line) is not None for line in other)
        passes = passes or int(other[-1:] == ["=== status 0"])
        differs = one != other
        if differs != (name in listed):
            failed.append(name)
        same += not differs and passes > 0
        verdict = "differs" if differs else "same"
        why = listed.get(name, "not listed" if differs else "")
        print(f"{name:32} {verdict:8} {passes:4} passes in Linux  {why}")
        if differs and name not in listed:
            pairs = [pair for pair in zip(one, other) if pair[0] != pair[1]]
            for a, b in pairs[:3] or [(one[-1], other[-1])]:
                print(f"    here  {a}\n    Linux {b}")
    print(f"kernel: {same} programs with passes and the same results, {len(failed)} surprises, "
          f"{unchecked} failed checks")
    return 3 if failed or unchecked else 0


sys.exit(main())
