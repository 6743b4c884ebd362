"""Names what hazards.py tests, so that its results add up over builds of the same sources.

usage: ci/checks/hazards/hazards_identity.py     prints the name of this checkout's sources
"""

import hashlib
import pathlib
import subprocess

# The code that acts on a living process, or on the merging one. What only reads (crates/process) is verified by it.
SYSTEM = ["agent", "calls", "child.rs", "inject.rs", "own_process", "own_session.rs", "ptrace.rs", "reaper.rs", "syscall_restart.rs", "task_status.rs", "uffd.rs"]
SOURCES = ["crates/repair/src", *(f"crates/linux-sys/src/{name}" for name in SYSTEM)]


def short_hash(data):
    return hashlib.sha256(data).hexdigest()[:12]


def of_file(path):
    """Returns a name of a binary."""
    return short_hash(pathlib.Path(path).read_bytes())


def of_sources():
    """Returns a name of the sources in the last commit; it says so if they have been changed since."""
    def git(*words):
        root = pathlib.Path(__file__).resolve().parents[3]
        return subprocess.run(["git", "-C", root, *words], check=True, stdout=subprocess.PIPE).stdout

    trees = git("rev-parse", *(f"HEAD:{path}" for path in SOURCES))
    return short_hash(trees) + "+dirty" * bool(git("status", "--porcelain", "--", *SOURCES))


if __name__ == "__main__":
    print(of_sources())
