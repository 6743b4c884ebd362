"""Prints the result of a run of `vmarea-lab conform` on another kernel, from its JSON.

usage: report.py VERSION PREFIX [MESSAGE]    (VERSION is Debian's; reads PREFIX.json; points to PREFIX.console if that has
                                             more details; MESSAGE is what conform said if it failed)
The exit status is 0 if nothing differs and the probe finds the rules of the version, 3 otherwise, 1 if there is no result.
"""

import json
import sys


def print_by_rule(differences):
    """Prints the differences that one rule explains below the rule, and those that need a new one."""
    rules = {}
    for found in differences:
        rules.setdefault(tuple(found["rules"]), []).append(found)
    for names, explained in sorted(rules.items(), key=lambda row: not row[0]):
        print(f"  {' or '.join(names) or 'no one rule'}:")
        for found in explained:
            print(f"    {found['difference']['kind']}")
            for step in [] if names else found["steps"]:
                print(f"      {json.dumps(step)}")


def main() -> int:
    version, prefix = sys.argv[1:3]
    try:
        with open(f"{prefix}.json", encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError) as error:
        why = " ".join(sys.argv[3:]) or error
        print(f"Linux {version}: no result: {why}; see {prefix}.console")
        return 1
    steps, seconds = report["compared"], report["seconds"]
    differences, probe = report["differences"], report["probe"]
    print(
        f"Linux {version} ({report['profile']}): {steps} steps, {report['calls']} of them calls, {steps / max(seconds, 1e-9):.0f} a second, "
        f"{len(differences)} differences, {probe['probed']} rules probed, "
        f"{len(report['not_compared'])} kinds of thing not compared, seed {report['seed']}"
    )
    if probe["differing"]:
        print(f"  the probe contradicts the version in: {', '.join(probe['differing'])}")
    for what in report["not_compared"]:
        print(f"  not compared: {what}")
    if any(found["rules"] for found in differences):
        print_by_rule(differences)
    else:
        for found in differences:
            print(f"  differs: {found['difference']['kind']}")
    if differences:
        print(f"  the sequences are in {prefix}.json")
    return 3 if differences or probe["differing"] else 0


sys.exit(main())
