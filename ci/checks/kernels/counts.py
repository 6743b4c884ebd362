"""The results of ci/run kernels --count: a line for each seed in FOLDER/conform.tsv, and one for each run in
lab/results/conform.tsv, which is committed.

usage: counts.py next FOLDER RELEASE STEPS    prints the next seed, how many seeds there are to do, and the steps of each
       counts.py add FOLDER RELEASE           adds what `count` of ci/checks/kernels/task sends, from standard input
       counts.py sum FOLDER RELEASE STEPS     prints the sum for these sources; its status is 3 if something differs, 1 if
                                              there are fewer steps
"""

import datetime
import hashlib
import json
import pathlib
import subprocess
import sys

STEPS = 10_000
# What decides a result: the core, and what compares it with the kernel.
SOURCES = ["crates/range-tree", "crates/merge", "crates/vmarea", "crates/soft-platform", "crates/replay/src/machine", "lab/conform", "lab/oracle"]
SEEDS = ["run", "commit", "sources", "kernel", "rules", "seed", "steps", "seconds", "differences", "verdict"]
SUMMARY = pathlib.Path("lab/results/conform.tsv")
RUNS = ["run", "commit", "sources", "kernel", "rules", "seeds", "steps", "a_second", "differences"]


def git(*words):
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout.strip()


def sources():
    """Returns a name of the sources in the last commit; it says so if they have been changed since."""
    there = [path for path in SOURCES if subprocess.run(["git", "cat-file", "-e", f"HEAD:{path}"], capture_output=True).returncode == 0]
    trees = git("rev-parse", *(f"HEAD:{path}" for path in there))
    return hashlib.sha256(trees.encode()).hexdigest()[:12] + "+dirty" * bool(git("status", "--porcelain", "--", *there))


def rows(path, columns):
    lines = path.read_text(encoding="utf-8").splitlines()[1:] if path.exists() else []
    return [dict(zip(columns, line.split("\t"), strict=True)) for line in lines]


def append(path, columns, row):
    """Adds a row at once, so that a run that ends early leaves it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", encoding="utf-8") as file:
        if new:
            file.write("\t".join(columns) + "\n")
        file.write("\t".join(str(row[column]) for column in columns) + "\n")


def runs_of(seeds):
    """Returns a row for each run of the lines of seeds."""
    runs = {}
    for row in seeds:
        runs.setdefault((row["run"], row["kernel"]), []).append(row)
    for lines in runs.values():
        steps, seconds = sum(int(row["steps"]) for row in lines), sum(float(row["seconds"]) for row in lines)
        kinds = sorted({kind for row in lines for kind in row["differences"].split("; ") if kind})
        failed = [row["seed"] for row in lines if row["verdict"] not in ("equal", "differs")]
        found = "; ".join(kinds + [f"seed {seed} failed" for seed in failed]) or "none"
        yield lines[0] | {"seeds": f"{lines[0]['seed']}..{lines[-1]['seed']}", "steps": steps,
                          "a_second": f"{steps / max(seconds, 1e-9):.0f}", "differences": found}


def summarize(folder):
    """Adds the runs that the committed file lacks."""
    known = {(row["run"], row["kernel"]) for row in rows(SUMMARY, RUNS)}
    for row in runs_of(rows(folder / "conform.tsv", SEEDS)):
        if (row["run"], row["kernel"]) not in known:
            append(SUMMARY, RUNS, row)


def following(folder, release, wanted):
    """Prints what is still to be done; no seed is taken twice on a kernel, whatever the sources were."""
    summarize(folder)
    done = [row for row in rows(SUMMARY, RUNS) if row["kernel"] == release]
    last = max((int(row["seeds"].rpartition("..")[2]) for row in done), default=0)
    name = sources()
    steps = sum(int(row["steps"]) for row in done if row["sources"] == name)
    print(last + 1, max(0, -(-(wanted - steps) // STEPS)), STEPS)


def add(folder, release):
    run = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    commit, name = git("rev-parse", "--short=12", "HEAD"), sources()
    seed, text = None, []
    for line in sys.stdin:
        line = line.rstrip("\r\n")
        if line.startswith("seed "):
            seed, text = line.split()[1], []
        elif line.startswith("went ") and seed:
            _, status, *said = line.split(" ", 2)
            try:
                report = json.loads("\n".join(text))
            except ValueError:
                report = {"compared": 0, "seconds": 0, "profile": "", "differences": []}
            kinds = "; ".join(found["difference"]["kind"] for found in report["differences"])
            verdict = {"0": "equal", "3": "differs"}.get(status, f"failed: {' '.join(said)}")
            append(folder / "conform.tsv", SEEDS, {
                "run": run, "commit": commit, "sources": name, "kernel": release, "rules": report["profile"], "seed": seed,
                "steps": report["compared"], "seconds": f"{report['seconds']:.1f}", "differences": kinds, "verdict": verdict})
            if kinds:
                (folder / f"conform-{release}-{seed}.json").write_text("\n".join(text), encoding="utf-8")
            seed = None
        else:
            text.append(line)
    summarize(folder)


def total(folder, release, wanted):
    summarize(folder)
    name = sources()
    done = [row for row in rows(SUMMARY, RUNS) if row["kernel"] == release and row["sources"] == name]
    steps = sum(int(row["steps"]) for row in done)
    found = sorted({row["differences"] for row in done} - {"none"})
    rates = ", ".join(dict.fromkeys(row["a_second"] for row in done))
    print(f"Linux {release}: {steps} steps of these sources ({name}) in {len(done)} runs, {rates} a second, {'; '.join(found) or '0 differences'}")
    return 3 if found else int(steps < wanted)


def main():
    match sys.argv[1:]:
        case ["next", folder, release, wanted]:
            following(pathlib.Path(folder), release, int(wanted))
        case ["add", folder, release]:
            add(pathlib.Path(folder), release)
        case ["sum", folder, release, wanted]:
            return total(pathlib.Path(folder), release, int(wanted))
        case _:
            sys.exit(__doc__)
    return 0


sys.exit(main())
