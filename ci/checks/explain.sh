#!/usr/bin/env bash
# Runs `vmarea explain` on real programs: a Java virtual machine with ZGC, node with workers, redis after a save, an
# interpreter with large lists. Each program is stopped, and the report is compared with its list of
# mappings line by line. Installs missing packages; the tests cover all programs except Java. Prints one row per program.
# usage: ci/run explain
. "$(dirname "$0")/../lib/prepare.sh"

packages
if ! command -v java >/dev/null; then
    as_root=()
    ((EUID == 0)) || as_root=(sudo)
    "${as_root[@]}" apt-get update
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends openjdk-17-jre-headless
fi
exec cargo test --locked -p vmarea-cli --test command explain_programs:: -- --nocapture
