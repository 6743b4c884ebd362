#!/usr/bin/env bash
# Checks the spelling of all files in git, by typos (https://github.com/crate-ci/typos).
# usage: ci/run spelling     prints a note and passes if typos is not available
. "$(dirname "$0")/../lib/prepare.sh"

if ! typos=$(ci/lib/wheel.sh typos typos 1.52.0); then
    echo "spelling: skipped: typos is not installed, and the Python package index cannot be reached"
    exit
fi
"$typos"
echo "spelling: ok"
