#!/usr/bin/env bash
# Prints the path of a venv with the packages of ci/lib/requirements.txt. It is made once for each version of these
# requirements and of Python, in ${XDG_CACHE_HOME:-~/.cache}/vmarea/python, which takes a minute.
# usage: ci/lib/venv.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

requirements=ci/lib/requirements.txt
name=$({ python3 --version; cat "$requirements"; } | sha256sum | cut -c 1-16)
venv=${XDG_CACHE_HOME:-$HOME/.cache}/vmarea/python/$name
mkdir -p "${venv%/*}"
# Two checkouts may want it at once.
exec 9>"$venv.lock"
flock 9
if [[ ! -e $venv/complete ]]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2
    touch "$venv/complete"
fi
echo "$venv"
