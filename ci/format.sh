#!/usr/bin/env bash
# Every Rust file is formatted as rustfmt does it.
# usage: ci/format.sh
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check
echo "format: ok"
