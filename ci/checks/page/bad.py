"""Bad input: names with markup in them, torn recordings, missing faults, a full disk."""

import os
import pathlib
import subprocess
import sys
import tempfile

MARKUP = "<script>document.title='run'</script>"
MAPS_A_FILE = """
import ctypes, mmap, sys
ctypes.CDLL(None).prctl(15, b"<b>thread</b>", 0, 0, 0)
with open(sys.argv[1], "r+b") as file:
    kept = [mmap.mmap(file.fileno(), 4096) for _ in range(3)]
"""

STRACE = """\
4242 1700000000.000001 execve("/bin/true", ["true"], 0x7ffd /* 1 var */) = 0
4242 1700000000.000101 mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000
4242 1700000000.000201 mprotect(0x7f0000000000, 4096, PROT_READ) = 0
4242 1700000000.000301 mprotect(0x7f0000000000, 4096, PROT_READ|PROT_WRITE) = 0
4242 1700000000.000401 exit_group(0) = ?
4242 1700000000.000501 +++ exited with 0 +++
"""


def markup(vmarea, out):
    """A program whose command line, file and thread have markup in their names."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, MARKUP)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(8192))
        command = [sys.executable, "-c", MAPS_A_FILE, str(path), "<img src=x onerror=\"document.title='run'\">"]
        subprocess.run([vmarea, "run", "--html", out / "markup.html", "--", *command], check=True, capture_output=True)
    return "markup", "film", MARKUP


def pages(vmarea, out):
    """Yields (name, text that the page must say) for recordings that lack something."""
    whole = pathlib.Path("corpus/redis.vmtrace").read_bytes()
    torn = out / "torn.vmtrace"
    torn.write_bytes(whole[: len(whole) * 2 // 3])
    subprocess.run([vmarea, "replay", torn, "--html", out / "torn.html"], capture_output=True, check=False)
    yield "torn", "The recording is torn"
    log, trace = out / "no-faults.strace", out / "no-faults.vmtrace"
    log.write_text(STRACE)
    subprocess.run([vmarea, "trace", "import", "--from", "strace", log, "-o", trace], check=True, capture_output=True)
    subprocess.run([vmarea, "replay", trace, "--html", out / "no-faults.html"], capture_output=True, check=False)
    yield "no-faults", "no page faults"
    yield "gcc", "There are no call stacks"


def refused(vmarea, out):
    """A disk that is full gives one line and no torn page; returns the failures."""
    failures = []
    replay = [vmarea, "replay", "corpus/redis.vmtrace", "--html"]
    done = subprocess.run([*replay, "/dev/full"], capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if "No space left" in line]
    if done.returncode != 1 or len(lines) != 1 or "/dev/full" not in lines[0]:
        failures.append(f"/dev/full: {done.returncode}, {done.stderr[-300:]}")
    if os.geteuid() != 0:
        return failures
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
        try:
            page = pathlib.Path(folder, "page.html")
            page.write_text(old := "<!doctype html>")
            done = subprocess.run([*replay, page], capture_output=True, text=True, check=False)
            left = {path.name: path.read_text() for path in pathlib.Path(folder).iterdir()}
            if done.returncode != 1 or "No space left" not in done.stderr or left != {"page.html": old}:
                failures.append(f"full disk: {done.returncode}, {done.stderr[-300:]}, left {list(left)}")
        finally:
            subprocess.run(["umount", folder], check=True)
    return failures
