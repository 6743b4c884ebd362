#!/usr/bin/env bash
# Long tests of `vmarea merge` on live processes. Needs root and Linux 6.8; installs missing packages.
#   speed     time of a merge relative to the mremap calls that created the mappings, and longest wait of a
#             thread that writes continuously: prints all results, compares the best with the bounds
#   large     a heap of 1 GiB in 256 regions, by -p, from within and under run --keep-merged
#   writers   100 merges by -p under four writers
#   mappers   ROUNDS merges (1,000) in each form while threads map, touch and unmap other memory
#   arena     RUNS programs (500) that map chunk after chunk while they are merged, by -p and under run --keep-merged
#   ends      exec, exit, kill and every kind of fork at many moments, from within, under run --keep-merged, by -p
#   kill      the tracing process killed at each of its steps, and another merge (STEP=N: every Nth)
#   refusals  merges of a program that forks and of heaps with registered buffers, direct I/O and forks, under load:
#             none is left stopped, no byte is wrong (RUNS=N of each, by move and by copy)
#   programs  Python, node, redis and Java with ZGC, which check their own results
# usage: [STEP=N] [BY=move|copy] [ROUNDS=N] [RUNS=N] ci/run live -- [PART]...   (all by default; BY applies to merges by -p)
. "$(dirname "$0")/../lib/prepare.sh"
# A separate session, whose priority can be raised for measurements; its processes end with it.
leash --session 14400 "$@"

packages
target=${CARGO_TARGET_DIR:-target}/release
cargo build --release --locked --quiet -p vmarea-cli -p vmarea-repair-capi
vmarea=$target/vmarea
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
gcc -O2 -Wall -pthread -Icrates/repair-capi/include -o "$work/heap" crates/repair-capi/tests/programs/heap.c \
    -L"$target" -lvmarea_repair_capi -Wl,-rpath,"$(realpath "$target")"
gcc -O2 -Wall -pthread -Icrates/repair-capi/tests/programs -o "$work/target" crates/cli/tests/programs/target.c
gcc -O2 -Wall -pthread -Icrates/repair-capi/tests/programs -o "$work/refuses" crates/cli/tests/programs/refuses.c

by=(${BY:+--by "$BY"})
failures=0
fail() {
    echo "live: FAILED: $*" >&2
    failures=$((failures + 1))
}

# Runs a command with a time limit in seconds. At the limit it and its children may be stopped or waiting
# for memory, so only SIGKILL ends them.
bounded() {
    timeout -s KILL "$@"
}

# Prints the value of $1 in the file $2.
value() {
    awk -v name="$1" '$1 == name { print $2 }' "$2"
}

# True if $1 is at most $2; both may have fractions.
at_most() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a + 0 <= b + 0) }'
}

# Starts "target $@", which does not know that it is merged; sets pid.
start_target() {
    rm -f "$work/out"
    timeout -s KILL "${LASTS:-200}" "$work/target" "$@" >"$work/out" 2>&1 &
    child=$!
    # A target that executes itself repeatedly does not print that it is ready.
    until [[ $1 == lives ]] || grep -qs ^ready "$work/out" || ! kill -0 "$child" 2>/dev/null; do sleep 0.02; done
    sleep 0.02
    pid=$(pgrep -P "$child" || true)
}

# Runs "target $3 ..." and keeps it at $2 mappings, for at most $1 seconds.
keep() {
    bounded "$1" "$vmarea" run --keep-merged="$2" --max-pause 1s -- "$work/target" "${@:3}"
}

# Merges the target until it ends, and checks its final output. $1 is for messages; the rest are options.
# Its children may share its memory, and it may end at any moment.
merge_until_it_ends() {
    local name=$1 status
    shift
    while kill -0 "$child" 2>/dev/null; do
        status=0
        bounded 60 "$vmarea" merge -p "$pid" --apply "${by[@]}" --json="$work/json.now" "$@" \
            >"$work/merge" 2>&1 || status=$?
        if ((status == 0)); then mv "$work/json.now" "$work/json"; fi
        if ((status == 1)) && ! grep -qE 'has ended|no process|another program|its memory|not stop' "$work/merge"; then
            fail "$name: $(cat "$work/merge")"
        elif ((status != 0 && status != 1 && status != 4)); then
            fail "$name: exit $status: $(cat "$work/merge")"
        fi
    done
    wait "$child" || fail "$name: $(tr '\n' ' ' <"$work/out")"
}

# Takes the best of five runs for each method. Bounds: not slower than the mremap calls, and no thread waits longer than
# twice the requested 5 ms.
speed() {
    local pause try best worst ratio
    # Raise the priority, so that other programs disturb the measurement less.
    { echo -20 >/proc/self/autogroup; } 2>/dev/null || true
    for pause in 0 5000; do
        best=1e9
        for try in 1 2 3 4 5; do
            bounded 60 "$work/heap" pages 20000 "$pause" 0 1 >"$work/out" || fail "pages: $(cat "$work/out")"
            ratio=$(value ratio "$work/out")
            if at_most "$ratio" "$best"; then best=$ratio; fi
        done
        echo "live: from within, at most $pause us at once (0: no bound): $best of the time of the mremap calls"
        at_most "$best" 1.0 || fail "from within: slower than mremap"
    done
    best=1e9 worst=1e9
    for try in 1 2 3 4 5; do
        bounded 60 "$work/heap" pages 20000 5000 1 1 >"$work/out" || fail "pages: $(cat "$work/out")"
        ratio=$(value ratio "$work/out")
        if at_most "$ratio" "$best"; then best=$ratio; fi
        if at_most "$(value worst_ms "$work/out")" "$worst"; then worst=$(value worst_ms "$work/out"); fi
    done
    echo "live: from within, under a writer, 5 ms: $best of the mremap calls; the writer waited $worst ms at most"
    at_most "$worst" 10 || fail "from within: a thread was kept for $worst ms"
    best=1e9 worst=1e9
    for try in 1 2 3 4 5; do
        start_target hammer 1 20000 1
        merge_until_it_ends "speed by -p" --max-pause 5ms
        ratio=$(python3 -c 'import json, sys; print(round(json.load(open(sys.argv[1]))["total_us"] / 1e3 / float(sys.argv[2]), 2))' \
            "$work/json" "$(value mremap_ms "$work/out")")
        if at_most "$ratio" "$best"; then best=$ratio; fi
        if at_most "$(value worst_ms "$work/out")" "$worst"; then worst=$(value worst_ms "$work/out"); fi
    done
    echo "live: by -p, under a writer, 5 ms: $best of the mremap calls; the writer waited $worst ms at most"
    at_most "$worst" 10 || fail "by -p: a thread was kept for $worst ms"
    { echo 0 >/proc/self/autogroup; } 2>/dev/null || true
}

large() {
    start_target regions 256 1024 40
    merge_until_it_ends "1 GiB by -p" --max-pause 1s
    echo "live: 1 GiB by -p: $(value before "$work/out") mappings became $(value after "$work/out")"
    bounded 200 "$work/heap" regions 256 1024 1 >"$work/out" || fail "1 GiB from within: $(cat "$work/out")"
    at_most "$(value after "$work/out")" 40 || fail "1 GiB from within: $(cat "$work/out")"
    echo "live: 1 GiB from within: $(value before "$work/out") mappings became $(value after "$work/out")"
    if keep 200 100 regions 256 1024 40 >"$work/out" 2>&1; then
        echo "live: 1 GiB under run --keep-merged: $(value after "$work/out") mappings"
    else
        fail "1 GiB under run --keep-merged: $(tr '\n' ' ' <"$work/out")"
    fi
    if keep 200 100 hammer 1 20000 2 >"$work/out" 2>&1; then
        echo "live: 20,000 mappings became 1 under run --keep-merged"
    else
        fail "20,000 under run --keep-merged: $(tr '\n' ' ' <"$work/out")"
    fi
}

writers() {
    start_target hammer 100 200 4
    merge_until_it_ends "100 merges by -p" --max-pause 1s
    echo "live: 100 merges by -p under four writers: lost $(value lost "$work/out"), wrong $(value wrong "$work/out")"
}

# A range that mmap returns to a thread must not be used by a concurrent merge.
mappers() {
    local rounds=${ROUNDS:-1000}
    bounded 1800 "$work/heap" mappers "$rounds" 400 3 >"$work/out" 2>&1 ||
        fail "mappers from within: $(tr '\n' ' ' <"$work/out")"
    echo "live: $rounds merges from within: $(value mapped "$work/out") mappings made meanwhile"
    keep 1800 150 mappers "$rounds" 400 3 >"$work/out" 2>&1 ||
        fail "mappers under run --keep-merged: $(tr '\n' ' ' <"$work/out")"
    echo "live: $rounds merges under run --keep-merged: $(value mapped "$work/out") mappings made meanwhile"
    LASTS=1800 start_target mappers "$rounds" 400 3
    merge_until_it_ends "mappers by -p" --max-pause 1s
    echo "live: $rounds merges by -p: $(value mapped "$work/out") mappings made meanwhile"
}

# The programs are short, so that the first merges happen at a different point of each.
arena() {
    local runs=${RUNS:-500} run before=$failures
    for run in $(seq "$runs"); do
        keep 60 1000 arena 20000 >"$work/out" 2>&1 ||
            fail "arena under run --keep-merged, run $run: exit $?: $(tr '\n' ' ' <"$work/out")"
        start_target arena 20000
        merge_until_it_ends "arena by -p, run $run" --max-pause 1s
    done
    echo "live: $runs programs that map while they are merged, in each form: $((failures - before)) failures"
}

# Kills the tracing process before its Nth call of one kind: ptrace controls the target, pwrite64 and pread64 access
# its memory, sendto and recvfrom connect it with the command.
kill_steps() {
    local step killed=0 before=$failures call ended='there is no process|has ended'
    for call in ptrace pwrite64 pread64 sendto,recvfrom; do
        step=1
        while :; do
            start_target hammer 1 300 2
            local status=0
            bounded 60 strace -f -qq -o /dev/null -e trace="$call" -e "inject=$call:signal=SIGKILL:when=$step" \
                "$vmarea" merge -p "$pid" --apply "${by[@]}" --max-pause 1s \
                >"$work/merge" 2>&1 || status=$?
            if ((status != 0)); then
                killed=$((killed + 1))
                # The target runs, and another merge finishes.
                # The target may have been merged and have exited by then.
                bounded 60 "$vmarea" merge -p "$pid" --resume >"$work/resume" 2>&1 ||
                    (($? == 4)) || grep -qE "$ended" "$work/resume" ||
                    fail "resume after $call $step: $(cat "$work/resume")"
                bounded 60 "$vmarea" merge -p "$pid" --apply --max-pause 1s \
                    >"$work/merge" 2>&1 || (($? == 4)) || grep -qE "$ended" "$work/merge" ||
                    fail "merge after $call $step: $(cat "$work/merge")"
            fi
            wait "$child" || fail "killed at $call $step: $(tr '\n' ' ' <"$work/out")"
            if ((status == 0)); then break; fi
            step=$((step + ${STEP:-1}))
        done
        echo "live: $call: killed at every step (STEP=${STEP:-1}) before $step"
    done
    echo "live: killed $killed times, $((failures - before)) failures"
}

# The process exits, executes a program or forks at many points of a merge from within.
ends() {
    local kind
    for kind in exec exit kill; do
        bounded 300 "$work/heap" ends "$kind" 5000 100 >"$work/out" 2>&1 ||
            fail "$kind from within: $(tr '\n' ' ' <"$work/out")"
    done
    for kind in fork vfork clone clone-drops clone-maps clone-moves clone-forks clone-drops-forks clone-full; do
        bounded 300 "$work/heap" forks "$kind" 5000 100 1 >"$work/out" 2>&1 ||
            fail "$kind from within: $(tr '\n' ' ' <"$work/out")"
    done
    for kind in fork vfork clone clone-drops clone-maps clone-moves clone-forks; do
        keep 100 200 forks "$kind" 5 2000 >"$work/out" 2>&1 ||
            fail "$kind under run --keep-merged: $(tr '\n' ' ' <"$work/out")"
        start_target forks "$kind" 5 2000
        merge_until_it_ends "$kind by -p" --max-pause 1s --copy 10000000
    done
    start_target lives 500 40
    merge_until_it_ends "execs by -p" --max-pause 1s
    echo "live: exec, exit, kill, fork, vfork and clone at many moments: done"
}

# Merges a target "refuses $1" by method $2. Prints the number of mappings before and after.
refuse_once() {
    local kind=$1 way=$2 status=0 before after state
    rm -f "$work/out"
    (cd "$work" && exec timeout -s KILL 90 ./refuses "$kind" 60 400) >"$work/out" 2>&1 &
    child=$!
    until grep -qs ^ready "$work/out" || ! kill -0 "$child" 2>/dev/null; do sleep 0.02; done
    if grep -qs ^skipped "$work/out"; then
        wait "$child" || true
        return 0
    fi
    sleep "0.$((RANDOM % 3))$((RANDOM % 10))"
    pid=$(pgrep -P "$child" || true)
    before=$(wc -l <"/proc/$pid/maps")
    bounded 60 "$vmarea" merge -p "$pid" --apply --by "$way" >"$work/merge" 2>&1 || status=$?
    ((status == 0 || status == 4)) || fail "$kind by $way: exit $status: $(cat "$work/merge")"
    state=$(awk '$1 == "State:" { print $2 }' "/proc/$pid/status" 2>/dev/null || true)
    after=$(wc -l 2>/dev/null <"/proc/$pid/maps" || true)
    if [[ $state == T ]]; then
        fail "$kind by $way: left stopped: $(cat "$work/merge")"
        kill -KILL "$pid"
    fi
    # Let the target run for a moment.
    sleep 0.2
    kill -TERM "$pid" 2>/dev/null || true
    wait "$child" || fail "$kind by $way: $(tr '\n' ' ' <"$work/out")"
    echo "$before ${after:-0}" >>"$work/joined"
}

# Every second run competes with a busy process for the processor.
refusals() {
    local kind way run load before=$failures
    for kind in forks ring direct; do
        for way in move copy; do
            rm -f "$work/joined"
            for run in $(seq "${RUNS:-20}"); do
                load=
                if ((run % 2 == 0)); then
                    timeout 60 sh -c 'while :; do :; done' &
                    load=$!
                fi
                refuse_once "$kind" "$way"
                if [[ -n $load ]]; then
                    kill "$load" 2>/dev/null || true
                    wait "$load" 2>/dev/null || true
                fi
            done
            awk -v name="live: $kind by $way" '{ b += $1; a += $2; n++ }
                END { if (n) printf "%s: %d runs, %d mappings became %d on average\n", name, n, b / n, a / n }' "$work/joined"
        done
    done
    echo "live: refusals: $((failures - before)) failures"
}

merge_running() {
    local name=$1 pid=$2 before after status=0
    before=$(wc -l <"/proc/$pid/maps")
    bounded 60 "$vmarea" merge -p "$pid" --apply "${by[@]}" --copy 100000 --max-pause 1s >"$work/merge" 2>&1 || status=$?
    ((status == 0 || status == 4)) || fail "$name: $(cat "$work/merge")"
    after=$(wc -l <"/proc/$pid/maps")
    echo "live: $name: $before mappings, $after after ($(head -1 "$work/merge"))"
}

programs() {
    local pid
    if ! command -v javac >/dev/null; then
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends openjdk-17-jdk-headless
    fi
    python3 -c '
import sys, time, hashlib
lists = [[(i, str(j)) for j in range(20000)] for i in range(30)]
digest = lambda: hashlib.sha256(repr(lists).encode()).hexdigest()
before = digest(); print("ready", flush=True)
end = time.time() + 12
while time.time() < end:
    assert digest() == before
    lists.append([(len(lists), str(j)) for j in range(2000)]); before = digest()
print("right", flush=True)' >"$work/python" &
    pid=$!
    until grep -q ready "$work/python" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    for _ in 1 2 3; do merge_running python "$pid"; done
    wait "$pid" && grep -q right "$work/python" || fail python

    node tests/programs/workers.js 300 >"$work/node" 2>&1 &
    pid=$!
    sleep 1
    kill -0 "$pid" 2>/dev/null && merge_running node "$pid"
    wait "$pid" || fail "node: $(tail -1 "$work/node")"

    redis-server --port 0 --unixsocket "$work/redis" --dir "$work" --save '' --daemonize no >/dev/null &
    pid=$!
    until [[ -S $work/redis ]] || ! kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    local cli=(redis-cli -s "$work/redis")
    "${cli[@]}" debug populate 200000 key 200 >/dev/null
    local before
    before=$("${cli[@]}" debug digest)
    "${cli[@]}" bgsave >/dev/null
    for _ in 1 2 3; do merge_running redis "$pid"; done
    [[ $("${cli[@]}" debug digest) == "$before" ]] || fail "redis: the digest differs"
    "${cli[@]}" shutdown nosave || true
    wait "$pid" || true

    if command -v java >/dev/null && command -v javac >/dev/null; then
        mkdir -p "$work/java"
        cat >"$work/java/Check.java" <<'JAVA'
import java.util.*;
public class Check {
    public static void main(String[] args) throws Exception {
        List<long[]> kept = new ArrayList<>();
        long end = System.currentTimeMillis() + 12000, n = 0;
        while (System.currentTimeMillis() < end) {
            long[] block = new long[4096];
            Arrays.fill(block, n);
            if (n % 16 == 0) kept.add(block);
            if (kept.size() > 2000) kept.remove(0);
            for (long[] k : kept) for (int i = 1; i < k.length; i += 997) if (k[i] != k[0]) { System.out.println("wrong"); System.exit(1); }
            n++;
        }
        System.out.println("right");
    }
}
JAVA
        javac -d "$work/java" "$work/java/Check.java"
        java -XX:+UseZGC -Xmx512m -cp "$work/java" Check >"$work/jvm" 2>&1 &
        pid=$!
        sleep 3
        for _ in 1 2 3; do merge_running "java with ZGC" "$pid"; sleep 1; done
        wait "$pid" && grep -q right "$work/jvm" || fail "java: $(tail -1 "$work/jvm")"
    fi
}

(($#)) || set -- speed large writers mappers arena ends kill refusals programs
for part in "$@"; do
    case $part in
    speed | large | writers | mappers | arena | ends | refusals | programs) "$part" ;;
    kill) kill_steps ;;
    *) fail "no such part: $part" ;;
    esac
done
# The keepers of the last programs end.
sleep 2
((failures == 0)) || exit 1
echo "live: ok"
