#!/usr/bin/env bash
# Checks that the documentation of the published crates builds without warnings, and that each of their public items has
# an example, or a reason in ci/api-reasons.toml why it has none. ci/test.sh runs the examples.
# The second check reads rustdoc's JSON, which is unstable. It is skipped with a note if ci/api.py does not know the
# version that this rustdoc writes.
# usage: ci/api.sh            counts by crate, and the items that have neither
#        ci/api.sh --list     also how each item is covered
set -euo pipefail
cd "$(dirname "$0")/.."

crates=(vmarea-sync vmarea-range-tree vmarea-merge vmarea)
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# Unlike in ci/lint.sh, no link may lead to a private item: readers of docs.rs could not follow it.
RUSTDOCFLAGS='-D warnings' cargo doc --quiet --locked --no-deps --target-dir "$target/api" "${crates[@]/#/--package=}"
RUSTC_BOOTSTRAP=1 RUSTDOCFLAGS='-Z unstable-options --output-format json' \
    cargo doc --quiet --locked --no-deps --target-dir "$target/api/json" "${crates[@]/#/--package=}"
python3 ci/api.py "$target/api/json/doc" "$@"
