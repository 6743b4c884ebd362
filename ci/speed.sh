#!/usr/bin/env bash
# Measures the cost of recording and replaying, as ratios of measurements in the same run, and the time of `explain` on 65,000
# mappings and of `top` on 500 processes, relative to only reading the lists of mappings. Prints figures
# and checks none; .ci/run does not call it. Most accurate as root on an idle machine.
# usage: ci/speed.sh [PAIRS]
set -euo pipefail
cd "$(dirname "$0")/.."

ci/install.sh >/dev/null
if [[ -z ${VMAREA-} ]]; then
    cargo build --profile packaged --locked --quiet -p vmarea-cli
    VMAREA=${CARGO_TARGET_DIR:-target}/packaged/vmarea
fi
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python3 tests/programs/big_c.py >"$room/big.c"
gcc -O2 -o "$room/many_vmas" tests/programs/many_vmas.c
gcc -O2 -o "$room/boundaries" tests/support/src/boundaries/main.c
python3 ci/speed.py "$(realpath "$VMAREA")" "$room" "${1:-5}"
