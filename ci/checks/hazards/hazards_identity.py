"""Names what hazards.py tests, so that its results add up over builds of the same sources.

usage: ci/checks/hazards/hazards_identity.py     prints the name of this checkout's sources
"""

import hashlib
import pathlib
import subprocess

# The code of a live merge.
SOURCES = ["crates/repair/src", "crates/linux-sys/src", "crates/process/src"]


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
