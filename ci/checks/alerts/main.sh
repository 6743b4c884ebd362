#!/usr/bin/env bash
# Checks the recording rules, the alerts and the dashboard: their metrics, their syntax and unit tests by promtool, and
# a Prometheus server that collects from two machines.
. "$(dirname "$0")/../../lib/prepare.sh"

packages prometheus
vmarea=$(program vmarea debug)
python3 ci/checks/alerts/alerts.py "$vmarea"
python3 ci/checks/alerts/metrics.py "$vmarea"
