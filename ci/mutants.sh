#!/usr/bin/env bash
# The check of the check, and the failure of every allocation. Deliberate faults in the core, one at a time,
# each of which the comparison with this kernel must find within a million steps; most are found after a few
# thousand. Needs root, or CAP_BPF and CAP_PERFMON.
# usage: ci/mutants.sh
set -euo pipefail
cd "$(dirname "$0")/.."

exec cargo test --release --locked -p vmarea-conform --test mutants --test allocation_failure -- --nocapture
