#!/usr/bin/env bash
# Runs all tests of all crates, after installing the programs that they record. Uses cargo-nextest if it is
# installed, otherwise cargo's own runner. Arguments go to the runner.
# usage: ci/test.sh [ARGS]
set -euo pipefail
cd "$(dirname "$0")/.."

ci/install.sh
# Doc tests and the example run first, so that the last line is the summary of the other tests. Tests run the other
# examples, which the runners below do not build.
cargo test --workspace --locked --quiet --doc
cargo run --locked --quiet -p vmarea --example embed
cargo build --workspace --locked --quiet --examples
if cargo nextest --version >/dev/null 2>&1; then
    exec cargo nextest run --workspace --locked --no-tests pass --no-fail-fast "$@"
fi
exec cargo test --workspace --locked --lib --bins --tests --no-fail-fast "$@"
