"""Checks the alert rules: every metric of vmarea that they use is one that `vmarea top --openmetrics` writes.

usage: ci/alerts.py RULES VMAREA
Uses promtool for the syntax, if it is installed.
"""

import re
import shutil
import subprocess
import sys

rules, vmarea = sys.argv[1:]
text = open(rules, encoding="utf-8").read()
written = subprocess.run(
    [vmarea, "top", "--once", "--openmetrics", "-"], check=True, capture_output=True, text=True
).stdout
known = set(re.findall(r"^# TYPE (\w+)", written, re.MULTILINE))
expressions = re.findall(r"^\s*expr: (.*)$", text, re.MULTILINE)
used = {metric for line in expressions for metric in re.findall(r"\bvmarea_\w+", line)}
if not used or used - known:
    sys.exit(f"alerts: {rules} uses metrics that vmarea does not write: {sorted(used - known)}")
if shutil.which("promtool"):
    subprocess.run(["promtool", "check", "rules", rules], check=True)
print(f"alerts: ok, {len(expressions)} rules, {len(used)} metrics")
