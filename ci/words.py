"""Checks the files in git: length, module docs, names, paths of a developer's machine."""

import pathlib
import re
import subprocess
import sys

FILE_LINES, FUNCTION_LINES = 500, 60
SOURCES = {".rs", ".c", ".h", ".py", ".sh"}

MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+|tmp/\w+\.\d)/")
# Names without meaning, or that imitate the kernel's private names.
EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "impls", "internal", "misc"}
FN = re.compile(r"^(\s*)(?:pub(?:\([^)]*\))? )?(?:const |unsafe |async |extern \"C\" )*fn (\w+)")
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


def long_functions(lines):
    """(name, first line, lines) of the functions that are too long; rustfmt sets the closing brace."""
    for start, line in enumerate(lines):
        found = FN.match(line)
        if not found:
            continue
        indent, name = found.groups()
        end = start
        while end < len(lines) and not lines[end].startswith(indent + "}"):
            # Skips declarations without a body, and bodies on one line.
            if re.search(r"[;}]$", lines[end]) and (end == start or lines[end].startswith(indent + ")")):
                break
            end += 1
        if end - start >= FUNCTION_LINES:
            yield name, start + 1, end - start + 1


def check_rust(path, text, folders):
    """Yields a message for each rule that a Rust file breaks; `folders` are those with Rust files."""
    lines = text.splitlines()
    for name, number, length in long_functions(lines):
        yield f"{path}:{number}: fn {name} has {length} lines, at most {FUNCTION_LINES}"
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
    lines = text.splitlines()
    if path.suffix in SOURCES and len(lines) > FILE_LINES:
        yield f"{path}: {len(lines)} lines, at most {FILE_LINES}"
    for number, line in enumerate(lines, 1):
        found = MACHINE_PATH.search(line)
        if found:
            yield f"{path}:{number}: a path of one machine: {found.group()}"


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
