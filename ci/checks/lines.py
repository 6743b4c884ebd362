"""Counts the lines of code of each crate, and checks that none grows without a reason.

usage: ci/run lines                prints the table, and fails if the lines of a crate outside of its tests are more
                                  than its limit in ci/lines.tsv, or a commit raised a limit with no new reason
       ci/run lines --set REASON   sets each limit to the figure; REASON is why those grew that grew
       ci/run lines --long         lists the files above 500 lines and the functions above 60; never fails

A line counts unless it is blank or only a comment. Tests may grow freely. Two changes that were measured apart can be
above the limit together: whoever merges them sets it.
"""

import collections
import pathlib
import re
import subprocess
import sys

from circles import TEST_BLOCK, TEST_FILE

LIMITS = "ci/lines.tsv"
HEAD = "crate\tlimit\twhy it last grew\n"
COLUMNS = ("product", "tests", "laboratory", "kernel", "scripts")
# What a comment looks like in the files that are code, by suffix.
SLASHES = re.compile(r"^\s*//[^\n]*$|^\s*/\*.*?\*/[ \t]*$", re.MULTILINE | re.DOTALL)
HASHES = re.compile(r"^\s*#.*$", re.MULTILINE)
COMMENTS = dict.fromkeys((".rs", ".c", ".cc", ".h", ".js", ".css", ".s", ".go", ".java"), SLASHES)
COMMENTS |= dict.fromkeys((".py", ".sh"), HASHES)
# Code in a file whose name has no suffix.
RUNNER = pathlib.Path("ci/run")

FILE_LINES, FUNCTION_LINES = 500, 60
FN = re.compile(r"^(\s*)(?:pub(?:\([^)]*\))? )?(?:const |unsafe |async |extern \"C\" )*fn (\w+)")


def git(*arguments):
    """Returns what git prints, or an empty text if it fails."""
    return subprocess.run(["git", *arguments], capture_output=True, text=True).stdout


def sources():
    """Returns the files of code, with their text."""
    paths = [pathlib.Path(name) for name in git("ls-files", "-z").split("\0") if name]
    return {path: path.read_text() for path in paths if (path.suffix in COMMENTS or path == RUNNER) and path.is_file()}


def crate_of(path):
    """Returns the row of a file: a crate, or a folder of the top level."""
    return "/".join(path.parts[: 2 if path.parts[0] in ("crates", "lab") else 1])


def column_of(path):
    """Returns the column of a file; the test modules within it are counted apart."""
    first = path.parts[0]
    if {"tests", "benches", "examples", "programs"} & set(path.parts[:-1]):
        return "tests"
    if first in ("ci", "packaging", "docs") or path.suffix == ".sh":
        return "scripts"
    if first in ("lab", "fuzz"):
        return "laboratory"
    return "kernel" if first == "kernel" else "product"


def lines(path, text):
    """Returns the number of lines of code in a text."""
    return sum(map(bool, map(str.strip, COMMENTS.get(path.suffix, HASHES).sub("", text).splitlines())))


def count(files):
    """Returns {crate: {column: lines}}."""
    tests = set()
    for path, text in files.items():
        folder = path.parent if path.stem in ("mod", "lib", "main") else path.with_suffix("")
        tests |= {folder / name for name in TEST_FILE.findall(text)}
    table = collections.defaultdict(collections.Counter)
    for path, text in files.items():
        row = table[crate_of(path)]
        rest = "" if tests & {path.with_suffix(""), *path.parents} else TEST_BLOCK.sub("", text)
        row[column_of(path)] += lines(path, rest)
        row["tests"] += lines(path, text) - lines(path, rest)
    return table


def print_table(table):
    """Prints the rows and their sum."""
    total = sum(table.values(), collections.Counter())
    print("crate".ljust(22), *(name.rjust(10) for name in COLUMNS))
    for name, row in [*sorted(table.items()), ("all", total)]:
        print(name.ljust(22), *(f"{row[column] or '':>10}" for column in COLUMNS))


def limits_in(text):
    """Returns {crate: (limit, reason)} of the file's text."""
    rows = (line.split("\t") for line in text.splitlines()[1:])
    return {name: (int(limit), reason) for name, limit, reason in rows}


def raised(before, after):
    """Yields the crates whose limit is higher afterwards although the reason is the same, or none."""
    for name, (limit, reason) in after.items():
        old_limit, old_reason = before.get(name, (0, ""))
        if limit > old_limit and reason in ("", old_reason):
            yield name


def check(figures):
    """Yields what is wrong with the limits and with the commits that changed them."""
    limits = limits_in(pathlib.Path(LIMITS).read_text())
    for name, figure in figures.items():
        limit = limits.get(name, (0, ""))[0]
        if figure > limit:
            yield f"{name} has {figure} lines, and its limit is {limit}: shorten it, or ci/run lines --set REASON"
    at = lambda commit: limits_in(git("show", f"{commit}:{LIMITS}"))
    for name in raised(at("HEAD"), limits):
        yield f"{name}: say in {LIMITS} why its limit rises"
    for commit in git("log", "--no-merges", "--format=%h", "--", LIMITS).split():
        for name in raised(at(f"{commit}^"), at(commit)):
            yield f"{commit} raises the limit of {name} and does not say why"


def set_limits(figures, reason):
    """Writes the figures as limits; `reason` is for those that rise."""
    path = pathlib.Path(LIMITS)
    old = limits_in(path.read_text() if path.exists() else "")
    rows = (
        f"{name}\t{figure}\t{reason if figure > old.get(name, (0, ''))[0] else old[name][1]}\n"
        for name, figure in sorted(figures.items())
    )
    path.write_text(HEAD + "".join(rows))


def print_long(files):
    """Prints what is long; rustfmt sets the closing brace of a function."""
    for path, text in files.items():
        text = text.splitlines()
        if len(text) > FILE_LINES:
            print(f"{path}: {len(text)} lines")
        for start, line in enumerate(text if path.suffix == ".rs" else ()):
            found = FN.match(line)
            if not found:
                continue
            end = start
            while end < len(text) and not text[end].startswith(found[1] + "}"):
                # A declaration without a body, or a body on one line.
                if re.search(r"[;}]$", text[end]) and (end == start or text[end].startswith(found[1] + ")")):
                    break
                end += 1
            if end - start >= FUNCTION_LINES:
                print(f"{path}:{start + 1}: fn {found[2]}, {end - start + 1} lines")


def main():
    files = sources()
    if sys.argv[1:] == ["--long"]:
        return print_long(files)
    table = count(files)
    figures = {name: row.total() - row["tests"] for name, row in table.items()}
    figures = {name: figure for name, figure in figures.items() if figure}
    if sys.argv[1:2] == ["--set"] and len(sys.argv) == 3:
        return set_limits(figures, sys.argv[2])
    print_table(table)
    findings = list(check(figures))
    for finding in findings:
        print(f"lines: {finding}", file=sys.stderr)
    if not findings:
        print("lines: ok, no crate is above its limit")
    return bool(findings)


sys.exit(main())
