"""A web server under load: starts the server, requests files from it in four threads, and checks every byte.

usage: serve.py SECONDS COMMAND [ARGUMENT...]
In the command, {port} is a free port of 127.0.0.1 and {files} is the folder of the files; the folder is also the
server's current directory. Prints the number of requests. Exits with 1 if an answer was wrong, or if the server
ended early or did not end on SIGTERM.
"""

import hashlib
import http.client
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

THREADS = 4
SIZES = [100, 5_000, 70_000, 1_500_000]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_files(folder):
    """Writes files of pseudo-random bytes; returns their names with their hashes."""
    dice = random.Random(7)
    hashes = {}
    for number, size in enumerate(SIZES):
        content = dice.randbytes(size)
        (folder / f"file{number}.bin").write_bytes(content)
        hashes[f"file{number}.bin"] = hashlib.sha256(content).hexdigest()
    return hashes


def wait_for(port, server):
    """Waits until the server accepts connections."""
    until = time.monotonic() + 60
    while time.monotonic() < until and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"serve: no server on port {port}, exit status {server.poll()}")


def load(port, hashes, until, seed, answers, faults):
    """Requests files in random order, each over a new connection, until the time is up or an answer is wrong."""
    dice = random.Random(seed)
    while time.monotonic() < until:
        name = dice.choice(sorted(hashes))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET", "/" + name)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200 or hashlib.sha256(body).hexdigest() != hashes[name]:
                faults.append(f"{name}: status {answer.status}, {len(body)} bytes")
        except (OSError, http.client.HTTPException) as error:
            faults.append(f"{name}: {error!r}")
        finally:
            connection.close()
        if faults:
            return
        answers.append(name)


def main():
    seconds, command = float(sys.argv[1]), sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder).chmod(0o755)
        hashes = make_files(pathlib.Path(folder))
        port = free_port()
        command = [word.replace("{port}", str(port)).replace("{files}", folder) for word in command]
        server = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL)
        wait_for(port, server)
        answers, faults = [], []
        until = time.monotonic() + seconds
        threads = [
            threading.Thread(target=load, args=(port, hashes, until, seed, answers, faults)) for seed in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if server.poll() is not None:
            faults.append(f"the server ended early, exit status {server.returncode}")
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            faults.append("the server did not end on SIGTERM")
            server.kill()
    if faults:
        sys.exit(f"serve: {faults[0]}")
    print(f"{len(answers) > 0}: every answer was right")


main()
