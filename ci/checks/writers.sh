#!/usr/bin/env bash
# Runs the tests of the core with an address space that is divided into parts, and checks that random histories of
# parallel calls have an order. Takes about two minutes on two cores.
# usage: ci/run writers -- [HISTORIES]
. "$(dirname "$0")/../lib/prepare.sh"

export VMAREA_HISTORIES=${1:-20000}
# A separate target folder: other flags would discard the ordinary build.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/parted
export RUSTFLAGS="${RUSTFLAGS:-} --cfg vmarea_parted"

cargo test --locked --quiet -p vmarea
echo "writers: ok"
