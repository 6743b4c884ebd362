"""Sweeps copies of the corpus by a plain loop, by local processes, and by a Ray cluster of two nodes on loopback.

A node is killed in the middle, and the rows of Ray must equal those of `local`. All runs follow each other, and the
figures of each are printed as a row of a table: traces per second and core, processor time for each trace beside that
of the plain loop, which other work on the machine hardly changes, and peak memory.

A fifth of the traces is enough for the rates. At the end, the whole cluster is ended in the middle of a sweep, which
then goes on without it.

usage: ci/run sweep            10,000 traces, and the whole cluster is ended in the middle of another sweep
       ci/run sweep --share    200 traces, and only the sweep whose node is killed
       ci/run sweep --rates    only the table of rates, in five minutes
"""

import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import tempfile
import time

import prepare

if sys.argv[1:] not in ([], ["--share"], ["--rates"]):
    sys.exit(f"sweep: no option {sys.argv[1]}")
prepare.in_venv("procps")
import duckdb  # noqa: E402

sys.path.insert(0, str(pathlib.Path("python/sweep").resolve()))
from vmarea_sweep import plan, task  # noqa: E402

SMALL = ["gcc", "go", "node-wasm", "regions", "cow-children", "qemu"]
POLICIES = "linux,linux+different_anon_vmas"
RAY = str(pathlib.Path(sys.executable).with_name("ray"))
BATCH = 20


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


PORT = free_port()


def traces(folder, copies):
    """Makes traces of small recordings, cuts every 50th, and adds a file that is no trace."""
    data = [pathlib.Path(f"corpus/{name}.vmtrace").read_bytes() for name in SMALL]
    for n in range(copies):
        whole = data[n % len(data)]
        cut = len(whole) * (n % 7 + 1) // 9 if n % 50 == 0 else len(whole)
        (folder / f"{n:05}.vmtrace").write_bytes(whole[:cut])
    (folder / "other.vmtrace").write_text("no trace")
    (folder / "notes.txt").write_text("not even the name of one")


def command(source, out, *more):
    arguments = ["--policies", POLICIES, "--out", str(out), "--json", *more]
    return [sys.executable, "-m", "vmarea_sweep.command", str(source), *arguments]


def sweep(source, out, *more):
    done = subprocess.run(command(source, out, *more), stdout=subprocess.PIPE, text=True, check=True, timeout=7200)
    return json.loads(done.stdout.splitlines()[-1])


def loop(source, out, most):
    """Replays traces one after another in this process, without an engine.

    Returns the traces per second, and the seconds of processor time for each.
    """
    job = plan.Job(str(out), tuple(POLICIES.split(",")), False, "plain")
    found = plan.find(job, str(source))[:most]
    begun, before = time.monotonic(), task.processor_time()
    for batch in plan.batches(found, BATCH):
        task.run(job, batch)
    return len(found) / (time.monotonic() - begun), (task.processor_time() - before) / len(found)


def say(name, workers, summary, spent, plain, out):
    """Prints the figures of a run. The rate without start and end is that between the first and the last files."""
    made = summary["ok"] + summary["cut_off"] + summary["bad"]
    rate = made / summary["wall_seconds"] / workers
    print(
        f"sweep: | {name} | {made:,} | {summary['wall_seconds']:.0f} s | {rate:.1f} | {steady_rate(out) / workers:.1f} "
        f"| {1e3 * spent / made:.1f} ms | {spent / made / plain:.2f} | {summary['peak_bytes'] >> 20} MiB |",
        flush=True,
    )


def steady_rate(out):
    """Returns the traces per second between the first and the last tenth of the files, by their times."""
    times = sorted(path.stat().st_mtime for path in pathlib.Path(out, "runs").rglob("part-*"))
    first, last = len(times) // 10, len(times) - 1 - len(times) // 10
    per_file = duckdb.sql(f"SELECT count(DISTINCT key) FROM '{out}/runs/*/part-*.parquet'").fetchall()[0][0] / len(times)
    return per_file * (last - first) / max(times[last] - times[first], 1e-9)


def node(*arguments):
    """Starts a node and returns its process."""
    return subprocess.Popen(
        [RAY, "start", *arguments, "--node-ip-address=127.0.0.1", "--num-cpus=1", "--disable-usage-stats", "--block"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def end(started):
    """Kills a node; its workers end when they lose it."""
    for pid in members(started):
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass
    started.wait()


def members(started):
    """Returns the processes of a node, which are those of its session."""
    listed = subprocess.run(["ps", "-o", "pid=", "-s", str(started.pid)], capture_output=True, text=True).stdout
    return [int(pid) for pid in listed.split()]


def cluster(wanted):
    """Starts a head, and a second node if two are wanted, of one CPU each, and waits until they are there."""
    nodes = [node("--head", f"--port={PORT}", "--include-dashboard=false")]
    try:
        wait(nodes, 1)
        if wanted == 2:
            nodes.append(node(f"--address=127.0.0.1:{PORT}"))
            wait(nodes, 2)
    except BaseException:
        stop(nodes)
        raise
    return nodes


def wait(nodes, wanted):
    """Waits until so many nodes are alive."""
    until = time.monotonic() + 120
    while True:
        for started in nodes:
            if started.poll() is not None:
                sys.exit(f"sweep: a node has ended with status {started.returncode}")
        listed = subprocess.run(
            [RAY, "status", f"--address=127.0.0.1:{PORT}"], capture_output=True, text=True, timeout=120
        ).stdout
        if listed.count(" node_") >= wanted:
            return
        if time.monotonic() > until:
            sys.exit(f"sweep: {wanted} nodes did not start:\n{listed}")
        time.sleep(0.5)


def stop(nodes):
    for started in nodes:
        end(started)


def on_ray(source, out, *more):
    """Starts a sweep on the cluster."""
    more = ["--on", "ray", "--address", f"127.0.0.1:{PORT}", "--batch", str(BATCH), *more]
    return subprocess.Popen(command(source, out, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def killed_in_the_middle(source, out, copies, nodes, victims):
    """Runs a sweep, kills so many nodes, the last ones first, when a quarter is done; returns status, summary, messages."""
    running = on_ray(source, out)
    while running.poll() is None and len(list((out / "runs").rglob("part-*"))) < copies // BATCH // 4:
        time.sleep(0.05)
    if running.poll() is not None:
        sys.exit(f"sweep: it ended before a node was killed: {running.communicate()[1]}")
    for _ in range(victims):
        end(nodes.pop())
    said, errors = running.communicate(timeout=7200)
    return running.returncode, said, errors


def compare(work, one, other):
    """Fails unless two sweeps have the same rows."""
    rows = [f"SELECT * FROM '{work}/{on}/runs/*/part-*.parquet'" for on in (one, other)]
    for a, b in (rows, rows[::-1]):
        if differ := duckdb.sql(f"SELECT count(*) FROM (({a}) EXCEPT ALL ({b}))").fetchall()[0][0]:
            sys.exit(f"sweep: {differ} rows differ between {one} and {other}")


def rates(work, source, copies):
    """Runs the plain loop, local sweeps with one and two workers, and Ray with one and two nodes on the same traces."""
    rate, plain = loop(source, work / "plain", min(copies, 500))
    print("sweep: | engine | traces | time | rate for each core | without start and end | processor time | of the loop | peak |")
    print(f"sweep: | plain loop | {min(copies, 500)} | | {rate:.1f} | | {1e3 * plain:.1f} ms | 1 | |", flush=True)
    for workers, name in [(1, "one"), (2, "two")]:
        before = task.processor_time()
        summary = sweep(source, work / name, "--workers", str(workers), "--batch", str(BATCH))
        say(f"local, workers: {workers}", workers, summary, task.processor_time() - before, plain, work / name)
    for wanted in (1, 2):
        out = work / f"ray-{wanted}"
        nodes = cluster(wanted)
        try:
            before = task.processor_time() + of_nodes(nodes)
            summary = finished(on_ray(source, out))
            spent = task.processor_time() + of_nodes(nodes) - before + summary["cpu_seconds"]
            say(f"Ray, nodes: {wanted}", wanted, summary, spent, plain, out)
        finally:
            stop(nodes)
    for name in ("two", "ray-1", "ray-2"):
        compare(work, "one", name)


def of_nodes(nodes):
    """Returns the seconds of processor time that the nodes have used, without their workers.

    The tasks count what workers do: Ray lets the time of a worker that ends be lost.
    """
    left, spent = [started.pid for started in nodes], 0
    while left:
        pid = left.pop()
        try:
            if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
                continue
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            spent += sum(map(int, fields[11:15]))
            for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                left += map(int, children.read_text().split())
        except OSError:
            # It has ended; its parent has its time.
            continue
    return spent / os.sysconf("SC_CLK_TCK")


def finished(running):
    """Waits for a sweep on the cluster; returns its summary."""
    said, errors = running.communicate(timeout=7200)
    if running.returncode:
        sys.exit(f"sweep: Ray: status {running.returncode}: {errors}")
    return json.loads(said.splitlines()[-1])


def killed(work, source, copies):
    """Sweeps all traces by local processes, and on two nodes of which one is killed; the rows must be equal."""
    sweep(source, work / "local", "--batch", str(BATCH))
    nodes = cluster(2)
    try:
        begun = time.monotonic()
        status, _, errors = killed_in_the_middle(source, work / "ray", copies, nodes, 1)
        if status:
            sys.exit(f"sweep: Ray, a node killed: status {status}: {errors}")
        print(f"sweep: Ray: one of two nodes killed, {copies + 1} traces in {time.monotonic() - begun:.0f} s", flush=True)
    finally:
        stop(nodes)
    compare(work, "local", "ray")
    print("sweep: the rows of Ray equal those of local processes")


def gone(work, source, copies):
    """Ends the whole cluster in the middle: the sweep says so, and goes on without it."""
    nodes = cluster(2)
    try:
        status, _, errors = killed_in_the_middle(source, work / "gone", copies, nodes, 2)
    finally:
        stop(nodes)
    last = errors.strip().splitlines()[-1] if errors.strip() else ""
    if status != 1 or "start the same command again" not in last:
        sys.exit(f"sweep: the cluster is gone: status {status}: {errors}")
    print(f"sweep: the cluster is gone: {last}")
    again = sweep(source, work / "gone", "--batch", str(BATCH))
    if not again["skipped"]:
        sys.exit("sweep: nothing was done before the cluster was gone")
    compare(work, "one", "gone")
    print(f"sweep: without the cluster: {again['skipped']} skipped, the rows are the same")


def main():
    copies = 200 if "--share" in sys.argv else 10000
    os.environ["VMAREA"] = prepare.program()
    os.environ["PYTHONPATH"] = sys.path[0]
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # The cluster belongs to this test: nobody else has its token.
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    with tempfile.TemporaryDirectory(prefix="vmarea-sweep-") as name:
        work = pathlib.Path(name)
        source, few = work / "traces", work / "few"
        for folder, count in [(source, copies), (few, copies // 5)]:
            folder.mkdir()
            traces(folder, count)
        if "--share" not in sys.argv:
            rates(work, few, copies // 5)
        if "--rates" in sys.argv:
            return
        killed(work, source, copies)
        if "--share" not in sys.argv:
            gone(work, few, copies // 5)
        again = sweep(source, work / "local")
        if again["skipped"] != copies + 1:
            sys.exit(f"sweep: started again: only {again['skipped']} of {copies + 1} skipped")
        seconds = again["wall_seconds"]
        files = [path.stat().st_size for path in (work / "local").rglob("*.parquet")]
        print(f"sweep: results: {len(files)} files, {sum(files) / copies:.0f} bytes a trace; all skipped in {seconds:.1f} s")
    print(f"sweep: ok, {copies + 1} traces")


main()
