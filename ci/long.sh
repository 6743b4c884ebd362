#!/usr/bin/env bash
# Runs the checks that take too long for .ci/run, one after another, and prints a table of their results; exits with
# 3 if one failed. A check that this machine cannot run prints why, and counts as skipped.
# usage: ci/long.sh [NAME...]    all of them (some hours), or those named
#        ci/long.sh --list       the names, with the commands
# KEEP=FOLDER keeps what each of them printed. LTP=FOLDER of an installed Linux Test Project is used if given.
set -euo pipefail
cd "$(dirname "$0")/.."

# name: command
checks=(
    "kernel-compare: ci/kernel.sh --compare"
    "kernel-ltp: ci/kernel.sh --ltp"
    "kernel-isolation: ci/kernel.sh --isolation 1000"
    "kernel-stress: ci/kernel.sh --stress 60"
    "kernel-reclaim: ci/kernel.sh --reclaim 1000"
    "kernel-bad: ci/kernel.sh --bad"
    "kernel-figures: ci/kernel-figures.sh"
    "enumeration: ci/enumeration.sh"
    "mutants: ci/mutants.sh"
    "kernels: ci/kernels.sh"
    "arch: ci/arch.sh"
    "writers: ci/writers.sh"
    "conflicts: ci/conflicts.sh"
    "paths: ci/paths.sh"
    "index: ci/index.sh"
    "suites: ci/suites.sh"
    "programs: ci/programs.sh --large"
    "counterfactual: ci/counterfactual.sh"
    "instructions: ci/instructions.sh"
    "tsan: ci/tsan.sh"
    "live: ci/live.sh"
    "hazards: ci/hazards.sh --merges 1000"
    "explain: ci/explain.sh"
    "alerts: ci/alerts.sh"
    "storm: ci/storm.sh"
    "page: ci/page.sh"
    "viewers: ci/viewers.sh"
    "python: ci/python.sh"
    "sweep: ci/sweep.sh"
)
if [[ ${1-} == --list ]]; then
    printf '%s\n' "${checks[@]}"
    exit
fi
for name; do
    printf '%s\n' "${checks[@]}" | grep -q "^$name: " || {
        echo "ci/long.sh: no check $name: see ci/long.sh --list" >&2
        exit 2
    }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${KEEP:-$work}
mkdir -p "$out"
failed=0
for check in "${checks[@]}"; do
    name=${check%%: *}
    (($# == 0)) || [[ " $* " == *" $name "* ]] || continue
    echo "== $name: ${check#*: }"
    begun=$SECONDS ended=0
    # Four hours for each: a check that hangs fails, and what it leaves behind ends with it.
    read -r -a command <<<"${check#*: }"
    ci/leash.py 14400 "${command[@]}" </dev/null >"$out/$name" 2>&1 || ended=$?
    result=ok
    if ((ended)); then
        result="failed ($ended)"
        failed=3
        tail -20 "$out/$name"
    elif grep -q '^[a-z]*: skipped' "$out/$name"; then
        result=skipped
    fi
    printf '%-18s %-12s %6d s  %s\n' "$name" "$result" $((SECONDS - begun)) "$(tail -1 "$out/$name" | cut -c 1-100)" \
        >>"$work/.table"
done
echo
cat "$work/.table"
exit "$failed"
