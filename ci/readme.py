#!/usr/bin/env python3
"""Keeps the output that README.md shows true.

Runs docs/example/pages.py, and `vmarea explain` on it, and writes the output and docs/anatomy.svg.
With --check, it compares the form: every word, but no number.

usage: ci/readme.py VMAREA [--check]
"""

import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- written by ci/readme.py -->\n```text\n)(.*?)(```\n)", re.DOTALL)


def form(text):
    """The lines without their numbers, and without what changes from run to run: examples in parentheses, the
    order of reasons that are equally frequent, the widths of columns."""
    text = re.sub(r"less than |about |\(.*?\)", "", text)
    text = re.sub(r"[\d,.]+( (ms|s|µs|KiB|MiB|GiB))?", "N", text)
    return sorted(re.sub(r" +", " ", line) for line in text.splitlines())


def explained(vmarea):
    """What `vmarea explain` prints about the example, after the command."""
    example = [sys.executable, str(TOP / "docs/example/pages.py")]
    with subprocess.Popen(example, stdout=subprocess.PIPE, text=True) as process:
        try:
            process.stdout.readline()
            command = [vmarea, "explain", "-p", str(process.pid)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        finally:
            process.kill()
    return f"$ vmarea explain -p {process.pid}\n{done.stdout}"


def main():
    """Writes or checks the block of README.md, and the picture."""
    vmarea, *options = sys.argv[1:]
    readme = TOP / "README.md"
    text = readme.read_text(encoding="utf-8")
    block = BLOCK.search(text)
    if not block:
        sys.exit("readme: README.md has no block for the output of explain")
    output = explained(vmarea)
    if options == ["--check"]:
        if form(output) != form(block[2]):
            sys.exit(f"readme: explain prints something else now; run ci/readme.py VMAREA:\n{output}")
        if not (TOP / "docs/anatomy.svg").read_text(encoding="utf-8").startswith("<svg"):
            sys.exit("readme: docs/anatomy.svg is not a picture")
        print("readme: ok")
        return
    readme.write_text(text[: block.start(2)] + output + text[block.end(2) :], encoding="utf-8")
    picture = [vmarea, "show", "anatomy", "--svg", str(TOP / "docs/anatomy.svg"), "--", "sleep", "0"]
    subprocess.run(picture, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
