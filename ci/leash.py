#!/usr/bin/env python3
"""Runs a command for so long at most, and ends with it whatever it has left behind.

What a check starts, stops and traces can survive it, hang, or hold its output open, so that whoever reads
that waits for ever. Here the output goes through a pipe of ours, every orphan becomes our child, and at
the end all of them are named and killed. Status: the command's; 124 where the time was over.

usage: ci/leash.py SECONDS COMMAND [ARGUMENT...]
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
    """Every process below `pid`, parents first."""
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
    """Says what each process is and where in the kernel it is, innermost function first."""
    for pid in pids:
        state = first_line(f"/proc/{pid}/stat").rpartition(") ")[2][:1]
        if state in ("", "Z"):
            continue
        where = [line.split()[-1] for line in first_line(f"/proc/{pid}/stack").splitlines()[:4]]
        command = first_line(f"/proc/{pid}/cmdline")[:160]
        print(f"leash:   {pid} {state} {command}   {' < '.join(where)}", flush=True)


def end_all():
    """Kills what is left until nothing is, or what remains cannot be killed."""
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
    """Status of the child as a shell has it, 124 where the time was over. Orphans are taken in meanwhile."""

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
