"""Checks the recording rules, the alerts and the dashboard in `packaging`.

Every metric that they use must be one that `vmarea top --openmetrics` writes or a record of rules.yml. promtool, if
it is installed, checks the syntax, also that of the dashboard's queries, and runs the unit tests of the rules.

usage: ci/checks/alerts/alerts.py VMAREA
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile

RULES, ALERTS, DASHBOARD = "packaging/rules.yml", "packaging/alerts.yml", "packaging/dashboard.json"
TESTS = "packaging/alerts_test.yml"
# Values of the dashboard's variables when everything is selected.
SELECTED = {"$instance": ".*", "$name": ".*"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def queries():
    """Returns (title, query) of each query on the dashboard, with everything selected."""
    found = []
    for panel in json.loads(read(DASHBOARD))["panels"]:
        for target in panel["targets"]:
            query = target["expr"]
            for variable, value in SELECTED.items():
                query = query.replace(variable, value)
            found.append((panel["title"], query))
    return found


def names(text):
    """Returns the metrics of vmarea in a query or a file of rules; comments and texts are not searched."""
    lines = [line for line in text.splitlines() if not re.match(r"\s*(#|- name:|summary:|description:)", line)]
    # Names of files in matchers, such as vmarea.prom, are no metrics.
    searched = re.sub(r'"[^"]*"', "", "\n".join(lines))
    return set(re.findall(r"\b(?:[a-z_]+:)?vmarea[_:][\w:]+", searched))


def check_names(vmarea):
    """Fails if a name is used that nothing defines. Returns the number of names."""
    written = subprocess.run(
        [vmarea, "top", "--once", "--openmetrics", "-"], check=True, capture_output=True, text=True
    ).stdout
    known = set(re.findall(r"^# TYPE (\w+)", written, re.MULTILINE))
    known |= set(re.findall(r"^\s*- record: (\S+)", read(RULES), re.MULTILINE))
    used = {DASHBOARD: set().union(*(names(query) for _, query in queries()))}
    used |= {path: names(read(path)) for path in (RULES, ALERTS)}
    for path, found in used.items():
        if not found or found - known:
            sys.exit(f"alerts: {path} uses metrics that vmarea does not write: {sorted(found - known)}")
    return len(known)


def check_syntax():
    """Lets promtool check all rules, and the dashboard's queries as if they were rules."""
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        rules = [{"record": "panel", "expr": query, "labels": {"n": str(n)}} for n, (_, query) in enumerate(queries())]
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
        file.flush()
        for path in (RULES, ALERTS, file.name):
            subprocess.run(["promtool", "check", "rules", path], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["promtool", "test", "rules", TESTS], check=True, stdout=subprocess.DEVNULL)


def main():
    known = check_names(sys.argv[1])
    if shutil.which("promtool"):
        check_syntax()
        said = "promtool has no objections"
    else:
        said = "promtool is not installed: apt-get install prometheus"
    print(f"alerts: ok, {known} metrics and records, {len(queries())} queries on the dashboard; {said}")


if __name__ == "__main__":
    main()
