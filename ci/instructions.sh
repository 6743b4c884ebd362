#!/usr/bin/env bash
# Cost of the policies and of the kinds of VMA lock, in instructions counted by callgrind.
# - Policies: replays one recorded gcc run under `thesis`, `vmarea` and `linux`, and counts the instructions
#   within calls and faults; also times whole replays, in pairs. Fails if `vmarea` needs more than 1.01
#   times the instructions of `linux`.
# - Locks: counts the instructions within faults of one thread under each kind, relative to `mmap_lock`
#   only. Fails if the atomic in the VMA needs more than 1.01 times the instructions.
# usage: ci/instructions.sh [policies [PAIRS] | locks]     both by default
set -euo pipefail
cd "$(dirname "$0")/.."

PACKAGES=valgrind ci/install.sh >&2
built=${CARGO_TARGET_DIR:-target}/release
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
# Callgrind finds the functions by their names.
export CARGO_PROFILE_RELEASE_STRIP=none

# count FUNCTION PROGRAM ARGS: instructions within the function
count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect="$1" "${@:2}" 2>&1 >/dev/null |
        awk -v function_name="$1" '
            /Collected/ { instructions = $NF }
            END {
                if (!instructions) {
                    print "instructions: callgrind counted nothing in " function_name >"/dev/stderr"
                    exit 1
                }
                print instructions
            }'
}

# within OF BASE WHAT: at most 1.01 times
within() {
    awk -v n="$1" -v base="$2" 'BEGIN { exit n > 1.01 * base }' || {
        echo "instructions: $3" >&2
        return 1
    }
}

policies() {
    cargo build --release --locked --quiet -p vmarea-cli
    cargo build --release --locked --quiet -p vmarea-experiments --example one_policy
    python3 tests/programs/big_c.py >"$room/big.c"
    "$built/vmarea" record -o "$room/gcc.vmtrace" -- gcc -O2 -c -o "$room/big.o" "$room/big.c" >&2

    declare -A instructions
    for policy in linux thesis vmarea; do
        instructions[$policy]=$(count 'one_policy::replay' "$built/examples/one_policy" "$policy" "$room/gcc.vmtrace")
        awk -v policy="$policy" -v n="${instructions[$policy]}" -v base="${instructions[linux]}" \
            'BEGIN { printf "%-8s %15d instructions  %.4f of linux\n", policy, n, n / base }'
    done
    "$built/examples/one_policy" --times "${1:-15}" "$room/gcc.vmtrace"
    within "${instructions[vmarea]}" "${instructions[linux]}" \
        "vmarea needs more than 1.01 times what linux needs"
}

locks() {
    local pages=10000 names number n base=
    cargo build --release --locked --quiet -p vmarea-experiments --example one_lock
    mapfile -t names < <("$built/examples/one_lock")
    for number in "${!names[@]}"; do
        n=$(count '*subject::touch_all*' "$built/examples/one_lock" $((number + 1)) $pages)
        : "${base:=$n}"
        awk -v name="${names[number]}" -v n="$n" -v base="$base" -v pages=$pages \
            'BEGIN { printf "%-28s %7.1f instructions a fault  %.4f of mmap_lock only\n", name, n / pages, n / base }'
    done
    # The last kind is the one that the core uses.
    within "$n" "$base" "a fault by the lock in the VMA needs more than 1.01 times what mmap_lock only needs"
}

case ${1:-} in
policies) policies "${2:-}" ;;
locks) locks ;;
*)
    policies "${1:-}"
    locks
    ;;
esac
