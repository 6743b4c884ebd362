"""Makes pages of recorded programs with `--html`, and checks them in a browser.

usage: main.py VMAREA OUT PROGRAMS [--share]
  OUT       folder for the pages and the screenshots, which are kept for a person to look at
  PROGRAMS  folder with the compiled programs `many_vmas` and `churn`
"""

import argparse
import os
import pathlib
import subprocess
import sys

import bad
import checks
import controls
from browser import Browser

MOST_BYTES = 5 << 20
MOST_MILLISECONDS = 2000
WIDTHS = (1280, 390)

# Pages over time, from the corpus: name, and what the page must say at the top.
CORPUS = {
    "gcc": "mmap(file)",
    "redis": "mmap(file)",
    "java-zgc": "mmap(file)",
    "thousands-of-threads": "mprotect(PROT_READ|PROT_WRITE)",
}

# Those of the corpus that --share checks.
SHARE = {"gcc", "redis"}


def run(arguments):
    """Runs a command, which must succeed."""
    done = subprocess.run([str(word) for word in arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, arguments))} ended with {done.returncode}: {done.stderr[-500:]}"


def make_pages(vmarea, out, programs, share):
    """Yields (name, kind, text that must be there) for each page after it was made."""
    for name, most in CORPUS.items():
        if share and name not in SHARE:
            continue
        run([vmarea, "replay", f"corpus/{name}.vmtrace", "--html", out / f"{name}.html"])
        yield name, "film", most
    run([vmarea, "run", "--html", out / "stacks.html", "--", programs / "churn", "300", "8"])
    yield "stacks", "film", "make_pool"
    yield bad.markup(vmarea, out)
    run([vmarea, "explain", "--html", out / "explain.html", "--", programs / "churn", "300", "8"])
    yield "explain", "still", "make_pool"
    run([vmarea, "show", "graph", "--trace", "corpus/cow-children.vmtrace", "--html", out / "graph.html"])
    yield "graph", "graph", "families"
    run([vmarea, "compare", "corpus/gcc.vmtrace", "--policy", "linux", "--policy", "vmarea", "--html", out / "compare.html"])
    yield "compare", "static", "Kinds of difference"
    if share:
        return
    run([vmarea, "explain", "--pid", str(os.getpid()), "--html", out / "live.html"])
    yield "live", "still", f"process {os.getpid()}"
    run([vmarea, "show", "maps", "--pid", str(os.getpid()), "--html", out / "maps.html"])
    yield "maps", "still", "mappings"
    run([os.environ["LAB"], "experiment", "spacing", "--quick", "--html", out / "experiment.html"])
    yield "experiment", "static", "The paper's claims"
    run([vmarea, "run", "--html", out / "many.html", "--", programs / "many_vmas", "60000"])
    yield "many", "film", "mprotect(PROT_READ|PROT_WRITE)"
    run([vmarea, "record", "-o", out / "million.vmtrace", "--", programs / "churn", "29500", "32"])
    run([vmarea, "replay", out / "million.vmtrace", "--html", out / "million.html"])
    yield "million", "film", "Thinned"


def first_picture(browser, path):
    """Milliseconds until the first picture; of up to five loads the fastest, because other work may slow one down."""
    times = []
    for _ in range(5):
        browser.show(path, WIDTHS[0], "light")
        times.append(browser.time_of("first-picture"))
        if times[-1] is None or times[-1] <= MOST_MILLISECONDS:
            break
    return times[-1] if times[-1] is None else min(times)


def check(browser, path, kind, must_say, name, out):
    """Checks one page; returns a line with what was measured."""
    size = path.stat().st_size
    assert size <= MOST_BYTES, f"{size} bytes"
    browser.complaints()
    time = first_picture(browser, path)
    if kind != "static":
        assert time is not None and time <= MOST_MILLISECONDS, f"the first picture came after {time} ms"
    assert must_say in browser.ask("return document.body.innerText"), f"the page does not say {must_say!r}"
    for width in WIDTHS:
        for theme in ("light", "dark"):
            browser.show(path, width, theme)
            checks.fits(browser, width)
            checks.contrast(browser)
            checks.pictures(browser)
            browser.screenshot(out / f"{name}-{width}-{theme}.png")
    browser.show(path, WIDTHS[0], "light")
    checks.names(browser)
    reached = checks.keyboard(browser)
    checks.tables(browser)
    browser.show(path, WIDTHS[0], "dark")
    checks.printed(browser)
    browser.show(path, WIDTHS[0], "light")
    redraw = use(browser, kind)
    checks.quiet(browser)
    drawn = "" if time is None else f", first picture {time:.0f} ms, redraw {redraw or 0:.0f} ms"
    return f"{size / 1024:.0f} KiB{drawn}, {reached} controls by keyboard"


def use(browser, kind):
    """Uses all controls of a page; returns the time of a redraw."""
    if kind == "static":
        return None
    controls.view(browser, True)
    if kind != "graph":
        controls.flame_keys(browser)
    controls.find(browser)
    controls.pointer(browser)
    if kind != "film":
        return None
    controls.moments(browser)
    return controls.redraw(browser)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vmarea", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--share", action="store_true", help="the pages that take a few seconds")
    arguments = parser.parse_args()
    vmarea, out = arguments.vmarea.resolve(), arguments.out.resolve()
    failures = bad.refused(vmarea, out)
    pages = 0
    with Browser() as browser:
        for name, kind, must_say in make_pages(vmarea, out, arguments.programs.resolve(), arguments.share):
            pages += 1
            try:
                line = check(browser, out / f"{name}.html", kind, must_say, name, out)
                print(f"page: {name}: {line}", flush=True)
            except AssertionError as failure:
                failures.append(f"{name}: {failure}")
                print(f"page: {name}: FAILED: {failure}", file=sys.stderr, flush=True)
        for name, said in bad.pages(vmarea, out):
            browser.show(out / f"{name}.html", WIDTHS[0], "light")
            text = browser.ask("return document.body.innerText")
            complaints = browser.complaints()
            if said not in text or complaints:
                failures.append(f"{name}: does not say {said!r}, or complains: {complaints[:2]}")
            pages += 1
    for failure in failures:
        print(f"page: {failure}", file=sys.stderr)
    if failures:
        return 1
    print(f"page: ok, {pages} pages; screenshots in {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
