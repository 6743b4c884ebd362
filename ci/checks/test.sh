#!/usr/bin/env bash
# Runs all tests of all crates, those of lab/ first, after installing the programs that they record. Uses cargo-nextest
# if it is installed, otherwise cargo's own runner. Arguments go to the runner.
# usage: ci/run test -- [ARGS]
. "$(dirname "$0")/../lib/prepare.sh"

packages
"$(example embed)"
failed=()
for manifest in lab/Cargo.toml Cargo.toml; do
    workspace=(--manifest-path "$manifest" --workspace --locked)
    # Doc tests run first, so that the last line is the summary of the other tests. Tests run the examples, which the
    # runners below do not build.
    cargo test "${workspace[@]}" --quiet --doc
    cargo build "${workspace[@]}" --quiet --examples
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run "${workspace[@]}" --no-tests pass --no-fail-fast "$@" || failed+=("$manifest")
    else
        cargo test "${workspace[@]}" --lib --bins --tests --no-fail-fast "$@" || failed+=("$manifest")
    fi
done
((${#failed[@]} == 0)) || {
    echo "test: failed: ${failed[*]}" >&2
    exit 1
}
