"""Prints one line about a run of `vmarea-lab conform` on another kernel, from its JSON.

usage: report.py VERSION PREFIX    (VERSION is Debian's; reads PREFIX.json; points to PREFIX.console if that has more details)
The exit status is 0 if nothing differs, 3 if something does, 1 if there is no result.
"""

import json
import sys


def main() -> int:
    version, prefix = sys.argv[1:3]
    try:
        with open(f"{prefix}.json", encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError) as error:
        print(f"Linux {version}: no result ({error}); see {prefix}.console")
        return 1
    steps, seconds = report["compared"], report["seconds"]
    differences = report["differences"]
    print(
        f"Linux {version} ({report['profile']}): {steps} steps, {report['calls']} of them calls, {steps / max(seconds, 1e-9):.0f} a second, "
        f"{len(differences)} differences, "
        f"{len(report['not_compared'])} kinds of thing not compared, seed {report['seed']}"
    )
    for what in report["not_compared"]:
        print(f"  not compared: {what}")
    for found in differences:
        print(f"  differs: {found['difference']['kind']}")
    if differences:
        print(f"  the sequences are in {prefix}.json")
    return 3 if differences else 0


sys.exit(main())
