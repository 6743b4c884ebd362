"""Writes the tables of crates/README.md and lab/README.md from the crates' own documentation, or checks them.

usage: ci/run crates [--check]

Each crate gets the first paragraph of its root's module documentation and the first sentence of the
second. The crates are listed in the order in which they depend on each other, the lowest first.
"""

import json
import pathlib
import re
import subprocess
import sys

# The folder of a workspace's crates, and the workspace.
FOLDERS = {"crates": "Cargo.toml", "lab": "lab/Cargo.toml"}
HEAD = "| crate | what it is | depends on |\n|---|---|---|\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")


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


def crates():
    """Returns the root and the needs of each crate of the workspaces, the lowest first."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked", "--manifest-path"]
    packages = {}
    for folder, manifest in FOLDERS.items():
        said = subprocess.run([*command, manifest], check=True, capture_output=True).stdout
        for package in json.loads(said)["packages"]:
            if pathlib.Path(package["manifest_path"]).relative_to(pathlib.Path.cwd()).parts[0] == folder:
                packages[package["name"]] = package
    found = {}
    while len(found) < len(packages):
        below = set(found)
        for name, package in sorted(packages.items()):
            needs = {one["name"] for one in package["dependencies"] if one["kind"] is None} & packages.keys()
            if name not in below and needs <= below:
                target = next(
                    target["src_path"]
                    for target in package["targets"]
                    if {"lib", "cdylib", "bin"} & set(target["kind"])
                )
                found[name] = pathlib.Path(target).relative_to(pathlib.Path.cwd()), needs
    return found


def rows(all_crates, folder):
    """Returns the table of the crates in a folder."""
    text = HEAD
    for root, needs in all_crates.values():
        if root.parts[0] == folder:
            names = ", ".join(other.parts[1] for name, (other, _) in all_crates.items() if name in needs)
            text += f"| [`{root.parts[1]}`]({root.parts[1]}) | {summary(root)} | {names or '-'} |\n"
    return text


def main():
    all_crates = crates()
    for folder in FOLDERS:
        page = pathlib.Path(folder, "README.md")
        old = page.read_text()
        new = TABLE.sub(lambda _: rows(all_crates, folder), old)
        if sys.argv[1:] != ["--check"]:
            page.write_text(new)
        elif old != new or HEAD not in old:
            print(f"crates: {page} is not current: run ci/run crates", file=sys.stderr)
            return 1
        else:
            print(f"crates: {page} is current")
    return 0


sys.exit(main())
