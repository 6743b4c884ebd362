#!/usr/bin/env bash
# Checks the recording rules, the alerts and the dashboard: their metrics, their syntax and unit tests by promtool, and
# a Prometheus server that collects from two machines.
set -euo pipefail
cd "$(dirname "$0")/.."

PACKAGES=prometheus ci/install.sh >/dev/null
cargo build --locked --quiet -p vmarea-cli
vmarea=$(realpath "${CARGO_TARGET_DIR:-target}/debug/vmarea")
python3 ci/alerts.py "$vmarea"
PYTHONPATH=ci python3 ci/metrics.py "$vmarea"
