"""What the checks in Python need before they begin: programs, packages, a folder. ci/run puts this module in their path."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()
FILE = pathlib.Path(sys.argv[0])
NAME = FILE.parent.name if FILE.stem == "main" else FILE.stem

os.chdir(ROOT)
# Folders are removed at this end, too.
signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


def shell(*command, **environment):
    """Runs a function of prepare.sh or a script, which must succeed; returns what it prints."""
    done = subprocess.run(["bash", "-c", '. ci/lib/prepare.sh; "$@"', NAME, *command], cwd=ROOT,
                          env=os.environ | environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout.strip()


def skip(why):
    """Ends the check, which passes."""
    print(f"{NAME}: skipped: {why}")
    sys.exit()


def needs_root(why="needs root"):
    if os.geteuid():
        skip(why)


def packages(*names):
    """Installs what all checks need, and these packages of Debian."""
    shell("packages", *names)


def program(name="vmarea", profile=""):
    """Returns the path of the program that VMAREA or LAB names, or else builds it: see prepare.sh."""
    return shell("program", name, profile)


def compile(sources, out, *names):
    """Compiles programs of tests/programs."""
    shell("ci/lib/compile.sh", str(sources), str(out), *names)


@contextlib.contextmanager
def room(*compiled, profile="release", path=None):
    """Yields a folder that an ordinary user can read, unlike perhaps the checkout: with `vmarea`, the sources in
    `programs`, and those in `built` that are to be compiled. Debian's own programs come first in PATH from then on."""
    built = program(profile=profile)
    if path:
        os.mkdir(path)
    else:
        path = tempfile.mkdtemp()
    try:
        os.chmod(path, 0o755)
        shutil.copytree("tests/programs", f"{path}/programs", symlinks=True)
        shutil.copy(built, f"{path}/vmarea")
        os.mkdir(f"{path}/built")
        compile(f"{path}/programs", f"{path}/built", *compiled)
        subprocess.run(["chmod", "-R", "a+rX", path], check=True)
        os.environ["PATH"] = f"/usr/sbin:/usr/bin:/sbin:/bin:{os.environ['PATH']}"
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def in_venv(*names):
    """Begins the check anew with the packages of requirements.txt (venv.sh), after those of Debian."""
    packages(*names)
    venv = shell("ci/lib/venv.sh")
    if pathlib.Path(sys.prefix) != pathlib.Path(venv):
        os.execv(f"{venv}/bin/python", [f"{venv}/bin/python", "ci/run", NAME, "--", *sys.argv[1:]])


def leash(seconds):
    """Begins the check anew under ci/lib/leash.py."""
    if "LEASHED" not in os.environ:
        os.environ["LEASHED"] = "1"
        os.execv("ci/lib/leash.py", ["ci/lib/leash.py", str(seconds), "ci/run", NAME, "--", *sys.argv[1:]])
