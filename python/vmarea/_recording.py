"""The recorder in a process of its own.

The recorder waits for all children of its process and handles its signals, which would take the children and signals
of a Python program from it. So `run` starts this file as a program, which calls the native half and returns the
result through a pipe. The recorded program shares the standard streams of this process.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(function, arguments):
    """Calls a function of the native half in a process of its own; raises what it raises there.

    A Ctrl-C is meant for the recorded program. It becomes `KeyboardInterrupt` when the recording has ended.
    """
    from . import _errors

    read, write = os.pipe()
    with open(read) as answer:
        try:
            words = [sys.executable, os.path.abspath(__file__), str(write), function, json.dumps(arguments)]
            recorder = subprocess.Popen(words, pass_fds=[write])
        finally:
            os.close(write)
        interrupted = wait(recorder)
        said = answer.read()
    if interrupted:
        raise KeyboardInterrupt
    if not said:
        raise _errors.Error(f"the recorder has ended with status {recorder.returncode}")
    result = json.loads(said)
    if "error" in result:
        raise getattr(_errors, result["class"])(result["error"])
    return result["made"]


def wait(recorder):
    """Waits for the recorder; returns whether a Ctrl-C has arrived, which is passed on."""
    interrupted = False
    while True:
        try:
            recorder.wait()
            return interrupted
        except KeyboardInterrupt:
            interrupted = True
            # The terminal may have sent it to both; the recorder counts that as one.
            with contextlib.suppress(ProcessLookupError):
                recorder.send_signal(signal.SIGINT)


def main():
    """Records, and writes the result to the descriptor that the arguments name."""
    sys.path[0] = FOLDER
    from vmarea import _errors, _vmarea

    # The recorder handles it from here on; Python's handler would be called as well.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    write, function, arguments = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    os.set_inheritable(write, False)
    try:
        result = {"made": getattr(_vmarea, function)(**arguments)}
    except _errors.Error as error:
        result = {"class": type(error).__name__, "error": str(error)}
    except OverflowError:
        result = {"class": "UsageError", "error": "a number is too large or negative"}
    with open(write, "w") as answer:
        json.dump(result, answer)


if __name__ == "__main__":
    main()
