#!/usr/bin/env bash
# What recording and replaying cost, as ratios of things measured side by side in one run, and how long
# `explain` takes on 65,000 mappings and `top` over 500 processes, beside what reading the lists of mappings
# takes alone. Prints and judges nothing: no gate calls it. Best as root and with nothing else running.
# usage: ci/speed.sh [PAIRS]
set -euo pipefail
cd "$(dirname "$0")/.."

ci/install.sh >/dev/null
if [[ -z ${VMAREA-} ]]; then
    cargo build --release --locked --quiet -p vmarea-cli
    VMAREA=${CARGO_TARGET_DIR:-target}/release/vmarea
fi
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 tests/programs/big_c.py >"$room/big.c"
gcc -O2 -o "$room/many_vmas" tests/programs/many_vmas.c
gcc -O2 -o "$room/boundaries" tests/support/src/boundaries.c
python3 ci/speed.py "$(realpath "$VMAREA")" "$room" "${1:-5}"
