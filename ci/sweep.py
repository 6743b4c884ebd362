"""Sweeps copies of the corpus by a plain loop, by local processes and by a Ray cluster of two nodes on loopback.

The worker node is killed in the middle, and the rows of Ray must equal those of `local`. Prints what each run cost.

usage: ci/sweep.py COPIES      VMAREA names the program
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import duckdb

SMALL = ["gcc", "go", "node-wasm", "regions", "cow-children", "qemu"]
PORT = 6399
RAY = str(pathlib.Path(sys.executable).with_name("ray"))


def traces(folder, copies):
    """Copies small traces, cuts every 50th, and adds a file that is no trace."""
    for n in range(copies):
        data = pathlib.Path(f"corpus/{SMALL[n % len(SMALL)]}.vmtrace").read_bytes()
        cut = len(data) * (n % 7 + 1) // 9 if n % 50 == 0 else len(data)
        (folder / f"{n:05}.vmtrace").write_bytes(data[:cut])
    (folder / "other.vmtrace").write_text("no trace")


def command(source, out, *more):
    arguments = ["--policies", "linux,linux+different_anon_vmas", "--out", str(out), "--json", *more]
    return [sys.executable, "-m", "vmarea_sweep.command", str(source), *arguments]


def sweep(source, out, *more):
    done = subprocess.run(command(source, out, *more), stdout=subprocess.PIPE, text=True, check=True, timeout=3600)
    return json.loads(done.stdout.splitlines()[-1])


def say(name, summary):
    made = summary["ok"] + summary["cut_off"] + summary["bad"]
    rate = made / summary["wall_seconds"]
    print(f"sweep: {name}: {made} traces, {rate:.1f}/s, peak {summary['peak_bytes'] >> 20} MiB", flush=True)


def node(name, *arguments):
    """Starts a node and returns its process."""
    started = subprocess.Popen(
        [RAY, "start", *arguments, "--node-ip-address=127.0.0.1", "--num-cpus=1", "--disable-usage-stats", "--block"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    print(f"sweep: {name} started", flush=True)
    return started


def end(started):
    """Kills a node with all its processes."""
    listed = subprocess.run(["ps", "-o", "pid=", "-s", str(started.pid)], capture_output=True, text=True).stdout
    for pid in listed.split():
        try:
            os.kill(int(pid), 9)
        except ProcessLookupError:
            pass
    started.wait()


def main():
    copies = int(sys.argv[1])
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # The cluster of this test, on loopback, has no tokens.
    os.environ["RAY_AUTH_MODE"] = "disabled"
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        source = work / "traces"
        source.mkdir()
        traces(source, copies)
        one = sweep(source, work / "one", "--workers", "1")
        say("local, one worker", one)
        say("local, two workers", sweep(source, work / "two", "--workers", "2"))
        nodes = [node("head", "--head", f"--port={PORT}", "--include-dashboard=false")]
        time.sleep(10)
        if nodes[0].poll() is not None:
            sys.exit(f"sweep: the head has ended with status {nodes[0].returncode}")
        nodes.append(node("worker", f"--address=127.0.0.1:{PORT}"))
        time.sleep(8)
        try:
            running = subprocess.Popen(
                command(source, work / "ray", "--on", "ray", "--address", f"127.0.0.1:{PORT}", "--batch", "5"),
                stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            parts = work / "ray" / "runs"
            while running.poll() is None and len(list(parts.rglob("part-*"))) < copies // 5 // 4:
                time.sleep(0.1)
            end(nodes.pop())
            print("sweep: worker killed", flush=True)
            said, _ = running.communicate(timeout=1800)
        finally:
            for started in nodes:
                end(started)
        if running.returncode:
            sys.exit(f"sweep: Ray: status {running.returncode}")
        say("Ray, two nodes of which one was killed", json.loads(said.splitlines()[-1]))
        rows = [f"SELECT * FROM '{work}/{on}/runs/*/part-*.parquet'" for on in ("two", "ray")]
        for a, b in (rows, rows[::-1]):
            if differ := duckdb.sql(f"SELECT count(*) FROM (({a}) EXCEPT ALL ({b}))").fetchall()[0][0]:
                sys.exit(f"sweep: {differ} rows differ between local and Ray")
        again = sweep(source, work / "two")
        if again["skipped"] != copies + 1:
            sys.exit(f"sweep: started again: only {again['skipped']} of {copies + 1} skipped")
    print(f"sweep: ok, {copies + 1} traces, Ray's rows equal local's")


main()
