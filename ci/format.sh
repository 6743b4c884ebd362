#!/usr/bin/env bash
# Checks that every Rust file of this workspace and of python/ is formatted by rustfmt.
# usage: ci/format.sh
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check
(cd python && cargo fmt --all --check)
echo "format: ok"
