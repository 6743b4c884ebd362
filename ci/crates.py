"""Writes crates/README.md from the crates' own documentation, or checks that it is current.

usage: ci/crates.py [--check]

Each crate gets the first paragraph of its root's module documentation and the first sentence of the
second. The crates are listed in the order in which they depend on each other, the lowest first.
"""

import json
import pathlib
import re
import subprocess
import sys

PAGE = pathlib.Path("crates/README.md")
HEAD = """# The crates

Generated from the crates' own documentation by `ci/crates.py`; `ci/layers.sh` checks that it is current
and that no crate depends on another one than its row says. A crate depends only on crates above it.

| crate | what it is | depends on |
|---|---|---|
"""


def documentation(path):
    """Returns the paragraphs of a file's module documentation, up to the first heading or picture."""
    lines = [line[3:].strip() for line in path.read_text().splitlines() if line.startswith("//!")]
    paragraphs = "\n".join(lines).split("\n\n")
    return [re.sub(r"\s+", " ", paragraph) for paragraph in paragraphs]


def summary(path):
    """Returns two sentences about a crate, without links that only rustdoc can follow."""
    first, second = documentation(path)[:2]
    sentence = re.match(r".*?\.(?= \S|$)", second)
    if not sentence or second.startswith("#"):
        sys.exit(f"crates: {path}: a second paragraph that begins with a sentence is missing")
    sentence = sentence.group()
    text = f"{first} {sentence}"
    return re.sub(r"\[(`[^`]*`)\](\([^)]*\))?", r"\1", text)


def rows():
    """Returns one table row for each crate, the lowest first."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"]
    packages = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["packages"]
    packages = [package for package in packages if "/crates/" in package["manifest_path"]]
    names = {package["name"] for package in packages}
    needs = {
        package["name"]: {one["name"] for one in package["dependencies"] if one["kind"] is None} & names
        for package in packages
    }
    root = {
        package["name"]: next(
            pathlib.Path(target["src_path"]).relative_to(pathlib.Path.cwd())
            for target in package["targets"]
            if {"lib", "cdylib", "bin"} & set(target["kind"])
        )
        for package in packages
    }
    done = []
    while len(done) < len(needs):
        done += sorted(name for name in needs if name not in done and needs[name] <= set(done))
    for name in done:
        folder = root[name].parts[1]
        others = ", ".join(root[other].parts[1] for other in done if other in needs[name]) or "-"
        yield f"| [`{folder}`]({folder}) | {summary(root[name])} | {others} |\n"


def main():
    page = HEAD + "".join(rows())
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != page:
            print(f"crates: {PAGE} is not current: run python3 ci/crates.py", file=sys.stderr)
            return 1
        print(f"crates: {PAGE} is current")
        return 0
    PAGE.write_text(page)
    return 0


sys.exit(main())
