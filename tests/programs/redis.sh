#!/usr/bin/env bash
# redis-server under redis-benchmark for ten seconds, with a background save (a fork) in between. All
# files and the server's socket are in a separate directory.
# usage: redis.sh [SECONDS]
set -euo pipefail

seconds=${1:-10}
room=$(mktemp -d)
socket=$room/redis.sock
server=
trap '[[ -z $server ]] || kill "$server" 2>/dev/null || true; rm -rf "$room"' EXIT

redis-server --port 0 --unixsocket "$socket" --dir "$room" --save '' --appendonly no \
    --daemonize no --logfile "$room/log" </dev/null &
server=$!
for _ in $(seq 100); do
    redis-cli -s "$socket" ping >/dev/null 2>&1 && break
    sleep 0.1
done

timeout --signal=INT "$seconds" redis-benchmark -s "$socket" -q -l -t set,lpush,sadd,zadd \
    -r 100000 -d 512 -c 20 >"$room/benchmark" 2>&1 &
load=$!
sleep "$(awk "BEGIN { print $seconds / 2 }")"
redis-cli -s "$socket" bgsave
wait "$load" || true

# The save must be complete, because the server's exit would kill its child.
for _ in $(seq 300); do
    redis-cli -s "$socket" info persistence | grep -q '^rdb_bgsave_in_progress:0' && break
    sleep 0.1
done
redis-cli -s "$socket" info persistence | grep '^rdb_last_bgsave_status'
redis-cli -s "$socket" info stats | grep '^total_commands_processed'
redis-cli -s "$socket" shutdown nosave || true
wait "$server"
server=
