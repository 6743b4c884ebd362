#!/usr/bin/env bash
# Runs the loom models of every lock and of the tree's readers over all interleavings with up to
# LOOM_MAX_PREEMPTIONS preemptions (2 here: two to three minutes on two cores).
# usage: ci/run loom -- [TEST-NAME ...]
. "$(dirname "$0")/../lib/prepare.sh"

export LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-2}
export LOOM_MAX_BRANCHES=${LOOM_MAX_BRANCHES:-20000}
# A separate target folder: other flags would discard the ordinary build.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/loom
export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"

cargo test --release --locked --quiet -p vmarea-sync -p vmarea-range-tree --lib -- "$@"
echo "loom: ok"
