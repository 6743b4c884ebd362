#!/usr/bin/env bash
# Checks that every Rust file of the workspaces is formatted by rustfmt.
# usage: ci/format.sh
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check
for workspace in lab python; do
    (cd "$workspace" && cargo fmt --all --check)
done
echo "format: ok"
