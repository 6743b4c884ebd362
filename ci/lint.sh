#!/usr/bin/env bash
# Checks that clippy and rustdoc give no warning for any target of any crate, nor clippy for kernel/ if its target
# is installed.
# usage: ci/lint.sh
set -euo pipefail
cd "$(dirname "$0")/.."

cargo clippy --workspace --all-targets --locked -- -D warnings
# Module docs are written for people who read the source, so they may link to private items.
RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' cargo doc --workspace --no-deps --locked --quiet
if rustup target list --installed 2>/dev/null | grep -q x86_64-unknown-none; then
    (cd kernel && cargo clippy --release --locked -- -D warnings)
else
    echo "lint: without kernel/: no target x86_64-unknown-none"
fi
echo "lint: ok"
