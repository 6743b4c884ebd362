#!/usr/bin/env bash
# Builds all targets of the product and of lab/, with which `ci/run test` needs to build none. Later checks of the gate take
# programs, libraries and examples of it, so that hardly a crate is compiled once more with other features.
# usage: ci/run build
. "$(dirname "$0")/../lib/prepare.sh"

for manifest in Cargo.toml lab/Cargo.toml; do
    cargo build --manifest-path "$manifest" --workspace --all-targets --locked --quiet
done
