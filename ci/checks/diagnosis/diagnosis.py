"""Runs the cases, and prints a table of verdicts and the totals. See main.sh.

usage: diagnosis.py --vmarea FILE --venv FOLDER [--share] [--lists] [--programs] [--healthy] [--held] [--only CASE,...]
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import healthy
import lists
import programs
import verdicts

KINDS = {"list": "lists", "program": "programs", "healthy": "healthy"}
TABLES = {"program": programs.PROGRAMS, "healthy": healthy.HEALTHY}
ENOUGH, ENOUGH_HELD = 0.85, 0.75


def explain(vmarea, *what):
    """Returns the report of `vmarea explain`."""
    done = subprocess.run([vmarea, "explain", *what, "--json"], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"vmarea ended with status {done.returncode}")
    return json.loads(done.stdout)


def install(cases):
    """Installs the packages of Debian that the programs of these cases need."""
    wanted = {name for kind, table in TABLES.items() for name in programs.missing(table, [c.name for c in cases if c.kind == kind])}
    if wanted:
        subprocess.run(["ci/lib/install.sh", *sorted(wanted)], check=True, stdout=sys.stderr)


def list_report(vmarea, case, folder):
    """Makes a list, compares its number of mappings with the key's, and returns the report on it."""
    text, count = lists.make(case.name)
    if count != (case.mappings or 0):
        sys.exit(f"diagnosis: {case.name} has {count} mappings of the cause, but key.tsv says {case.mappings}")
    path = pathlib.Path(folder, "list")
    path.write_text(text, encoding="utf-8")
    return explain(vmarea, "--from", path)


def live_report(vmarea, case, table, venv):
    """Starts a program, and returns the report on it when it is ready."""
    program = table[case.name]
    with tempfile.TemporaryDirectory() as folder:
        room = programs.Room(folder, programs.environment(program.pip, venv.resolve()))
        with programs.running(program.start(room), room) as pid:
            return explain(vmarea, "-p", str(pid))


def run(arguments, case, folder):
    """Runs a case; returns its verdict."""
    try:
        if case.kind == "list":
            report = list_report(arguments.vmarea, case, folder)
        else:
            report = live_report(arguments.vmarea, case, TABLES[case.kind], arguments.venv.resolve())
        return verdicts.judge(case, report)
    except (RuntimeError, OSError, subprocess.SubprocessError) as failure:
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
    parser.add_argument("--venv", type=pathlib.Path, required=True)
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
    cases = verdicts.cases() + [verdicts.Case(name, "healthy", [verdicts.NONE]) for name in healthy.HEALTHY]
    for kind, made in [("list", lists.CASES), *TABLES.items()]:
        if wrong := {case.name for case in cases if case.kind == kind} ^ set(made):
            sys.exit(f"diagnosis: not both in key.tsv and made by a {kind}: {', '.join(sorted(wrong))}")
    if arguments.only:
        if unknown := set(arguments.only) - {case.name for case in cases}:
            sys.exit(f"diagnosis: no case {', '.join(sorted(unknown))}")
        return [case for case in cases if case.name in arguments.only]
    return [case for case in cases if case.kind in arguments.kinds and (arguments.held or case.kind == "healthy" or not case.held)]


def main():
    arguments = parse()
    found = []
    cases = chosen(arguments)
    install(cases)
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            verdict = run(arguments, case, folder)
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
