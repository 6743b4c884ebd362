#!/usr/bin/env bash
# Runs the tests of the crates that contain `unsafe` code under Miri, which detects undefined behaviour, leaks
# and races. Needs a nightly toolchain with the component miri; otherwise prints a note and passes.
# usage: ci/run miri -- [--share] [TEST-NAME ...]
#        --share: the tree is compared with an ordered map with small nodes only, which are split and joined more often
. "$(dirname "$0")/../lib/prepare.sh"

targets=(--lib --tests)
if [[ ${1-} == --share ]]; then targets=(--lib --test large --test stress); shift; fi
toolchain=${MIRI_TOOLCHAIN:-nightly}
if ! cargo "+$toolchain" miri --version >/dev/null 2>&1 &&
    ! rustup component add miri rust-src --toolchain "$toolchain" >/dev/null 2>&1; then
    echo "miri: skipped, needs rustup with a $toolchain toolchain and its component miri" >&2
    exit 0
fi

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/miri
# Random tests read the clock; strict provenance is checked because pointers carry tags.
export MIRIFLAGS="${MIRIFLAGS:-} -Zmiri-disable-isolation -Zmiri-strict-provenance"
export PROPTEST_CASES=${PROPTEST_CASES:-1}
# The stack of a panic that a test expects takes eight seconds under Miri.
export RUST_BACKTRACE=0

cargo "+$toolchain" miri test --locked --quiet -p vmarea-sync -p vmarea-range-tree "${targets[@]}" -- "$@"
echo "miri: ok"
