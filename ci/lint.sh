#!/usr/bin/env bash
# Clippy and rustdoc without a warning, for every target of every crate.
# usage: ci/lint.sh
set -euo pipefail
cd "$(dirname "$0")/.."

cargo clippy --workspace --all-targets --locked -- -D warnings
# Module docs are written for people who read the source, so they may link to what is private.
RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' cargo doc --workspace --no-deps --locked --quiet
echo "lint: ok"
