#!/usr/bin/env bash
# Installs vmarea by README's command three times, each time from an empty target folder and with the crates already
# downloaded, and prints how long it took, with the processor time: at most three minutes are wanted on two cores that do
# nothing else. Checks nothing, because the time is the machine's; how many packages are built is checked by ci/run deny.
# usage: ci/run install-time -- [TIMES]
. "$(dirname "$0")/../lib/prepare.sh"

temporary
unset CARGO_BUILD_TARGET
cargo fetch --locked --quiet
packages=$(cargo tree --locked -p vmarea-cli --edges normal,build --prefix none --format '{p}' | sed 's/ (.*//' | sort -u | wc -l)
echo "install-time: $packages packages, $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
TIMEFORMAT='%0R s, of which processors worked %0U s for the program and %0S s for the system'
for ((n = 0; n < ${1:-3}; n++)); do
    rm -rf "$work/target" "$work/root"
    time CARGO_TARGET_DIR=$work/target cargo install --locked --offline --quiet --no-track --path crates/cli --root "$work/root"
done
echo "install-time: $(stat -c %s "$work/root/bin/vmarea") bytes"
