"""Checks that the targets of relative links and the paths in backticks in the documentation exist.

Text in backticks counts as a path if its first part is a folder of the repository; braces represent several
paths, and a line number or an anchor after it is ignored. The changelog may name what is no longer there. A check that
the documentation runs by `ci/run` must exist, too.
"""

import itertools
import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:crates|lab|ci|docs|tests|fuzz|\.ci)/[\w./{},*-]+)")
CHECK = re.compile(r"\bci/run ([a-z][\w-]*)")


def spread(path):
    """Returns the paths that a path with braces represents."""
    parts = [part.split(",") for part in re.split(r"\{([^}]*)\}", path)]
    # Text outside of braces may contain commas; it is a single alternative.
    choices = [part if index % 2 else [",".join(part)] for index, part in enumerate(parts)]
    return ["".join(choice) for choice in itertools.product(*choices)]


def missing(page):
    """Yields a message for each target of `page` that does not exist."""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        targets = [(target, page.parent / target) for target in LINK.findall(line)]
        targets += [(f"the check {name}", pathlib.Path(f"ci/checks/{name}*")) for name in CHECK.findall(line)]
        for written in PATH.findall(line) if page.name != "CHANGELOG.md" else ():
            targets += [(path, pathlib.Path(path)) for path in spread(written.rstrip(".,"))]
        for written, path in targets:
            there = list(path.parent.glob(path.name)) if "*" in path.name else [path] if path.exists() else []
            if not there:
                yield f"{page}:{number}: {written} does not exist"


def main():
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], check=True, capture_output=True, text=True)
    pages = [pathlib.Path(name) for name in listed.stdout.split("\0") if name and pathlib.Path(name).exists()]
    findings = [message for page in pages for message in missing(page)]
    for message in findings:
        print(f"links: {message}", file=sys.stderr)
    if findings:
        return 1
    print(f"links: ok, {len(pages)} pages")
    return 0


sys.exit(main())
