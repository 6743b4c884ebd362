#!/usr/bin/env bash
# Sweeps many traces by local processes and on a Ray cluster of two nodes, one of which is killed in the middle.
# usage: ci/sweep.sh [--share]    200 traces instead of 10,000
set -euo pipefail
cd "$(dirname "$0")/.."
copies=10000
[[ ${1-} != --share ]] || copies=200
PACKAGES=procps ci/install.sh >/dev/null
cargo build --release --locked --quiet -p vmarea-cli
VMAREA=$(realpath "${CARGO_TARGET_DIR:-target}/release/vmarea")
venv=$(realpath -m "${CARGO_TARGET_DIR:-target}/wheels/sweep")
[[ -x $venv/bin/ray ]] || { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet 'ray[data]==2.60.0' duckdb; }
VMAREA=$VMAREA PYTHONPATH=python/sweep "$venv/bin/python" ci/sweep.py "$copies"
