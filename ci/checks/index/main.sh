#!/usr/bin/env bash
# Compares the operations of the range tree with those of a BTreeMap under a lock and of Linux's maple tree
# (ci/checks/index/maple.sh), and prints two tables in Markdown: instructions per operation, counted by callgrind, and times from
# alternating rounds, each with the ratio of the range tree to the others. Checks nothing.
# usage: ci/run index -- [count | times [ROUNDS]]     both by default
. "$(dirname "$0")/../../lib/prepare.sh"

packages valgrind
VMAREA_MAPLE=$(ci/checks/index/maple.sh)
export VMAREA_MAPLE
# Callgrind finds the measured function by its name.
export CARGO_PROFILE_PACKAGED_STRIP=none
peers=$(cargo bench --profile packaged --locked --quiet -p vmarea-range-tree --bench peers --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\/peers-[^"]*\)".*/\1/p')
export peers
temporary

# count MAP TASK RANGES: prints them and the instructions per operation
count() {
    local out
    out=$(mktemp -p "$work")
    valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='peers::measured*' \
        "$peers" count "$@" 2>&1 >"$out" |
        awk -v calls="$out" -v row="$2 $3 $1" '
            /Collected/ { getline operations <calls; instructions = $NF }
            END {
                if (!instructions) { print "index: callgrind counted nothing: " row >"/dev/stderr"; exit 1 }
                print row, instructions / operations
            }'
}
export work
export -f count

tasks=(find insert remove replace resize gap-highest gap-lowest)

# Prints a row for each task and size: TASK RANGES OURS BTREE MAPLE RATIO RATIO
counts() {
    local task ranges map
    for ranges in 65000 1000 100 10; do
        for task in "${tasks[@]}"; do
            for map in tree btree maple; do
                [[ $map == btree && $task == gap-* ]] || echo "$map $task $ranges"
            done
        done
    done | xargs -P "$(nproc)" -L 1 bash -c 'set -o pipefail; count "$@"' count >"$work/counts"
    awk '
        { n[$1, $2, $3] = $4; rows[$1, $2] = $1 " " $2 }
        function ratio(row, map) {
            return (row SUBSEP map) in n ? n[row, "tree"] / n[row, map] : "NaN"
        }
        END {
            for (row in rows) {
                btree = (row SUBSEP "btree") in n ? n[row, "btree"] : "NaN"
                print rows[row], n[row, "tree"], btree, n[row, "maple"], ratio(row, "btree"), ratio(row, "maple")
            }
        }' "$work/counts"
}

# table WHAT FORMAT: makes a table of rows
table() {
    local task
    cat >"$work/rows"
    echo "| $1 | ranges | range tree | BTreeMap, RwLock | maple tree | ratio to BTreeMap | ratio to maple tree |"
    echo "|---|--:|--:|--:|--:|--:|--:|"
    for task in "${tasks[@]}"; do
        awk -v task="$task" '$1 == task' "$work/rows" | sort -n -k2,2
    done | awk -v format="$2" '
        function grouped(n, size) {
            n = sprintf(size, n)
            while (match(n, /[0-9][0-9][0-9][0-9]+(,|\.|$)/)) {
                end = RSTART + RLENGTH - 1
                if (substr(n, end, 1) !~ /[0-9]/) end--
                n = substr(n, 1, end - 3) "," substr(n, end - 2)
            }
            return n
        }
        function cell(n, size) { return n == "NaN" ? "–" : grouped(n, size) }
        {
            print "| " $1 " | " grouped($2, "%d") " | " cell($3, format) " | " cell($4, format) " | " \
                cell($5, format) " | " cell($6, "%.2f") " | " cell($7, "%.2f") " |"
        }'
}

case ${1-} in
'' | count | times) ;;
*)
    fail "no mode $1: count or times" 2
    ;;
esac
if [[ ${1-} != times ]]; then
    counts >"$work/instructions"
    table "instructions per operation" %.0f <"$work/instructions"
fi
[[ ${1-} ]] || echo
if [[ ${1-} != count ]]; then
    "$peers" times ${2:+"$2"} | tail -n +2 | table "ns per operation" %.1f
fi
