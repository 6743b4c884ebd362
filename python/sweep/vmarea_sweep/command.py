"""The command `vmarea-sweep`: arguments, messages and exit status."""

import argparse
import json
import os
import signal
import sys
import time

DONE, ERROR, USAGE, NOTHING = 0, 1, 2, 4
INTERRUPTED = 128 + signal.SIGINT

ABOUT = """\
Replay many traces under several policies, and store one row for each trace and policy as Parquet files.

Traces that are done are skipped when the same sweep is started again. A trace that cannot be replayed becomes a row
with its error. docs/fleet.md describes the columns and answers questions with them."""
EXAMPLES = """\
examples:
  vmarea-sweep 'traces/**/*.vmtrace' --policies linux,linux+different_anon_vmas --out results
  vmarea-sweep s3://bucket/traces --policies linux-6.1,linux-6.18 --compare --out s3://bucket/results --on ray

exit status: 0 every trace has its rows, also if some of them say that the trace is bad; 1 some traces failed and
would be tried again, or the sweep stopped early; 2 wrong usage; 4 no trace matches"""


def parser():
    wide = argparse.RawDescriptionHelpFormatter
    made = argparse.ArgumentParser("vmarea-sweep", description=ABOUT, epilog=EXAMPLES, formatter_class=wide)
    made.add_argument("traces", metavar="GLOB", help="traces, a folder of *.vmtrace, or a URI such as s3://bucket/*.vmtrace")
    made.add_argument(
        "--policies", action="append", metavar="A,B", required=True,
        help="policies, separated by commas (settings of a policy by +); linux, the rules of the recorded kernel, is "
        "always included",
    )  # fmt: skip
    made.add_argument("--out", metavar="DIR", required=True, help="folder or URI of the results")
    made.add_argument("--on", choices=["local", "ray"], default="local", help="processes of this machine, or a Ray cluster")
    made.add_argument("--compare", action="store_true", help="also compare each policy with the first, call by call")
    made.add_argument("--batch", type=positive, default=1, metavar="N", help="traces in one task and one file (default: 1)")
    made.add_argument("--workers", type=positive, metavar="N", help="processes for --on local (default: one for each core)")
    made.add_argument("--address", metavar="HOST:PORT", help="the Ray cluster (default: RAY_ADDRESS, or one on this machine)")
    made.add_argument(
        "--connect-timeout", type=positive, default=60, metavar="SECONDS", help="give up a Ray cluster that does not answer (default: 60)"
    )  # fmt: skip
    made.add_argument("--json", action="store_true", help="print the summary as JSON")
    made.add_argument("--quiet", action="store_true", help="print no progress")
    return made


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return number


def main(arguments=None):
    """Runs the command and returns its exit status."""
    args = parser().parse_args(arguments)
    if missing := missing_module(args.on):
        return say(missing, ERROR)
    from . import plan

    try:
        return sweep(args)
    except plan.Refused as refused:
        return say(refused, ERROR)


def missing_module(engine):
    """Returns a message if a module is not installed that the engine needs."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        return f"a sweep needs pyarrow ({error}): pip install pyarrow"
    if engine == "ray":
        try:
            import ray.data  # noqa: F401
        except ImportError as error:
            return f"--on ray needs Ray ({error}): pip install 'ray[data]', or use --on local"
    return None


def say(message, status):
    print(f"vmarea-sweep: {message}", file=sys.stderr)
    return status


def sweep(args):
    from . import binary, plan
    from .progress import Progress

    policies = tuple(name for given in args.policies for name in given.split(",") if name)
    try:
        job = plan.Job(args.out, policies, args.compare, binary.version())
        binary.check(policies)
        found = plan.find(job, args.traces)
    except (ValueError, binary.WrongPolicy) as error:
        return say(error, USAGE)
    except binary.Missing as missing:
        return say(missing, ERROR)
    if not found:
        return say(f"no trace matches {args.traces}", NOTHING)
    plan.claim(job)
    left = plan.remaining(job, found)
    summary = Summary(len(found), len(found) - len(left), args)
    progress = Progress(len(left), len(found), args.quiet)
    try:
        for outcome in outcomes(args, job, plan.batches(left, args.batch)):
            summary.add(outcome)
            progress.add(outcome.traces, outcome.bad + outcome.failed)
            if outcome.unwritten:
                summary.stopped = outcome.unwritten
                break
    except KeyboardInterrupt:
        summary.stopped = "interrupted"
    except ConnectionError as lost:
        summary.stopped = str(lost)
    progress.end()
    return summary.print()


def outcomes(args, job, batches):
    if not batches:
        return iter(())
    if args.on == "ray":
        from . import on_ray

        return on_ray.run(job, batches, args.address, args.connect_timeout)
    from . import local

    return local.run(job, batches, args.workers or len(os.sched_getaffinity(0)))


class Summary:
    """Counts of a sweep."""

    def __init__(self, traces, skipped, args):
        self.args, self.stopped, self.begun = args, None, time.monotonic()
        self.errors = []
        self.counts = {"traces": traces, "skipped": skipped, "ok": 0, "cut_off": 0, "bad": 0, "failed": 0}
        self.costs = {"wall_seconds": 0.0, "cpu_seconds": 0.0, "task_seconds": 0.0, "peak_bytes": 0}

    def add(self, outcome):
        for name in ("ok", "cut_off", "bad", "failed"):
            self.counts[name] += getattr(outcome, name)
        self.errors += outcome.errors[: max(0, 10 - len(self.errors))]
        self.costs["cpu_seconds"] += outcome.cpu_seconds
        self.costs["task_seconds"] += outcome.wall_seconds
        self.costs["peak_bytes"] = max(self.costs["peak_bytes"], outcome.peak_bytes)

    def print(self):
        """Prints the counts, the first errors and what to do, and returns the exit status."""
        self.costs["wall_seconds"] = time.monotonic() - self.begun
        counts, out = self.counts, self.args.out
        if self.args.json:
            print(json.dumps({"schema": 1, "out": out, **counts, **self.costs, "stopped": self.stopped}))
        else:
            parts = [f"{counts['ok']:,} replayed"]
            words = {"cut_off": "cut off", "bad": "bad", "failed": "failed", "skipped": "already done"}
            parts += [f"{counts[name]:,} {word}" for name, word in words.items() if counts[name]]
            print(f"{counts['traces']:,} traces: {', '.join(parts)}. Results: {out}/runs")
        for error in self.errors:
            print(f"note: {error}", file=sys.stderr)
        if len(self.errors) < counts["cut_off"] + counts["bad"] + counts["failed"]:
            print("note: more errors are in the column `error`", file=sys.stderr)
        again = "start the same command again to go on"
        if self.stopped:
            done = sum(counts[name] for name in ("ok", "cut_off", "bad", "skipped"))
            say(f"stopped: {self.stopped}. {done:,} of {counts['traces']:,} traces are done; {again}", ERROR)
            return INTERRUPTED if self.stopped == "interrupted" else ERROR
        if counts["failed"]:
            return say(f"{counts['failed']:,} traces failed; {again}", ERROR)
        return DONE


if __name__ == "__main__":
    sys.exit(main())
