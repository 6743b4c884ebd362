"""Measures the cost of recording and replaying, of `explain` on 65,000 mappings, and of `top` on 500 processes.

The first as ratios of measurements in the same run, the others relative to only reading the lists of mappings. Prints
figures and checks none. Most accurate as root on an idle machine.

usage: ci/run speed -- [PAIRS]
       VMAREA=path/of/vmarea takes that binary instead of building one
"""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import prepare


def run(command, room):
    """Runs a command, which must succeed; returns its wall-clock and CPU seconds and its peak memory in MiB."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, cwd=room, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    if status:
        sys.exit(f"speed: {' '.join(map(str, command))}: wait status {status}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def info(vmarea, trace):
    """Returns the output of `vmarea trace info`."""
    return json.loads(subprocess.run([vmarea, "trace", "info", "--json", trace], check=True,
                                     capture_output=True).stdout)


def replay(vmarea, trace, room):
    """Returns the median CPU seconds of five replays under the recorded kernel's rules only, process start
    included, and the peak memory."""
    runs = [run([vmarea, "replay", "--policy", "linux", trace], room) for _ in range(5)]
    return statistics.median(busy for _, busy, _ in runs), max(memory for *_, memory in runs)


def best(command, room):
    """Returns the shortest of five runs, in seconds."""
    return min(run(command, room)[0] for _ in range(5))


@contextlib.contextmanager
def started(commands, room):
    """Runs commands in the background and yields their first lines. They end when their input is closed."""
    running = [subprocess.Popen(command, cwd=room, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
               for command in commands]
    try:
        yield [process.stdout.readline() for process in running]
    finally:
        for process in running:
            process.stdin.close()
            process.wait()


def live(vmarea, room):
    """Measures `explain` on 65,000 mappings and `top` on 500 processes."""
    mappings, processes = 65000, 500
    with started([["./boundaries", "protection_read", str(mappings), "."]], room) as (line,):
        pid = line.split()[0]
        alone = best(["cat", f"/proc/{pid}/maps"], room)
        for name, options in (("with the kernel's view", []), ("from /proc alone", ["--no-bpf"]),
                              ("all rows as JSON", ["--all", "--json"])):
            seconds = best([vmarea, "explain", "-p", pid, *options], room)
            print(f"explain {mappings} mappings, {name}: {seconds:.3f} s, {seconds / alone:.1f} x `cat` of the list")
    with started([["sh", "-c", "echo; exec cat"]] * processes, room):
        every = [entry for entry in os.listdir("/proc") if entry.isdigit()]
        alone = best(["sh", "-c", "cat /proc/[0-9]*/maps 2>/dev/null; true"], room)
        seconds = best([vmarea, "top", "--once", "-n", "0"], room)
        print(f"top --once, {len(every)} processes: {seconds:.3f} s, {seconds / alone:.1f} x `cat` of their lists")


def main():
    prepare.packages()
    with prepare.room("big.c", "many_vmas", profile="packaged") as folder:
        room = pathlib.Path(folder)
        os.rename(room / "built/big.c", room / "big.c")
        os.rename(room / "built/many_vmas", room / "many_vmas")
        subprocess.run(["gcc", "-O2", "-o", room / "boundaries", "tests/support/src/boundaries/main.c"], check=True)
        return measure(f"{folder}/vmarea", room, int((sys.argv[1:] or [5])[0]))


def measure(vmarea, room, pairs):
    """Prints all figures."""
    trace = room / "gcc.vmtrace"
    gcc = ["gcc", "-O2", "-c", "-o", "big.o", "big.c"]
    record = [vmarea, "record", "-o", trace, "--"]

    ratios = []
    for number in range(pairs):
        # The two alternate in running first, so that neither always runs with warmer caches.
        if number % 2:
            recorded, alone = run(record + gcc, room)[0], run(gcc, room)[0]
        else:
            alone, recorded = run(gcc, room)[0], run(record + gcc, room)[0]
        ratios.append(recorded / alone)
    print(f"gcc recorded / alone: median {statistics.median(ratios):.3f} of {pairs} pairs, "
          f"from {min(ratios):.3f} to {max(ratios):.3f}")

    facts = info(vmarea, trace)
    print(f"gcc trace: {facts['bytes'] / facts['events']:.2f} bytes an event, {facts['events']} events")
    seconds, memory = replay(vmarea, trace, room)
    print(f"gcc replay: {facts['events'] / seconds / 1e6:.2f} million events/s of one core, peak {memory:.0f} MiB")

    live(vmarea, room)

    calls, first = 20000, None
    for vmas in (1000, 10000, 65000):
        # The difference of two runs is the cost of the calls, without the setup.
        cost = {}
        for number in (0, calls):
            trace = room / f"many-{vmas}-{number}.vmtrace"
            run([vmarea, "record", "-o", trace, "--", "./many_vmas", str(vmas), str(number)], room)
            seconds, memory = replay(vmarea, trace, room)
            cost[number] = (seconds, info(vmarea, trace)["events"])
        each = (cost[calls][0] - cost[0][0]) / (cost[calls][1] - cost[0][1]) * 1e9
        first = first or each
        print(f"{vmas:6} live VMAs: {each:7.0f} ns an event, {each / first:.2f} x the first, peak {memory:.0f} MiB")
    return 0


sys.exit(main())
