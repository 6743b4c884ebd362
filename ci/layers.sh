#!/usr/bin/env bash
# The crates depend on each other along the arrows of ARCHITECTURE.md and no others, the strata of
# the core use only what lies below them, files do not use each other in circles, `unsafe` stands only
# where it may, and crates/README.md is current.
# usage: ci/layers.sh
set -euo pipefail
cd "$(dirname "$0")/.."

cargo metadata --no-deps --format-version 1 --offline | python3 ci/layers.py
python3 ci/crates.py --check
