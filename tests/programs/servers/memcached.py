"""memcached under load: four connections set and get values of many sizes, and check every byte.

usage: memcached.py SECONDS
"""

import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time


def load(path, seed, until, faults):
    dice = random.Random(seed)
    held = {}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        stream = connection.makefile("rwb")
        while time.monotonic() < until and not faults:
            key = f"{seed}-{dice.randrange(2000)}"
            if dice.random() < 0.5:
                held[key] = dice.randbytes(dice.choice([20, 900, 30_000, 300_000]))
                stream.write(f"set {key} 0 0 {len(held[key])}\r\n".encode() + held[key] + b"\r\n")
                stream.flush()
                if stream.readline() != b"STORED\r\n":
                    faults.append(f"{key} was not stored")
                continue
            stream.write(f"get {key}\r\n".encode())
            stream.flush()
            line = stream.readline().split()
            if line[0] == b"VALUE":
                content = stream.read(int(line[3]) + 2)[:-2]
                stream.readline()
                if content != held.get(key):
                    faults.append(f"{key} has other bytes")


def main():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder).chmod(0o777)
        path = folder + "/socket"
        server = subprocess.Popen(["memcached", "-u", "nobody", "-m", "200", "-s", path, "-a", "777"])
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(path)
                break
            except OSError:
                time.sleep(0.05)
        faults = []
        until = time.monotonic() + float(sys.argv[1])
        threads = [threading.Thread(target=load, args=(path, seed, until, faults)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if server.poll() is not None:
            faults.append(f"memcached ended early, exit status {server.returncode}")
        server.terminate()
        server.wait(30)
    if faults:
        sys.exit(f"memcached: {faults[0]}")
    print("every value was right")


main()
