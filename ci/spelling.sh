#!/usr/bin/env bash
# Spelling of everything that git keeps, by typos (https://github.com/crate-ci/typos). Takes an installed
# one, else a wheel of the Python package index.
# usage: ci/spelling.sh
set -euo pipefail
cd "$(dirname "$0")/.."

version=1.52.0
if ! typos=$(command -v typos); then
    room=${CARGO_TARGET_DIR:-target}/typos-$version
    typos=$room/bin/typos
    if [[ ! -x $typos ]] &&
        ! { python3 -m venv "$room" && "$room/bin/pip" install --quiet "typos==$version"; } >/dev/null 2>&1; then
        echo "spelling: skipped: typos is not installed and cannot be had from the Python package index"
        exit
    fi
fi
"$typos"
echo "spelling: ok"
