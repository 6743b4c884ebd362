#!/usr/bin/env bash
# Checks that the crates depend on each other only as listed in ci/layers.py, each layer of the core uses only those
# below it, files do not use each other in circles, lab/ states the same versions as the product, `unsafe` occurs only
# where it is allowed, and the tables of crates/README.md and lab/README.md are current.
# usage: ci/layers.sh
set -euo pipefail
cd "$(dirname "$0")/.."

for workspace in . lab python; do
    cargo metadata --no-deps --format-version 1 --offline --manifest-path "$workspace/Cargo.toml"
done | python3 ci/layers.py
python3 ci/crates.py --check
