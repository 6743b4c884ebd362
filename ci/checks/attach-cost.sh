#!/usr/bin/env bash
# Measures what observing costs a server: processor time per request of redis-server.
#
# usage: ci/run attach-cost -- [PAIRS [REQUESTS]]
# Runs redis-benchmark in pairs, without and with an observer, in alternating order. Prints the
# median of the ratios and its interval: the range of the middle ratios that contains the median of
# the population with a probability of 95 %. Needs root, redis-server and redis-benchmark.
. "$(dirname "$0")/../lib/prepare.sh"

pairs=${1:-20}
requests=${2:-200000}
port=${PORT:-7395}

cargo build --profile packaged --quiet --package vmarea-recorder --example observe
observe=${CARGO_TARGET_DIR:-target}/packaged/examples/observe
folder=$(mktemp -d)
redis-server --port "$port" --save '' --appendonly no --dir "$folder" >"$folder/log" 2>&1 &
server=$!
observer=
end() {
    if [ -n "$observer" ]; then kill -INT "$observer" 2>/dev/null && wait "$observer" || true; fi
    kill "$server" 2>/dev/null && wait "$server" || true
    rm -rf "$folder"
}
trap end EXIT
trap 'exit 1' INT TERM HUP
until redis-cli -p "$port" ping >"$folder/ping" 2>&1; do sleep 0.1; done

# Processor time of the server so far, in nanoseconds.
spent() { awk '{ total += $1 } END { printf "%.0f\n", total }' "/proc/$server"/task/*/schedstat; }

# Processor time of the server for one benchmark.
one() {
    before=$(spent)
    redis-benchmark -p "$port" -n "$requests" -c 20 -d 1024 -r 100000 -t set,get -q >"$folder/out"
    echo $(($(spent) - before))
}

with() {
    "$observe" "$server" 3600 >"$folder/counts" 2>&1 &
    observer=$!
    sleep 3
    kill -0 "$observer"
    one
    kill -INT "$observer"
    wait "$observer"
    observer=
}

one >"$folder/warm"
: >"$folder/ratios"
pair=0
while [ "$pair" -lt "$pairs" ]; do
    pair=$((pair + 1))
    if [ $((pair % 2)) -eq 0 ]; then
        with >"$folder/b" && b=$(cat "$folder/b") && a=$(one)
    else
        a=$(one) && with >"$folder/b" && b=$(cat "$folder/b")
    fi
    awk "BEGIN { print $b / $a }" >>"$folder/ratios"
    echo "pair $pair: $(tail -n 1 "$folder/ratios")" >&2
done
cat "$folder/counts" >&2
sort -n "$folder/ratios" | awk '
    { r[NR] = $1 }
    END {
        low = int((NR - 1.96 * sqrt(NR)) / 2); high = NR + 1 - low
        if (low < 1) { low = 1; high = NR }
        median = NR % 2 ? r[(NR + 1) / 2] : (r[NR / 2] + r[NR / 2 + 1]) / 2
        printf "ratio %.3f, interval %.3f to %.3f, %d pairs\n", median, r[low], r[high], NR
    }'
