#!/usr/bin/env bash
# Checks the spelling of all files in git, by typos (https://github.com/crate-ci/typos).
# usage: ci/spelling.sh     prints a note and passes if typos is not available
set -euo pipefail
cd "$(dirname "$0")/.."

if ! typos=$(ci/wheel.sh typos typos 1.52.0); then
    echo "spelling: skipped: typos is not installed, and the Python package index cannot be reached"
    exit
fi
"$typos"
echo "spelling: ok"
