#!/usr/bin/env bash
# Licences, bans and sources of all dependencies (deny.toml), by cargo-deny 0.18 or later.
# usage: ci/deny.sh             skips with a message where cargo-deny is not installed
#        ci/deny.sh --install   installs it first
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ ${1-} == --install ]]; then
    cargo install --locked --quiet cargo-deny
elif ! cargo deny --version >/dev/null 2>&1; then
    echo "deny: skipped: cargo-deny is not installed (ci/deny.sh --install)"
    exit
fi
cargo deny --locked check licenses bans sources
