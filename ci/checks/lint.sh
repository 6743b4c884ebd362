#!/usr/bin/env bash
# Checks that clippy and rustdoc give no warning for any target of any crate, nor clippy for kernel/ if its target
# is installed.
# usage: ci/run lint
. "$(dirname "$0")/../lib/prepare.sh"

# Module docs are written for people who read the source, so they may link to private items.
export RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links'
for manifest in Cargo.toml lab/Cargo.toml; do
    cargo clippy --manifest-path "$manifest" --workspace --all-targets --locked -- -D warnings
    # With examples, the features of what all depend on are those that clippy has used, and nothing is checked twice.
    # The C library has no docs, and the name of the core.
    cargo doc --manifest-path "$manifest" --workspace --exclude vmarea-capi --no-deps --locked --quiet --lib --bins --examples
done
if rustup target list --installed 2>/dev/null | grep -q x86_64-unknown-none; then
    (cd kernel && cargo clippy --release --locked -- -D warnings)
else
    echo "lint: without kernel/: no target x86_64-unknown-none"
fi
echo "lint: ok"
