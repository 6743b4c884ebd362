#!/usr/bin/env bash
# Random memory calls on this kernel and in vmarea, compared after each; no difference is allowed. Of
# 150,000 steps two thirds are calls, the others accesses, forks and exits.
# The seed is random and printed; --seed repeats the same calls. Without permission to read the kernel's
# own view, the script says so and compares nothing.
# usage: ci/conform.sh [--ops N] [--seed N] [...]
#        VMAREA=path/of/vmarea takes that binary instead of building one
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -z ${VMAREA-} ]]; then
    cargo build --release --locked --quiet -p vmarea-cli
    VMAREA=${CARGO_TARGET_DIR:-target}/release/vmarea
fi

# A later --ops wins over the first.
status=0
"$VMAREA" conform --ops 150000 --differences 3 "$@" || status=$?
if ((status == 5)); then
    echo "conform: skipped, needs root or CAP_BPF and CAP_PERFMON" >&2
    exit 0
fi
exit "$status"
