#!/usr/bin/env bash
# Spelling of everything that git keeps, by typos (https://github.com/crate-ci/typos).
# usage: ci/spelling.sh     skips with a message where typos cannot be had
set -euo pipefail
cd "$(dirname "$0")/.."

if ! typos=$(ci/wheel.sh typos typos 1.52.0); then
    echo "spelling: skipped: typos is not installed, and the Python package index cannot be reached"
    exit
fi
"$typos"
echo "spelling: ok"
