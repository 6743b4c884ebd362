#!/usr/bin/env bash
# Measures what recording costs a program that makes memory calls as fast as it can (tests/programs/storm.c), and
# checks that the recordings are exact. Each pair runs the program alone and recorded, in alternating order. Prints
# for each storm and method the median of the ratios of wall-clock time and of processor time (the recorder's
# included), with the interval that contains the median of the population with a probability of 95 %. Fails if
# observing takes more than 3 times as long as the program alone in the median, if a call was lost, or if a replay
# differs from the kernel. Needs root.
# usage: ci/storm.sh [--share] [PAIRS]     --share: two storms, short, and only observed
#        VMAREA=path/of/vmarea takes that binary instead of building one
set -euo pipefail
cd "$(dirname "$0")/.."

share=
if [[ ${1-} == --share ]]; then
    share=--share
    shift
fi
if ((EUID != 0)); then
    echo "storm: skipped: a command can be observed only by root"
    exit
fi
ci/install.sh >/dev/null
if [[ -z ${VMAREA-} ]]; then
    cargo build --profile packaged --locked --quiet -p vmarea-cli
    VMAREA=${CARGO_TARGET_DIR:-target}/packaged/vmarea
fi
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
gcc -O2 -Wall -pthread -o "$room/storm" tests/programs/storm.c
python3 ci/storm.py $share "$(realpath "$VMAREA")" "$room" "${1:-$([[ $share ]] && echo 5 || echo 21)}"
