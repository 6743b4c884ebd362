#!/usr/bin/env bash
# Checks that every Rust file of the workspaces is formatted by rustfmt.
# usage: ci/run format
. "$(dirname "$0")/../lib/prepare.sh"

cargo fmt --all --check
for workspace in lab python; do
    (cd "$workspace" && cargo fmt --all --check)
done
echo "format: ok"
