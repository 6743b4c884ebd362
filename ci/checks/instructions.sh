#!/usr/bin/env bash
# Cost of the policies, and of the kinds of VMA lock and of writers, in instructions counted by callgrind.
# - Policies: replays one recorded gcc run under `thesis`, `vmarea` and `linux`, and counts the instructions
#   within calls and faults; also times whole replays, in pairs. Fails if `vmarea` needs more than 1.01
#   times the instructions of `linux`.
# - Locks: counts the instructions within faults of one thread under each kind, relative to `mmap_lock`
#   only. Fails if the atomic in the VMA needs more than 1.01 times the instructions.
# - Writers: counts the instructions of calls of one thread with one writer and with a divided address space, and
#   writes the table in docs/writers.md. There is no limit.
# - Caches: counts the instructions of the lookups of each trace of the corpus with one lookup cache at a time, and
#   writes the table in docs/benchmarks.md. Fails if ours needs more of them than `vmacache` on a trace.
# usage: ci/run instructions -- [policies [PAIRS] | locks | writers | caches]     policies and locks by default
. "$(dirname "$0")/../lib/prepare.sh"

packages valgrind
built=${CARGO_TARGET_DIR:-target}/release
temporary
# Functions are found by their names.
export CARGO_PROFILE_RELEASE_STRIP=none

# collected PROGRAM ARGS: all instructions, or those that an option of callgrind before PROGRAM selects
collected() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 >/dev/null |
        awk '/Collected/ { n = $NF } END { print n + 0; exit !n }' || {
        echo "instructions: none counted in $*" >&2
        return 1
    }
}

# count FUNCTION PROGRAM ARGS: instructions within the function
count() { collected --toggle-collect="$1" "${@:2}"; }

# each ROUNDS PROGRAM ARGS: instructions that as many rounds more need; the number of rounds is the last argument
each() {
    local once twice
    once=$(collected "${@:2}" "$1")
    twice=$(collected "${@:2}" $((2 * $1)))
    echo $((twice - once))
}

# within OF BASE WHAT: at most 1.01 times
within() {
    awk -v n="$1" -v base="$2" 'BEGIN { exit n > 1.01 * base }' || {
        echo "instructions: $3" >&2
        return 1
    }
}

# put_table PAGE: puts the table between the marks of the page
put_table() {
    echo >>"$work/table"
    sed -i -e "/^<!-- instructions:/r $work/table" -e '/^<!-- instructions:/,/^<!-- end of instructions/{/^<!--/!d}' "$1"
    cat "$work/table"
}

policies() {
    cargo build --release --locked --quiet -p vmarea-cli
    cargo build --release --locked --quiet --manifest-path lab/Cargo.toml -p vmarea-experiments --example one_policy
    python3 tests/programs/big_c.py >"$work/big.c"
    "$built/vmarea" record -o "$work/gcc.vmtrace" -- gcc -O2 -c -o "$work/big.o" "$work/big.c" >&2

    declare -A instructions
    for policy in linux thesis vmarea; do
        instructions[$policy]=$(count 'one_policy::replay' "$built/examples/one_policy" "$policy" "$work/gcc.vmtrace")
        awk -v policy="$policy" -v n="${instructions[$policy]}" -v base="${instructions[linux]}" \
            'BEGIN { printf "%-8s %15d instructions  %.4f of linux\n", policy, n, n / base }'
    done
    "$built/examples/one_policy" --times "${1:-15}" "$work/gcc.vmtrace"
    within "${instructions[vmarea]}" "${instructions[linux]}" \
        "vmarea needs more than 1.01 times what linux needs"
}

locks() {
    local pages=10000 names number n base=
    cargo build --release --locked --quiet --manifest-path lab/Cargo.toml -p vmarea-experiments --example one_lock
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

writers() {
    local rounds=1000 call one parts m n
    cargo build --release --locked --quiet --manifest-path lab/Cargo.toml -p vmarea-experiments --example one_writer
    "$built/examples/one_writer" >"$work/works"
    printf '\n| work | one writer | parts | ratio |\n|---|---|---|---|\n' >"$work/table"
    while read -r call one parts; do
        m=$(each $rounds "$built/examples/one_writer" "$call" "$one")
        n=$(each $rounds "$built/examples/one_writer" "$call" "$parts")
        awk -v work="$call" -v m="$m" -v n="$n" -v rounds=$rounds \
            'BEGIN { printf "| `%s` | %.0f | %.0f | %.2f |\n", work, m / rounds, n / rounds, n / m }' >>"$work/table"
    done <"$work/works"
    put_table docs/writers.md
}

caches() {
    local trace lookups only number cells more=''
    cargo build --release --locked --quiet --manifest-path lab/Cargo.toml -p vmarea-experiments --example one_cache
    printf '\n| trace | none | last used | `vmacache` | ours | ours to `vmacache` |\n|---|--:|--:|--:|--:|--:|\n' >"$work/table"
    for trace in corpus/*.vmtrace; do
        lookups=$("$built/examples/one_cache" "$trace" "$work/log")
        # What the changes of the index need, with none of the caches.
        only=$(collected "$built/examples/one_cache" 0 "$work/log")
        cells=()
        # The third cache, the last-used and the largest VMA, is not in the table.
        for number in 1 2 4 5; do
            cells+=("$(collected "$built/examples/one_cache" $number "$work/log")")
        done
        awk -v trace="$(basename "$trace" .vmtrace)" -v lookups="$lookups" -v only="$only" -v cells="${cells[*]}" 'BEGIN {
            split(cells, n, " ")
            for (i in n) n[i] = (n[i] - only) / lookups
            printf "| `%s` | %.0f | %.0f | %.0f | %.0f | %.2f |\n", trace, n[1], n[2], n[3], n[4], n[4] / n[3]
            exit n[4] > n[3]
        }' | tee -a "$work/table" >&2 || more+=" $trace"
    done
    put_table docs/benchmarks.md
    [[ -z $more ]] || fail "more instructions than vmacache:$more"
}

case ${1:-} in
policies) policies "${2:-}" ;;
locks) locks ;;
writers) writers ;;
caches) caches ;;
*)
    policies "${1:-}"
    locks
    ;;
esac
