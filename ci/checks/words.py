"""Checks the files in git: module docs, names, paths of a developer's machine, hosts of package registries."""

import pathlib
import re
import subprocess
import sys

MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+|tmp/\w+\.\d)/")
# Which mirror or registry serves a package is a setting of the machine; lock files are written by cargo.
REGISTRY = re.compile(
    r"\b(?:(?:deb|ftp|archive|snapshot|security|backports)\.(?:\w+\.)?debian|(?:archive|ports|security)\.ubuntu|(?:index\.|static\.)?crates|"
    r"(?:test\.)?pypi|(?:files\.)?pythonhosted|registry\.(?:npmjs|yarnpkg)|proxy\.golang|repo\.maven|rubygems|docker|ghcr)\.(?:org|com|io)\b"
)
# Names without meaning, or that imitate the kernel's private names.
EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "impls", "internal", "misc"}
# Names that also end with two underscores are Python's protocols.
BAD_FN = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:const |unsafe |async )*fn (do_\w+|__\w+(?<!__)\b)", re.MULTILINE)


def kept_files():
    """Returns the paths of tracked and untracked files; without git, all files except build output."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, check=True, capture_output=True, text=True)
        paths = [pathlib.Path(name) for name in listed.stdout.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [path for path in pathlib.Path(".").rglob("*") if path.parts[0] not in ("target", ".git")]
    return sorted(path for path in paths if path.is_file())


def check_rust(path, text, folders):
    """Yields a message for each rule that a Rust file breaks; `folders` are those with Rust files."""
    if not text.startswith("//!"):
        yield f"{path}: begins without a module doc"
    if path.with_suffix("") in folders:
        yield f"{path}: belongs in its module's folder, as mod.rs or main.rs"
    if path.stem in EMPTY_NAMES or EMPTY_NAMES & set(path.parts):
        yield f"{path}: a name that says nothing"
    for found in BAD_FN.finditer(text):
        yield f"{path}: fn {found.group(1)}: no do_ or __ names"


def check_any(path, text):
    """Yields a message for each rule that any text file breaks."""
    for number, line in enumerate(text.splitlines(), 1):
        found = MACHINE_PATH.search(line)
        if found:
            yield f"{path}:{number}: a path of one machine: {found.group()}"
        if path.name != "Cargo.lock" and (found := REGISTRY.search(line)):
            yield f"{path}:{number}: the host of a package registry: {found.group()}"


def main():
    findings = []
    files = kept_files()
    folders = {path.parent for path in files if path.suffix == ".rs"}
    for path in files:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if path.name != "words.py":
            findings += check_any(path, text)
        if path.suffix == ".rs":
            findings += check_rust(path, text, folders)
    for message in findings:
        print(f"words: {message}", file=sys.stderr)
    if findings:
        return 1
    print(f"words: ok, {len(files)} files")
    return 0


sys.exit(main())
