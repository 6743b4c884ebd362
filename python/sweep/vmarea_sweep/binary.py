"""The program `vmarea`, whose JSON a task reads.

VMAREA names the program; otherwise it is found on PATH. Every node of a cluster needs the same version.
"""

import json
import os
import shutil
import subprocess


class BadTrace(Exception):
    """The trace cannot be replayed; the text is that of `vmarea`."""


class Missing(Exception):
    """There is no program `vmarea`; the text is for the user."""


class WrongPolicy(Exception):
    """A policy has no meaning; the text is that of `vmarea`."""


def path():
    found = os.environ.get("VMAREA") or shutil.which("vmarea")
    if not found:
        raise Missing("the program vmarea is not on PATH: install it, or name it by VMAREA=/path/to/vmarea")
    return found


def version():
    try:
        said = subprocess.run([path(), "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"cannot run vmarea: {error}") from error
    return said.split()[-1]


def run(*arguments, incomplete=None):
    """Returns the JSON of a command, and its notes.

    `incomplete` is the status of the command if the trace could only be read in part; it has printed JSON even so.
    Raises `BadTrace` if it fails, `WrongPolicy` for wrong arguments, `OSError` if it cannot run or is killed.
    """
    done = subprocess.run([path(), *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    # 3: the core differs from the kernel, or the policies differ; the JSON says how.
    if done.returncode in (0, 3) or done.returncode == incomplete and done.stdout:
        return json.loads(done.stdout), done.stderr
    if done.returncode < 0:
        raise OSError(f"vmarea was killed by signal {-done.returncode} (out of memory?)")
    said = done.stderr.split("\n\nFor more information")[0].strip().removeprefix("vmarea: ").removeprefix("error: ")
    raise (WrongPolicy if done.returncode == 2 else BadTrace)(said or f"vmarea has ended with status {done.returncode}")


def check(policies):
    """Raises `WrongPolicy` if a policy has no meaning, which is noticed before a trace is read."""
    try:
        run("replay", os.devnull, "--json", *flags(policies))
    except BadTrace:
        pass


def flags(policies):
    return [word for policy in policies for word in ("--policy", policy)]
