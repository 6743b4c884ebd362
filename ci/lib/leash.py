#!/usr/bin/env python3
"""Runs a command with a time limit, and kills every process that it leaves behind.

Processes that a check starts, stops or traces can survive the check, hang, or keep its output open, so that a
reader of the output waits forever. Here the output goes through a pipe of this script, every orphan becomes
a child of this script, and at the end all of them are listed and killed. The exit status is that of the
command, or 124 if the time limit was reached.

usage: ci/lib/leash.py SECONDS COMMAND [ARGUMENT...]
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

PR_SET_CHILD_SUBREAPER = 36


def descendants(pid):
    """Returns all descendants of process `pid`, parents first."""
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/children") as children:
                found += [int(child) for child in children.read().split()]
        except OSError:
            pass
    for child in found[:]:
        try:
            found += descendants(child)
        except OSError:
            pass
    return found


def first_line(path):
    try:
        with open(path, "rb") as file:
            return file.read(400).replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def name(pids):
    """Prints the command and the kernel stack of each process, innermost function first."""
    for pid in pids:
        state = first_line(f"/proc/{pid}/stat").rpartition(") ")[2][:1]
        if state in ("", "Z"):
            continue
        where = [line.split()[-1] for line in first_line(f"/proc/{pid}/stack").splitlines()[:4]]
        command = first_line(f"/proc/{pid}/cmdline")[:160]
        print(f"leash:   {pid} {state} {command}   {' < '.join(where)}", flush=True)


def end_all():
    """Kills the remaining processes until none is left, or until the rest cannot be killed."""
    until = time.monotonic() + 10
    while (left := descendants(os.getpid())) and time.monotonic() < until:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.05)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def wait(child, seconds):
    """Returns the child's exit status as in a shell, or 124 at the time limit. Reaps orphans while it waits."""

    def stop(number, _frame):
        raise TimeoutError(number)

    for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        ended = 0
        while ended != child:
            ended, status = os.waitpid(-1, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code
    except TimeoutError as stopped:
        number = stopped.args[0]
        return 124 if number == signal.SIGALRM else 128 + number
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main():
    seconds, command = float(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def copy():
        while data := os.read(child.stdout.fileno(), 1 << 16):
            while data:
                data = data[os.write(1, data) :]

    copying = threading.Thread(target=copy, daemon=True)
    copying.start()
    status = wait(child.pid, seconds)
    if left := descendants(os.getpid()):
        what = f"not over after {seconds:.0f} s" if status == 124 else "has left behind"
        print(f"leash: {' '.join(command)}: {what}", flush=True)
        name(left)
        end_all()
    copying.join(5)
    # Otherwise the child's object would complain that its status was already collected.
    os._exit(status)


if __name__ == "__main__":
    main()
