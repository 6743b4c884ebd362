#!/usr/bin/env bash
# Counts the cache lines that two calls on separate ranges share, for each pair of calls and each kind of writers, and
# prints docs/conflicts.md. Fails if fewer than 99 % of the pairs share no line with parts and arenas. Takes some
# minutes: valgrind logs every access to memory.
# usage: ci/conflicts.sh > docs/conflicts.md
set -euo pipefail
cd "$(dirname "$0")/.."

PACKAGES="valgrind binutils" ci/install.sh >&2
export CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_RELEASE_STRIP=none
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
cargo build --release --locked --quiet --manifest-path lab/Cargo.toml -p vmarea-experiments --example conflicts
program=${CARGO_TARGET_DIR:-target}/release/examples/conflicts

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
kinds=("mmap_lock exact" "mmap_lock arena" "parts exact" "parts arena")
for kind in "${kinds[@]}"; do
    read -r writers placement <<<"$kind"
    valgrind --tool=lackey --trace-mem=yes --log-fd=1 "$program" "$writers" "$placement" |
        python3 ci/conflicts.py read "$program" "$writers" "$placement" >"$room/$writers-$placement.json"
done
python3 ci/conflicts.py page "$room"/*.json
