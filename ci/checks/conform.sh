#!/usr/bin/env bash
# Random memory calls on this kernel and in vmarea, compared after each call; no difference is allowed. Two
# thirds of the 150,000 steps are calls, the others accesses, forks and exits.
# The seed is random and printed; --seed repeats the same calls. Without permission to read the kernel's
# own view, the script prints a note and compares nothing.
# usage: ci/run conform [--share] [--ops N] [--seed N] [...]
#        --share: builds as the tests do, for which nothing new is compiled
#        LAB=path/of/vmarea-lab takes that binary instead of building one
. "$(dirname "$0")/../lib/prepare.sh"

profile=release
if [[ ${1-} == --share ]]; then profile=debug; shift; fi
LAB=$(program vmarea-lab "$profile")

# If --ops is given twice, the later one applies.
status=0
"$LAB" conform --ops 150000 --differences 3 "$@" || status=$?
if ((status == 5)); then
    echo "conform: skipped, needs root or CAP_BPF and CAP_PERFMON" >&2
    exit 0
fi
exit "$status"
