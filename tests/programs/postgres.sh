#!/usr/bin/env bash
# A PostgreSQL server under pgbench for five seconds: processes that fork from each other and share a segment
# of System V shared memory. All files and the server's socket are in a separate directory. The server refuses
# to run as root, so root first becomes nobody.
# usage: postgres.sh [SECONDS]
set -euo pipefail

if ((EUID == 0)); then
    room=$(mktemp -d)
    trap 'rm -rf "$room"' EXIT
    chown 65534:65534 "$room"
    TMPDIR=$room setpriv --reuid=65534 --regid=65534 --clear-groups -- "$0" "$@"
    exit
fi
seconds=${1:-5}
room=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill -QUIT "$server" 2>/dev/null || true; rm -rf "$room"' EXIT
PATH=$(echo /usr/lib/postgresql/*/bin | tr ' ' :):$PATH
export LC_ALL=C.UTF-8

initdb --no-sync --auth=trust --username=bench --pgdata="$room/data" >"$room/initdb"
postgres -D "$room/data" -k "$room" -c listen_addresses= -c fsync=off -c shared_memory_type=sysv \
    >"$room/log" 2>&1 </dev/null &
server=$!
for _ in $(seq 300); do
    pg_isready --quiet -h "$room" -U bench -d postgres && break
    sleep 0.1
done
createdb -h "$room" -U bench bench
pgbench -h "$room" -U bench --initialize --quiet --scale=2 bench 2>"$room/initialize"
pgbench -h "$room" -U bench --client=4 --jobs=2 --time="$seconds" bench
psql -h "$room" -U bench -c 'select count(*), sum(abalance) from pgbench_accounts' bench
kill -TERM "$server"
wait "$server"
server=
