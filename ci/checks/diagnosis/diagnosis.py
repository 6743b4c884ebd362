"""Runs the cases, and prints a table of verdicts and the totals. See main.sh.

usage: diagnosis.py --vmarea FILE [--share] [--lists] [--programs] [--healthy] [--held] [--only CASE,...]
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import lists
import verdicts

KINDS = {"list": "lists", "program": "programs", "healthy": "healthy"}
ENOUGH, ENOUGH_HELD = 0.85, 0.75


def explain(vmarea, *what):
    """Returns the report of `vmarea explain`."""
    done = subprocess.run([vmarea, "explain", *what, "--json"], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"vmarea ended with status {done.returncode}")
    return json.loads(done.stdout)


def list_report(vmarea, case, folder):
    """Makes a list, compares its number of mappings with the key's, and returns the report on it."""
    text, count = lists.make(case.name)
    if count != (case.mappings or 0):
        sys.exit(f"diagnosis: {case.name} has {count} mappings of the cause, but key.tsv says {case.mappings}")
    path = pathlib.Path(folder, "list")
    path.write_text(text, encoding="utf-8")
    return explain(vmarea, "--from", path)


def run(vmarea, case, folder):
    """Runs a case; returns its verdict."""
    try:
        return verdicts.judge(case, list_report(vmarea, case, folder))
    except (RuntimeError, subprocess.TimeoutExpired) as failure:
        return verdicts.Verdict(case, "wrong", f"no report: {failure}")


def totals(name, all_verdicts, enough):
    """Prints the totals of some verdicts; returns whether they are enough."""
    if not all_verdicts:
        return True
    count = collections.Counter(verdict.word for verdict in all_verdicts)
    share = count["right"] / len(all_verdicts)
    print(f"{name}: {len(all_verdicts)} cases: {count['right']} right ({share:.0%}), {count['none']} none told, {count['wrong']} wrong")
    return share >= enough and not count["wrong"]


def parse():
    """Returns the arguments, with the kinds to run in `kinds`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--vmarea", required=True)
    for option in ("share", "held", *KINDS.values()):
        parser.add_argument(f"--{option}", action="store_true")
    parser.add_argument("--only", type=lambda text: text.split(","))
    arguments = parser.parse_args()
    arguments.kinds = [kind for kind, option in KINDS.items() if getattr(arguments, option)] or list(KINDS)
    if arguments.share:
        if arguments.held:
            parser.error("--share has nothing that is held out")
        arguments.kinds = ["list"]
    return arguments


def chosen(arguments):
    """Returns the cases to run."""
    cases = verdicts.cases()
    listed = {case.name for case in cases if case.kind == "list"}
    if wrong := listed ^ set(lists.CASES):
        sys.exit(f"diagnosis: not both in key.tsv and in lists: {', '.join(sorted(wrong))}")
    if arguments.only:
        if unknown := set(arguments.only) - {case.name for case in cases}:
            sys.exit(f"diagnosis: no case {', '.join(sorted(unknown))}")
        return [case for case in cases if case.name in arguments.only]
    return [case for case in cases if case.kind in arguments.kinds and (arguments.held or case.kind == "healthy" or not case.held)]


def main():
    arguments = parse()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen(arguments):
            verdict = run(arguments.vmarea, case, folder)
            held = " (held)" if case.held and case.kind != "healthy" else ""
            print(f"{case.name + held:40} {verdict.word:6} {verdict.told:40} {'|'.join(case.accepted)}", flush=True)
            found.append(verdict)
    print()
    sick = [verdict for verdict in found if verdict.case.kind != "healthy"]
    good = [
        *(totals(option, [v for v in sick if v.case.kind == kind and not v.case.held], 0) for kind, option in KINDS.items()),
        totals("seen", [v for v in sick if not v.case.held], ENOUGH),
        totals("held out", [v for v in sick if v.case.held], ENOUGH_HELD),
        totals("healthy", [v for v in found if v.case.kind == "healthy"], 1),
    ]
    sys.exit(not all(good))


main()
