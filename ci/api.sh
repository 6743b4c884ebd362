#!/usr/bin/env bash
# Checks that each public item of the published crates has an example, or a reason in ci/api-reasons.toml why it has none.
# Reads rustdoc's JSON, which is unstable, so the script passes with a note if this rustdoc writes another version of it.
# usage: ci/api.sh            counts by crate
#        ci/api.sh --list     also lists the items that have neither
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
for crate in vmarea-sync vmarea-range-tree vmarea-merge vmarea; do
    RUSTC_BOOTSTRAP=1 RUSTDOCFLAGS='-Z unstable-options --output-format json -A rustdoc::private_intra_doc_links' \
        cargo doc --quiet --locked --no-deps --target-dir "$target/api" -p "$crate"
done
python3 ci/api.py "$target/api/doc" "$@"
